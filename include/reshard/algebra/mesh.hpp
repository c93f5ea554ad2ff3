// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/mesh.hpp
/// \brief  An N-D grid of ranks, row-major: `DynamicMesh` as a value, `Mesh<E...>` with the axes in the type.
/// \depends core only. constexpr; no communicator: a mesh is arithmetic on rank numbers.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index_list.hpp>

namespace reshard::inline v0_1 {

namespace detail {
constexpr bool is_name_character(char c, bool first) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}
}  // namespace detail

/// The name of a mesh axis ("dp", "tp"): at most 15 letters, digits and `_`, no digit first. Empty: it has none.
class AxisName {
public:
    constexpr AxisName() = default;
    constexpr AxisName(std::string_view text) {
        if (text.size() >= sizeof(text_)) {
            errors::raise(ErrorCode::mesh, "reshard::Mesh: the axis name '", text,
                          "' is longer than 15 characters. Fix: shorten it.");
        }
        int size = 0;
        for (char c : text) {
            if (!detail::is_name_character(c, size == 0)) {
                errors::raise(ErrorCode::mesh, "reshard::Mesh: the axis name '", text,
                              "' cannot be told from other text. Fix: use letters, digits and _, no "
                              "digit first.");
            }
            text_[size++] = c;
        }
    }
    constexpr AxisName(char const* text) : AxisName(std::string_view(text)) {}
    [[nodiscard]] constexpr std::string_view view() const noexcept { return text_; }

private:
    char text_[16]{};
};

/// An axis of a mesh, by its number or its name.
struct AxisRef {
    int number = -1;
    std::string_view name;

    constexpr AxisRef() = default;
    constexpr AxisRef(int axis) noexcept : number(axis) {}
    constexpr AxisRef(std::string_view axis) noexcept : name(axis) {}
    constexpr AxisRef(char const* axis) noexcept : name(axis) {}
};
/// Some axes of a mesh, in an order of their own: `"tp"`, `1`, `{"dp", "tp"}`. Only while it is looked at: names are
/// not copied.
using MeshAxes = InlineList<AxisRef, max_axes>;

/// Which ranks form a mesh. By default 0, 1, 2, ...; `first_rank(8)` shifts them; `listed_ranks({4, 0, 2})` names them
/// one by one in row-major order of the mesh.
struct RankList {
    Index first = 0;
    IndexList ranks;
};
[[nodiscard]] constexpr RankList first_rank(Index first) noexcept { return {first, {}}; }
[[nodiscard]] constexpr RankList listed_ranks(IndexList const& ranks) { return {0, ranks}; }

/// Extents outer to inner. Rank numbers fit `int`. Axis names are labels: two meshes that differ only in names
/// are the same mesh. Throws MeshError for an axis below 1, too many ranks, a negative or repeated rank.
/// constexpr without names and up to `inline_ranks` listed ranks; what is longer is interned.
class DynamicMesh {
public:
    static constexpr int inline_ranks = 4;

    constexpr DynamicMesh() = default;
    constexpr explicit DynamicMesh(Indices const& extents, RankList const& ranks = {}) {
        set_extents(extents);
        set_ranks(ranks);
    }

    template <IntegerList List>
    constexpr explicit DynamicMesh(List const& extents, RankList const& ranks = {})
        : DynamicMesh(detail::indices_of(extents), ranks) {}
    template <std::integral Extent>
        requires(!std::same_as<Extent, char>)  // ({n}), which could be a copy of a mesh of n, too
    constexpr explicit DynamicMesh(Extent const (&extents)[1], RankList const& ranks = {})
        : DynamicMesh(Indices{extents[0]}, ranks) {}

    [[nodiscard]] constexpr int axes() const noexcept { return axes_; }
    [[nodiscard]] constexpr Index extent(int axis) const noexcept { return extents_[axis]; }
    [[nodiscard]] constexpr Indices extents() const noexcept {
        Indices result;
        for (int a = 0; a < axes(); ++a) result.push_back(extents_[a]);
        return result;
    }
    /// Number of ranks.
    [[nodiscard]] constexpr Index size() const noexcept { return size_; }
    /// Distance, in ordinals, of neighbours along an axis.
    [[nodiscard]] constexpr Index stride(int axis) const noexcept {
        Index product = 1;
        for (int a = axes() - 1; a > axis; --a) product *= extents_[a];
        return product;
    }

