// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/dynamic_distribution.hpp
/// \brief  A distribution as a value: mesh + shape + placements (+ axis order), and which box each rank holds.
/// \depends mesh, box, signature; <vector> for lists of ranks. constexpr; no communicator, no tensor memory.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/algebra/mesh.hpp>
#include <reshard/algebra/signature.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace detail {
/// What to say of a dimension that a tensor of so many has not.
[[nodiscard]] inline std::string dimensions_text(int dims) {
    return dims == 0 ? "dimensions count from 0, and a scalar has none"
                     : concat("dimensions count from 0 to ", dims - 1);
}
}  // namespace detail

/// A distribution as a value. Every question is answered in closed form from the rank number alone.
///
/// Throws PlacementError when there is not one placement per mesh axis, a dimension is out of range, two reductions
/// meet, boundaries do not ascend from 0 to the extent they cut, or a cut that interleaves is not the last of its
/// dimension.
///
/// Plans hold several, so it is kept small: 248 bytes. constexpr with up to `inline_numbers` numbers of rules, where a
/// block is one and the boundaries of n parts are n + 1; more of them are interned.
class DynamicDistribution {
public:
    static constexpr int inline_numbers = 9;  // the boundaries of 8 parts

    constexpr DynamicDistribution() { signature_.axes = 1; }
    constexpr DynamicDistribution(DynamicMesh const& mesh, DynamicShape const& shape, Placements const& placements,
                                  AxisList const& order = {})
        : mesh_(mesh), shape_(shape), signature_(placements) {
        if (placements.size() != mesh.axes()) raise_count(placements.size(), mesh.axes());
        detail::SignatureFault const fault = detail::arrange(signature_, shape.rank(), order);
        if (fault != detail::SignatureFault::none) raise_fault(fault);
        for (int dim = 0; dim < shape.rank(); ++dim) check_rules(placements, dim);
        Index const count = list_numbers(placements, nullptr);
        count > inline_numbers ? intern_numbers(placements, count) : void(list_numbers(placements, numbers_.few));
    }

    [[nodiscard]] constexpr DynamicMesh const& mesh() const& noexcept { return mesh_; }
    [[nodiscard]] constexpr DynamicShape const& shape() const& noexcept { return shape_; }
    [[nodiscard]] constexpr detail::Signature const& signature() const& noexcept { return signature_; }
    /// What an axis does, with the numbers of its rule.
    [[nodiscard]] constexpr Placement placement(int axis) const {
        PlacementForm const& form = signature_[axis];
        RuleRef const by = rule(axis);
        if (interleaves(by.kind)) return Placement::shard(form.dim(), {by.kind, by.block(), {}});
        if (by.kind != SplitKind::boundaries) return Placement(form);
        return Placement::shard(form.dim(), {by.kind, 0, IndexList(by.numbers, numbers_of(axis), interned_)});
    }
    /// With order() they are all there is to a distribution beside mesh and shape.
    [[nodiscard]] constexpr Placements placements() const {
        Placements result;
        for (int axis = 0; axis < mesh_.axes(); ++axis) result.push_back(placement(axis));
        return result;
    }
    /// The order in which axes cut, as the constructor takes it.
    [[nodiscard]] constexpr AxisList order() const noexcept { return signature_.order(); }
    /// How an axis cuts; the numbers lie in the distribution. \pre it cuts.
    [[nodiscard]] constexpr RuleRef rule(int axis) const& noexcept {
        Index const* numbers = interned_ ? numbers_.many : numbers_.few;
        for (int before = 0; before < axis; ++before) numbers += numbers_of(before);
        return {signature_[axis].split(), numbers};
    }
    RuleRef rule(int axis) && = delete;
    /// The axes that cut a dimension, first cut first.
    [[nodiscard]] constexpr AxisList cuts(int dim) const noexcept { return signature_.cuts(dim); }
    // Of a temporary, by value: references would outlive it.
    [[nodiscard]] constexpr DynamicMesh mesh() && noexcept { return mesh_; }
    [[nodiscard]] constexpr DynamicShape shape() && noexcept { return shape_; }
    [[nodiscard]] constexpr detail::Signature signature() && noexcept { return signature_; }
    [[nodiscard]] constexpr bool contains(Index rank) const noexcept { return mesh_.contains(rank); }

