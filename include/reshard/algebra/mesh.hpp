// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/mesh.hpp
/// \brief  An N-D grid of ranks, row-major: `DynamicMesh` as a value, `Mesh<E...>` with the axes in the type.
/// \depends core only. constexpr; no communicator: a mesh is arithmetic on rank numbers.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index_list.hpp>

#include <concepts>     // integral
#include <string_view>  // string_view

namespace reshard::inline v0 {

/// The name of a mesh axis ("dp", "tp"): at most 15 characters, kept inside the mesh.
class AxisName {
public:
    constexpr AxisName() = default;
    constexpr AxisName(std::string_view text) {
        if (text.size() >= sizeof(text_)) {
            raise(ErrorCode::mesh,
                  concat("reshard::Mesh: the axis name '", text, "' is longer than 15 characters. Fix: shorten it."));
        }
        for (char c : text) text_[size_++] = c;
    }
    constexpr AxisName(char const* text) : AxisName(std::string_view(text)) {}
    [[nodiscard]] constexpr std::string_view view() const noexcept { return {text_, size_}; }

private:
    char text_[16]{};
    std::size_t size_ = 0;
};

/// Which ranks form a mesh. By default 0, 1, 2, ...; `first_rank(8)` shifts them; a list names them one by one
/// in row-major order of the mesh.
struct RankList {
    Index first = 0;
    IndexList ranks;
};
[[nodiscard]] constexpr RankList first_rank(Index first) noexcept { return {first, {}}; }

/// Extents outer to inner. Rank numbers fit `int`. Axis names are labels: two meshes that differ only in names
/// are the same mesh. Throws MeshError for an axis below 1, too many ranks, a negative or repeated rank.
class DynamicMesh {
public:
    constexpr DynamicMesh() { extents_.push_back(1); }
    constexpr explicit DynamicMesh(Indices const& extents, RankList ranks = {}) : extents_(extents) {
        set_ranks(static_cast<RankList&&>(ranks));
    }

    template <IntegerList List>
    constexpr explicit DynamicMesh(List const& extents, RankList ranks = {})
        : DynamicMesh(detail::indices_of(extents), static_cast<RankList&&>(ranks)) {}

    [[nodiscard]] constexpr int axes() const noexcept { return extents_.size(); }
    [[nodiscard]] constexpr Index extent(int axis) const noexcept { return extents_[axis]; }
    [[nodiscard]] constexpr Indices const& extents() const& noexcept { return extents_; }
    [[nodiscard]] constexpr Indices extents() && noexcept { return extents_; }
    /// Number of ranks.
    [[nodiscard]] constexpr Index size() const noexcept { return size_; }
    /// Distance, in ordinals, of neighbours along an axis.
    [[nodiscard]] constexpr Index stride(int axis) const noexcept {
        Index product = 1;
        for (int a = axes() - 1; a > axis; --a) product *= extents_[a];
        return product;
    }

    /// The rank at a row-major position of the mesh, and back (-1 when the rank is not in the mesh).
    [[nodiscard]] constexpr Index rank_at(Index ordinal) const noexcept {
        return ranks_.ranks.empty() ? ranks_.first + ordinal : ranks_.ranks[ordinal];
    }
    [[nodiscard]] constexpr Index ordinal(Index rank) const noexcept {
        if (ranks_.ranks.empty()) {
            Index const position = rank - ranks_.first;
            return position >= 0 && position < size_ ? position : -1;
        }
        Index low = 0;
        Index high = size_;  // the rank, if it is there, stands at [low, high) of by_rank_
        while (high - low > 1) {
            Index const middle = low + (high - low) / 2;
            (ranks_.ranks[by_rank_[middle]] <= rank ? low : high) = middle;
        }
        return ranks_.ranks[by_rank_[low]] == rank ? by_rank_[low] : -1;
    }
    [[nodiscard]] constexpr bool contains(Index rank) const noexcept { return ordinal(rank) >= 0; }

    /// One coordinate per axis. Throws MeshError when the rank is not in the mesh.
    [[nodiscard]] constexpr Indices coordinates(Index rank) const {
        Index rest = ordinal(rank);
        if (rest < 0) raise_outside(rank);
        Indices result = extents_;
        for (int a = axes() - 1; a > 0; --a) {
            result[a] = rest % extents_[a];
            rest /= extents_[a];
        }
        result[0] = rest;
        return result;
    }
    /// The lowest rank number in the mesh, and the highest.
    [[nodiscard]] constexpr Index lowest_rank() const noexcept {
        return ranks_.ranks.empty() ? ranks_.first : ranks_.ranks[by_rank_[0]];
    }
    [[nodiscard]] constexpr Index last_rank() const noexcept {
        return ranks_.ranks.empty() ? ranks_.first + size_ - 1 : ranks_.ranks[by_rank_.back()];
    }
    /// The same ranks in the same order under other extents. Throws MeshError when these do not hold as many.
    [[nodiscard]] constexpr DynamicMesh reshaped(Indices const& extents) const {
        DynamicMesh result(extents, first_rank(ranks_.ranks.empty() ? ranks_.first : 0));
        if (result.size_ != size_) raise_count(size_, result.size_);
        result.ranks_ = ranks_;
        result.by_rank_ = by_rank_;
        return result;
    }
    [[nodiscard]] constexpr RankList const& ranks() const& noexcept { return ranks_; }
    [[nodiscard]] constexpr RankList ranks() && noexcept { return ranks_; }