    /// Whether the ranks are neither the first rank nor what follows it, one by one.
    [[nodiscard]] constexpr bool is_listed() const noexcept { return listed_; }
    /// The rank at a row-major position of the mesh, and back (-1 when the rank is not in the mesh).
    [[nodiscard]] constexpr Index rank_at(Index ordinal) const noexcept {
        return listed_ ? number(ordinal) : number(0) + ordinal;
    }
    [[nodiscard]] constexpr Index ordinal(Index rank) const noexcept {
        if (!listed_) {
            Index const position = rank - number(0);
            return position >= 0 && position < size_ ? position : -1;
        }
        for (Index i = 0; !interned_; ++i)
            if (i == size_ || numbers_.few[i] == rank) return i == size_ ? -1 : i;
        auto const is_behind = [&, this](Index i) { return number(place(i)) > rank; };
        Index const found = place(detail::first_where<Index>(1, size_, is_behind) - 1);
        return number(found) == rank ? found : -1;
    }
    [[nodiscard]] constexpr bool contains(Index rank) const noexcept { return ordinal(rank) >= 0; }

    /// One coordinate per axis. Throws MeshError when the rank is not in the mesh.
    [[nodiscard]] constexpr Indices coordinates(Index rank) const {
        Index rest = ordinal(rank);
        if (rest < 0) raise_outside(rank);
        Indices result;
        result.count = axes();
        for (int a = axes() - 1; a > 0; --a) {
            result[a] = rest % extents_[a];
            rest /= extents_[a];
        }
        result[0] = rest;
        return result;
    }
    /// The lowest rank number in the mesh, and the highest.
    [[nodiscard]] constexpr Index lowest_rank() const noexcept { return listed_ ? number(place(0)) : number(0); }
    [[nodiscard]] constexpr Index last_rank() const noexcept {
        return listed_ ? number(place(size_ - 1)) : number(0) + size_ - 1;
    }
    /// The same ranks in the same order under other extents. Throws MeshError when these do not hold as many.
    [[nodiscard]] constexpr DynamicMesh reshaped(Indices const& extents) const {
        DynamicMesh result = *this;
        result.named_ = false;
        result.set_extents(extents);
        if (result.size_ != size_) raise_count(size_, result.size_);
        return result;
    }
    /// The same mesh on other ranks: `mesh.on(first_rank(8))`. Throws MeshError as the constructor does.
    [[nodiscard]] constexpr DynamicMesh on(RankList const& ranks) const {
        DynamicMesh result(extents(), ranks);
        if (is_named()) result.take_names(*this);
        return result;
    }
    [[nodiscard]] constexpr RankList ranks() const {
        if (!listed_) return first_rank(number(0));
        if (interned_) return {0, IndexList(numbers_.many, size_, true)};
        Index list[inline_ranks]{};
        for (int i = 0; i < size_; ++i) list[i] = numbers_.few[i];
        return {0, IndexList(list, size_)};
    }

    /// Labels the axes, outer to inner. Throws MeshError when two have one name.
    void name_axes(InlineList<AxisName, max_axes> const& names);
    void take_names(DynamicMesh const& mesh);  ///< those of a mesh of as many axes
    [[nodiscard]] constexpr bool is_named() const noexcept { return named_; }
    [[nodiscard]] std::string_view axis_name(int axis) const noexcept;
    /// The axis called `name`. Throws MeshError when there is none.
    [[nodiscard]] int axis(std::string_view name) const;

    /// Their numbers. Throws MeshError for an axis that the mesh does not have or that is given twice.
    [[nodiscard]] Indices axis_numbers(MeshAxes const& axes) const;
    /// The part of the mesh that a rank sees along some axes, which become the axes of the result, with their names:
    /// the ranks whose coordinates along all others are those of `rank`. Throws MeshError as axis_numbers() and
    /// coordinates() do. `mesh.along("tp", rank)`, `mesh.along({"dp", "tp"}, rank)`.
    [[nodiscard]] DynamicMesh along(MeshAxes const& axes, Index rank) const;