    /// What the rank at these mesh coordinates holds along one dimension. An empty part lies at the extent's end, or
    /// where the cut interleaves at the end of what it cuts.
    [[nodiscard]] constexpr IndexSet index_set(Indices const& coordinates, int dim) const noexcept {
        int last = -1;
        Interval const span = interval(coordinates, dim, last);
        if (last < 0) return IndexSet(span);
        return IndexSet(span, rule(last), mesh_.extent(last), coordinates[last]);
    }
    /// The same as one interval, where no cut interleaves. Otherwise what the one that does cuts, its axis in `last`.
    [[nodiscard]] constexpr Interval interval(Indices const& coordinates, int dim, int& last) const noexcept {
        Index const extent = shape_.extent(dim);
        Interval span{0, extent};
        if (!signature_.cuts_dim(dim)) return span;
        for (int i = 0; i < signature_.shards && !span.empty(); ++i) {
            int const axis = signature_.cutting[i];
            PlacementForm const form = signature_[axis];
            if (form.dim() != dim) continue;
            if (interleaves(form.split())) [[unlikely]] {
                last = axis;
                break;
            }
            RuleRef const by = form.split() == SplitKind::boundaries ? rule(axis) : RuleRef(form.split(), nullptr);
            Interval const cut = detail::part(by, span.size(), mesh_.extent(axis), coordinates[axis]);
            span = cut.empty() ? Interval{extent, extent} : Interval{span.begin + cut.begin, span.begin + cut.end};
        }
        return span;
    }

    /// The box a rank holds. Throws MeshError when the rank is not in the mesh, and PlacementError when it holds
    /// several boxes (block-cyclic, strided): ask boxes(rank) then.
    [[nodiscard]] constexpr Box box(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Box result;
        for (int dim = 0; dim < shape_.rank(); ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            if (set.segments() > 1) raise_many(rank, dim, set.segments());
            result.push_back(set.segments() == 1 ? set.segment(0) : Interval{shape_.extent(dim), shape_.extent(dim)});
        }
        return result;
    }

    /// All boxes a rank holds, in the row-major order of its local memory; none when it holds nothing.
    /// (A template, like holders(), so that only its users compile it.)
    template <class Boxes = std::vector<Box>>
    [[nodiscard]] constexpr Boxes boxes(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Index count = 1;
        for (int dim = 0; dim < shape_.rank(); ++dim) count *= index_set(coordinates, dim).segments();
        Boxes result(detail::as_size(count));
        Index repeats = count;  // boxes in a row that share their interval of this dimension
        for (int dim = 0; dim < shape_.rank() && count != 0; ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            repeats /= set.segments();
            for (Index i = 0; i < count; ++i) {
                result[detail::as_size(i)].push_back(set.segment(i / repeats % set.segments()));
            }
        }
        return result;
    }

    /// Extents of the rank's local tensor. Throws MeshError when the rank is not in the mesh.
    [[nodiscard]] constexpr DynamicShape local_shape(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Indices extents;
        for (int dim = 0; dim < shape_.rank(); ++dim) extents.push_back(index_set(coordinates, dim).size());
        return DynamicShape(extents);
    }

    /// Global index of the local tensor's first element; along an empty dimension the whole tensor's extent, so
    /// that it is never the offset of somebody else's shard (pytorch/pytorch#150862).
    [[nodiscard]] constexpr Indices offset(Index rank) const {
        Indices const coordinates = mesh_.coordinates(rank);
        Indices result;
        for (int dim = 0; dim < shape_.rank(); ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            result.push_back(set.segments() == 0 ? shape_.extent(dim) : set.segment(0).begin);
        }
        return result;
    }

    /// Whether a rank of the mesh holds every element of a box (an addend of it, where axes are Partial).
    [[nodiscard]] constexpr bool holds(Index rank, Box const& box) const {
        Indices const coordinates = mesh_.coordinates(rank);
        if (box.rank() != shape_.rank()) raise_rank(box.rank());
        if (box.empty()) return true;
        for (int dim = 0; dim < shape_.rank(); ++dim) {
            IndexSet const set = index_set(coordinates, dim);
            Index const held = set.local_index(box.end(dim)) - set.local_index(box.begin(dim));
            if (held != box.extent(dim)) return false;
        }
        return true;
    }