    /// Labels the axes, outer to inner.
    constexpr void name_axes(InlineList<AxisName, max_axes> const& names) {
        if (names.size() != axes()) raise_names(names.size());
        names_ = names;
    }
    [[nodiscard]] constexpr std::string_view axis_name(int axis) const noexcept {
        return axis < names_.size() ? names_[axis].view() : std::string_view();
    }
    /// The axis called `name`. Throws MeshError when there is none.
    [[nodiscard]] constexpr int axis(std::string_view name) const {
        for (int a = 0; a < names_.size(); ++a)
            if (names_[a].view() == name) return a;
        raise_no_axis(name);
    }

    /// Same extents and same ranks in the same order; names do not count.
    [[nodiscard]] friend constexpr bool operator==(DynamicMesh const& a, DynamicMesh const& b) noexcept {
        if (!(a.extents_ == b.extents_)) return false;
        return a.ranks_.first == b.ranks_.first && a.ranks_.ranks == b.ranks_.ranks;
    }

private:
    constexpr void set_ranks(RankList ranks) {
        if (axes() < 1) raise(ErrorCode::mesh, "reshard::Mesh: no axes given. Fix: a mesh has one axis or more.");
        for (int a = 0; a < axes(); ++a) {
            if (extents_[a] < 1) raise_extent(a, extents_[a]);
            if (!multiply_fits(size_, extents_[a], size_) || size_ > INT32_MAX) raise_size();
        }
        if (ranks.first < 0 || ranks.first > INT32_MAX - (size_ - 1)) raise_size();
        if (!ranks.ranks.empty()) {
            if (ranks.ranks.size() != size_) raise_count(ranks.ranks.size(), size_);
            ranks.first = 0;          // says nothing beside a list
            bool consecutive = true;  // then the first rank says it all, and ordinal() needs no search
            for (Index i = 1; i < size_; ++i) consecutive = consecutive && ranks.ranks[i] == ranks.ranks[0] + i;
            if (consecutive) {
                if (ranks.ranks[0] < 0) raise_repeated(ranks.ranks[0]);
                if (ranks.ranks.back() > INT32_MAX) raise_repeated(ranks.ranks.back());
                ranks = {ranks.ranks[0], {}};
            } else {
                by_rank_ = sorted_places(ranks.ranks);
                check_distinct(ranks.ranks);
            }
        }
        ranks_ = static_cast<RankList&&>(ranks);
    }
    constexpr void check_distinct(IndexList const& ranks) const {
        for (Index i = 0; i < size_; ++i) {
            Index const rank = ranks[by_rank_[i]];
            if (rank < 0 || rank > INT32_MAX) raise_repeated(rank);
            if (i > 0 && rank == ranks[by_rank_[i - 1]]) raise_repeated(rank);
        }
    }
    /// The places of a list in ascending order of what stands there: a heap sort, for lists of any length.
    static constexpr IndexList sorted_places(IndexList const& list) {
        Index const count = list.size();
        Index* const places = new Index[static_cast<std::size_t>(count)]{};
        for (Index i = 0; i < count; ++i) places[i] = i;
        auto const sink = [&](Index parent, Index end) {
            for (Index child = 2 * parent + 1; child < end; child = 2 * parent + 1) {
                if (child + 1 < end && list[places[child]] < list[places[child + 1]]) ++child;
                if (list[places[parent]] >= list[places[child]]) return;
                Index const lower = places[parent];
                places[parent] = places[child];
                places[child] = lower;
                parent = child;
            }
        };
        for (Index i = count / 2; i-- > 0;) sink(i, count);
        for (Index end = count; end-- > 1;) {
            Index const last = places[0];
            places[0] = places[end];
            places[end] = last;
            sink(0, end);
        }
        IndexList const result(places, count);
        delete[] places;
        return result;
    }
    [[noreturn]] static void raise_extent(int axis, Index extent);
    [[noreturn]] static void raise_size();
    [[noreturn]] static void raise_count(Index given, Index size);
    [[noreturn]] static void raise_repeated(Index rank);
    [[noreturn]] void raise_names(int count) const;
    [[noreturn]] void raise_no_axis(std::string_view name) const;
    [[noreturn]] void raise_outside(Index rank) const;