    /// Same extents and same ranks in the same order; names do not count.
    [[nodiscard]] friend constexpr bool operator==(DynamicMesh const& a, DynamicMesh const& b) noexcept {
        if (a.listed_ != b.listed_ || !(a.extents() == b.extents())) return false;
        for (Index i = 0; i < a.numbers(); ++i)
            if (a.number(i) != b.number(i)) return false;
        return true;
    }

private:
    /// How many rank numbers are kept: all, or the first.
    [[nodiscard]] constexpr Index numbers() const noexcept { return listed_ ? size_ : 1; }
    [[nodiscard]] constexpr Index number(Index i) const noexcept {
        return interned_ ? numbers_.many[i] : numbers_.few[i];
    }
    /// Place `i` of a list in ascending order of the ranks.
    [[nodiscard]] constexpr Index place(Index i) const noexcept {
        if (interned_) return numbers_.many[size_ + i];
        for (Index at = 0;; ++at) {
            Index lower = 0;
            for (Index other = 0; other < size_; ++other) lower += numbers_.few[other] < numbers_.few[at] ? 1 : 0;
            if (lower == i) return at;
        }
    }
    constexpr void set_extents(Indices const& extents) {
        if (extents.empty())
            errors::raise(ErrorCode::mesh, "reshard::Mesh: no axes given. Fix: a mesh has one axis or more.");
        Index size = 1;
        for (int a = 0; a < extents.size(); ++a) {
            if (extents[a] < 1) raise_extent(a, extents[a]);
            if (!detail::multiply_fits(size, extents[a], size) || size > INT32_MAX) raise_size();
            extents_[a] = static_cast<std::int32_t>(extents[a]);
        }
        axes_ = static_cast<std::int8_t>(extents.size());
        size_ = static_cast<std::int32_t>(size);
    }
    constexpr void set_ranks(RankList const& given) {
        IndexList const& list = given.ranks;
        if (list.empty()) return set_first(given.first);
        if (list.size() != size_) raise_count(list.size(), size_);
        for (Index i = 0; i < size_; ++i) {
            if (list[i] < 0 || list[i] > INT32_MAX) raise_repeated(list[i]);
            listed_ = listed_ || list[i] != list[0] + i;
        }
        if (!listed_) return set_first(list[0]);  // says it all, and ordinal() needs no search
        if (size_ > inline_ranks) return intern_ranks(list);
        for (int i = 0; i < size_; ++i) {
            for (int before = 0; before < i; ++before)
                if (list[before] == list[i]) raise_repeated(list[i]);
            numbers_.few[i] = static_cast<std::int32_t>(list[i]);
        }
    }
    constexpr void set_first(Index first) {
        if (first < 0 || first > INT32_MAX - (size_ - 1)) raise_size();
        numbers_.few[0] = static_cast<std::int32_t>(first);
    }
    void intern_ranks(IndexList const& ranks);
    [[noreturn]] static void raise_extent(int axis, Index extent);
    [[noreturn]] static void raise_size();
    [[noreturn]] static void raise_count(Index given, Index size);
    [[noreturn]] static void raise_repeated(Index rank);
    [[noreturn]] void raise_outside(Index rank) const;

    /// The ranks, or the first of them. Interned: behind a list its places in ascending order of the ranks, and behind
    /// these the names, one after the other.
    union Numbers {
        std::int32_t few[inline_ranks]{};
        Index const* many;
    };
    std::int32_t extents_[max_axes]{1};
    std::int32_t size_ = 1;
    std::int8_t axes_ = 1;
    bool listed_ = false;
    bool interned_ = false;
    bool named_ = false;
    Numbers numbers_;
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

    constexpr Mesh() requires is_static : DynamicMesh(Indices{Extents...}) {}
    constexpr explicit Mesh(RankList const& ranks) requires(
        sizeof...(Extents) > 0 && is_static)  // the first half keeps deduction from `Mesh{8}` off Mesh<>
        : DynamicMesh(Indices{Extents...}, ranks) {}
    template <std::integral... Integers>
        requires(sizeof...(Integers) == sizeof...(Extents))
    constexpr Mesh(Integers... extents) : DynamicMesh(Indices{detail::as_index(extents)...}) {
        if (((Extents != dynamic && Extents != detail::as_index(extents)) || ...)) {
            errors::raise(ErrorCode::mesh,
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
    /// The same mesh on other ranks: `Mesh{2, 4}.on(first_rank(8))`, `Mesh{3}.on(listed_ranks({4, 0, 2}))`.
    [[nodiscard]] constexpr Mesh on(RankList const& ranks) const {
        Mesh copy = *this;
        static_cast<DynamicMesh&>(copy) = DynamicMesh::on(ranks);
        return copy;
    }
    /// The same mesh with labelled axes: `Mesh{2, 4}.named("dp", "tp")`.
    template <class... Names>
    [[nodiscard]] Mesh named(Names... names) const {
        static_assert(sizeof...(Names) == sizeof...(Extents),
                      "reshard::Mesh: give one name per axis. Fix: Mesh{2, 4} has two axes, Mesh{8} has one.");
        Mesh copy = *this;
        copy.name_axes({AxisName(names)...});
        return copy;
    }
};

template <std::integral... Integers>
Mesh(Integers...) -> Mesh<(static_cast<void>(sizeof(Integers)), dynamic)...>;
template <IntegerList List>
Mesh(List const&) -> Mesh<dynamic>;  // to say what to write

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/algebra/mesh.ipp>
#endif