    /// The ranks that hold every element of a box, ascending by position in the mesh. Cost: the ranks of the mesh.
    template <class Ranks = std::vector<Index>>
    [[nodiscard]] constexpr Ranks holders(Box const& box) const {
        if (box.rank() != shape_.rank()) raise_rank(box.rank());
        Ranks result;
        for (Index ordinal = 0; ordinal < mesh_.size(); ++ordinal) {
            if (holds(mesh_.rank_at(ordinal), box)) result.push_back(mesh_.rank_at(ordinal));
        }
        return result;
    }
    /// The ranks that hold one element.
    template <class Ranks = std::vector<Index>>
    [[nodiscard]] constexpr Ranks holders(Indices const& index) const {
        Box box;
        for (Index i : index) box.push_back({i, i + 1});
        return holders<Ranks>(box);
    }

    /// Same mesh, shape, placements, rules and cutting order. Numeric coincidences (chunk and balanced cuts of a
    /// divisible extent) are not equality.
    [[nodiscard]] friend constexpr bool operator==(DynamicDistribution const& a,
                                                   DynamicDistribution const& b) noexcept {
        return a.mesh_ == b.mesh_ && a.shape_ == b.shape_ && a.signature_ == b.signature_ &&
               a.placements() == b.placements();
    }

private:
    /// How many numbers the rule of an axis has; those of all axes lie one after the other.
    [[nodiscard]] constexpr Index numbers_of(int axis) const noexcept {
        SplitKind const kind = signature_[axis].split();
        return interleaves(kind) ? 1 : kind == SplitKind::boundaries ? mesh_.extent(axis) + 1 : 0;
    }
    constexpr Index list_numbers(Placements const& placements, Index* list) const {
        Index count = 0;
        for (int axis = 0; axis < mesh_.axes(); ++axis)
            for (Index i = 0; i < numbers_of(axis); ++i, ++count)
                if (list != nullptr) list[count] = RuleRef(placements[axis].rule()).numbers[i];
        return count;
    }
    void intern_numbers(Placements const& placements, Index count);
    constexpr void check_rules(Placements const& placements, int dim) const {
        Index extent = shape_.extent(dim);  // what the next axis cuts; -1 once the pieces differ in size
        for (int axis : cuts(dim)) {
            SplitRule const& rule = placements[axis].rule();
            Index const parts = mesh_.extent(axis);
            if (interleaves(rule.kind) && rule.block < 1) raise_block(axis, rule);
            if (rule.kind != SplitKind::boundaries) {
                extent = extent >= 0 && extent % parts == 0 ? extent / parts : -1;
                continue;
            }
            IndexList const& at = rule.boundaries;
            Index const whole = extent;
            if (at.size() != parts + 1) raise_boundary_count(axis, at.size(), parts);
            if (extent < 0) raise_uneven_parent(axis);
            bool ascends = at[0] == 0 && at[parts] == extent;
            for (Index i = 0; i < parts; ++i) {
                ascends = ascends && at[i] <= at[i + 1];
                if (ascends && at[i + 1] - at[i] != at[1]) extent = -1;
            }
            if (!ascends) raise_boundaries(axis, whole, at);
            if (extent >= 0) extent = at[1];
        }
    }

    [[noreturn]] static void raise_count(int given, int axes);
    [[noreturn, gnu::cold]] void raise_fault(detail::SignatureFault fault) const;
    [[noreturn]] static void raise_many(Index rank, int dim, Index segments);
    [[noreturn]] void raise_rank(int rank) const;
    [[noreturn]] static void raise_block(int axis, SplitRule const& rule);
    [[noreturn]] static void raise_boundary_count(int axis, Index given, Index parts);
    [[noreturn]] static void raise_uneven_parent(int axis);
    [[noreturn]] static void raise_boundaries(int axis, Index extent, IndexList const& at);

    DynamicMesh mesh_;
    DynamicShape shape_;
    detail::Signature signature_;
    bool interned_ = false;
    union Numbers {
        Index few[inline_numbers]{};
        Index const* many;
    } numbers_;
};

/// All of a tensor on every rank of a mesh.
[[nodiscard]] constexpr DynamicDistribution replicated(DynamicMesh const& mesh, DynamicShape const& shape) {
    Placements copies;
    for (int axis = 0; axis < mesh.axes(); ++axis) copies.push_back(Placement::replicate());
    return DynamicDistribution(mesh, shape, copies);
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/algebra/dynamic_distribution.ipp>
#endif