    Indices extents_;
    Index size_ = 1;
    RankList ranks_;
    IndexList by_rank_;  ///< of a list: its places in ascending order of the ranks
    InlineList<AxisName, max_axes> names_;
};

/// A mesh whose number of axes, and every extent that is not `dynamic`, is part of the type.
/// `Mesh{2, 4}` has run-time extents; `Mesh<2, 4>{}` makes boxes and kinds constants and drops axes of size 1.
/// It is a DynamicMesh: whatever takes or keeps a reference to one takes this.
template <Index... Extents>
class Mesh : public DynamicMesh {
    static_assert(sizeof...(Extents) >= 1 && sizeof...(Extents) <= max_axes,
                  "reshard::Mesh: a mesh has 1 to 8 axes. Fix: merge axes that always act together.");
    static_assert(((Extents >= 1 || Extents == dynamic) && ...),
                  "reshard::Mesh: an axis is smaller than 1. Fix: every axis has at least one rank.");

public:
    static constexpr bool is_static = ((Extents != dynamic) && ...);

    constexpr Mesh() requires is_static : DynamicMesh(make({}, Extents...)) {}
    constexpr explicit Mesh(RankList ranks) requires(
        sizeof...(Extents) > 0 && is_static)  // the first half keeps deduction from `Mesh{8}` off Mesh<>
        : DynamicMesh(make(static_cast<RankList&&>(ranks), Extents...)) {}
    template <std::integral... Integers>
        requires(sizeof...(Integers) == sizeof...(Extents))
    constexpr Mesh(Integers... extents) : DynamicMesh(make({}, static_cast<Index>(extents)...)) {
        if (((Extents != dynamic && Extents != static_cast<Index>(extents)) || ...)) {
            raise(ErrorCode::mesh,
                  "reshard::Mesh: an extent given at run time differs from the one in the type. "
                  "Fix: pass the same number, or write reshard::dynamic in the type.");
        }
    }

    /// Refuses, in words, what does not tell the compiler how many there are.
    template <IntegerList List>
    explicit Mesh(List const&) {
        constexpr bool is_counted = std::is_same_v<List, void>;
        static_assert(is_counted,
                      "reshard::Mesh: the type says how many axes there are, and a list says so at run time only. "
                      "Fix: write DynamicMesh(list).");
    }

    [[nodiscard]] static constexpr int axes() noexcept { return static_cast<int>(sizeof...(Extents)); }
    [[nodiscard]] static constexpr Index static_extent(int axis) noexcept {
        constexpr Index extents[] = {Extents...};
        return extents[axis];
    }
    /// The same mesh on other ranks: `Mesh{2, 4}.on(first_rank(8))`, `Mesh{3}.on({0, {4, 0, 2}})`.
    [[nodiscard]] constexpr Mesh on(RankList ranks) const {
        Mesh copy = *this;
        static_cast<DynamicMesh&>(copy) = DynamicMesh(extents(), static_cast<RankList&&>(ranks));
        return copy;
    }
    /// The same mesh with labelled axes: `Mesh{2, 4}.named("dp", "tp")`.
    template <class... Names>
    [[nodiscard]] constexpr Mesh named(Names... names) const {
        static_assert(sizeof...(Names) == sizeof...(Extents), "reshard::Mesh: give one name per axis.");
        Mesh copy = *this;
        InlineList<AxisName, max_axes> list;
        (list.push_back(AxisName(names)), ...);
        copy.name_axes(list);
        return copy;
    }

    [[nodiscard]] constexpr DynamicMesh const& value() const& noexcept { return *this; }
    [[nodiscard]] constexpr DynamicMesh value() && noexcept { return *this; }

    [[nodiscard]] friend constexpr bool operator==(Mesh const& a, Mesh const& b) noexcept {
        return a.value() == b.value();
    }

private:
    template <class... Integers>
    static constexpr DynamicMesh make(RankList ranks, Integers... extents) {
        Indices list;
        (list.push_back(extents), ...);
        return DynamicMesh(list, static_cast<RankList&&>(ranks));
    }
};

template <std::integral... Integers>
Mesh(Integers...) -> Mesh<(static_cast<void>(sizeof(Integers)), dynamic)...>;
template <IntegerList List>
Mesh(List const&) -> Mesh<dynamic>;  // to say what to write

namespace detail {
template <class T>
inline constexpr bool is_mesh = false;
template <Index... E>
inline constexpr bool is_mesh<Mesh<E...>> = true;
}  // namespace detail

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/algebra/mesh.ipp>
#endif
