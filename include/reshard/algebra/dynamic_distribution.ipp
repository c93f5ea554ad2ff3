// SPDX-License-Identifier: Apache-2.0
// How algebra/dynamic_distribution.hpp is done: many numbers, and what it throws.
#pragma once

#include <reshard/algebra/dynamic_distribution.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE void DynamicDistribution::intern_numbers(Placements const& placements, Index count) {
    std::vector<Index> list(detail::as_size(count));
    list_numbers(placements, list.data());
    numbers_.many = detail::intern(list.data(), count);
    interned_ = true;
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_count(int given, int axes) {
    errors::raise(ErrorCode::placement, "reshard::distribution: ", given, " placements for a mesh of ", axes,
                  " axes. Fix: give exactly ",
                  "one placement per mesh axis; Replicate for an axis that does not touch the tensor.");
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_fault(detail::SignatureFault fault) const {
    if (fault == detail::SignatureFault::dimension) {
        int dim = 0;
        for (PlacementForm const& placement : signature_.placements) {
            if (placement.is_shard() && (placement.dim() < 0 || placement.dim() >= shape_.rank())) {
                dim = placement.dim();
            }
        }
        errors::raise(ErrorCode::placement, "reshard::distribution: a tensor of shape ", to_string(shape_),
                      " has no dimension ", dim, " to shard. Fix: ", detail::dimensions_text(shape_.rank()), ".");
    }
    constexpr std::string_view words[] = {
        // SignatureFault::two_ops and what follows it
        "two different reductions in one tensor. "
        "Fix: use one Partial op on all partial axes, or reduce one of them first.",
        "the axis order names an axis twice, an axis the mesh does not have, or only some of the axes that cut a "
        "dimension. Fix: list all axes of that dimension, the first to cut first.",
        "a block-cyclic or strided cut is not the last of its dimension. "
        "Fix: let the other axes of that dimension cut first (AxisOrder).",
        "two block-cyclic or strided cuts of one dimension. "
        "Fix: make one such cut, the last of its dimension; the others are chunks or boundaries."};
    int const number = static_cast<int>(fault) - static_cast<int>(detail::SignatureFault::two_ops);
    errors::raise(ErrorCode::placement, "reshard::distribution: ", words[number]);
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_many(Index rank, int dim, Index segments) {
    errors::raise(ErrorCode::placement, "reshard::distribution: rank ", rank, " holds ", segments,
                  " pieces of dimension ", dim, ", not one box. Fix: ask boxes(rank).");
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_rank(int rank) const {
    errors::raise(ErrorCode::shape, "reshard::distribution: a box or index of ", rank,
                  " dimensions for a tensor of shape ", to_string(shape_),
                  ". Fix: give one interval or index per dimension.");
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_block(int axis, SplitRule const& rule) {
    if (rule.kind == SplitKind::strided) {
        errors::raise(ErrorCode::placement, "reshard::distribution: the strided rule of mesh axis ", axis, " makes ",
                      rule.block, " pieces. Fix: at least one; 1 is the chunk rule.");
    }
    errors::raise(ErrorCode::placement, "reshard::distribution: the block-cyclic rule of mesh axis ", axis,
                  " has blocks of ", rule.block, ". Fix: a block has at least one element.");
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_boundary_count(int axis, Index given, Index parts) {
    errors::raise(ErrorCode::placement, "reshard::distribution: ", given, " boundaries on mesh axis ", axis, " of ",
                  parts, " ranks. Fix: give ", parts + 1, " positions, 0 first, the extent last.");
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_uneven_parent(int axis) {
    errors::raise(ErrorCode::placement, "reshard::distribution: boundaries on mesh axis ", axis,
                  " cut pieces of different sizes. Fix: let that axis cut first, or cut ", "evenly before it.");
}

[[noreturn]] RESHARD_INLINE void DynamicDistribution::raise_boundaries(int axis, Index extent, IndexList const& at) {
    Index wrong = 0;  // the last one, where all others are right
    if (at[0] == 0) {
        for (wrong = 1; wrong < at.size() - 1 && at[wrong - 1] <= at[wrong];) ++wrong;
    }
    errors::raise(ErrorCode::placement, "reshard::distribution: the boundaries of mesh axis ", axis,
                  " do not ascend from 0 to ", extent, ": ", at[wrong], " stands at place ", wrong,
                  " of them. Fix: start at 0, never step back, end at the extent that is cut.");
}

}  // namespace reshard::inline v0_1
