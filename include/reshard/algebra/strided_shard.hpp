// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/strided_shard.hpp
/// \brief  Distributions that PyTorch's DTensor writes with _StridedShard.
/// \depends notation; <vector>. Cost: where several axes cut a dimension, all its parts are compared.
///
/// _StridedShard(dim, split_factor=f) cuts what the axes before it left into f pieces as torch.chunk does, each piece
/// into one part per rank, and rank i has part i of every piece (torch 2.10 and later). Where f is a product of the
/// extents of later axes that is another order of axes, if parts come out as that cuts them. As the last cut of its
/// dimension it is a rule, block-cyclic where all parts are equal, else Strided.
#pragma once

#include <reshard/algebra/notation.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace detail {

using Runs = std::vector<Interval>;

/// Elements [begin, end) of a list of runs, counted along it, behind what `to` has.
inline void append_slice(Runs& to, Runs const& list, Index begin, Index end) {
    Index before = 0;
    for (Interval run : list) {
        Interval const part = intersect(run, {run.begin + (begin - before), run.begin + (end - before)});
        before += run.size();
        if (part.empty()) continue;
        if (!to.empty() && to.back().end == part.begin) {
            to.back().end = part.end;
        } else {
            to.push_back(part);
        }
    }
}

/// What _StridedShard leaves of a list to one rank; Shard, with a factor of 1.
[[nodiscard]] inline Runs strided_part(Runs const& list, Index factor, Index parts, Index i) {
    Index size = 0;
    for (Interval run : list) size += run.size();
    Runs result;
    for (Index j = 0; j < factor; ++j) {
        Interval const piece = part({}, size, factor, j);
        if (piece.empty()) break;
        Interval const cut = part({}, piece.size(), parts, i);
        append_slice(result, list, piece.begin + cut.begin, piece.begin + cut.end);
    }
    return result;
}

/// The cuts of one dimension by DTensor's axes, first cut first.
class StridedCuts {
public:
    StridedCuts(DynamicMesh const& mesh, DynamicShape const& shape, int dim, AxisList const& axes,
                Indices const& factors)
        : mesh_(mesh), shape_(shape), dim_(dim), axes_(axes), factors_(factors) {}

    /// Finds an order of the axes, or a rule for the last one, that makes the same parts.
    [[nodiscard]] bool find(Placements& placements, AxisList& order) const {
        AxisList const turned = decoded();
        if (turned.size() == axes_.size() && fits(turned)) {
            for (int axis : turned) order.push_back(static_cast<std::int8_t>(axis));
            return true;
        }
        for (int i = 0; i + 1 < axes_.size(); ++i)
            if (factors_[axes_[i]] > 1) return false;
        int const last = axes_.back();
        Index blocks = factors_[last];  // as many as there are, where all are equal
        bool even = true;
        for (int axis : axes_) even = even && multiply_fits(blocks, mesh_.extent(axis), blocks);
        Index const extent = shape_.extent(dim_);
        even = even && extent % blocks == 0;
        placements[last] = Placement::shard(dim_, even ? SplitRule{SplitKind::cyclic, extent / blocks, {}}
                                                       : SplitRule{SplitKind::strided, factors_[last], {}});
        return true;
    }

private:
    /// The order in which these axes cut, if they are one: the factor of an axis is the product of the extents of later
    /// axes that cut before it.
    [[nodiscard]] AxisList decoded() const {
        std::vector<std::int8_t> order;
        for (int i = axes_.size() - 1; i >= 0; --i) {
            Index product = 1;
            std::size_t place = 0;
            while (product < factors_[axes_[i]] && place < order.size()) product *= mesh_.extent(order[place++]);
            if (product != factors_[axes_[i]]) return {};
            order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), axes_[i]);
        }
        AxisList result;
        for (std::int8_t axis : order) result.push_back(axis);
        return result;
    }
    [[nodiscard]] bool fits(AxisList const& order) const {
        Placements chunks = replicated(mesh_, shape_).placements();
        for (int axis : axes_) chunks[axis] = Placement::shard(dim_);
        DynamicDistribution const ours(mesh_, shape_, chunks, order);
        Indices at = mesh_.coordinates(mesh_.rank_at(0));
        return fits_from(ours, at, 0, {Interval{0, shape_.extent(dim_)}});
    }
    [[nodiscard]] bool fits_from(DynamicDistribution const& ours, Indices& at, int next, Runs const& held) const {
        if (next == axes_.size()) {
            IndexSet const set = ours.index_set(at, dim_);
            bool same = set.segments() == as_index(held.size());
            for (std::size_t i = 0; same && i < held.size(); ++i) same = set.segment(as_index(i)) == held[i];
            return same;
        }
        int const axis = axes_[next];
        for (at[axis] = 0; at[axis] < mesh_.extent(axis); ++at[axis]) {
            Runs const part = strided_part(held, factors_[axis], mesh_.extent(axis), at[axis]);
            if (!fits_from(ours, at, next + 1, part)) return false;
        }
        return true;
    }

    DynamicMesh const& mesh_;
    DynamicShape const& shape_;
    int dim_;
    AxisList const& axes_;
    Indices const& factors_;
};

}  // namespace detail

/// The distribution in which every rank has what DTensor gives it for these placements, where axis a with a split
/// factor above 1 is _StridedShard(placements[a].dim(), split_factor=split_factors[a]):
///
///     from_strided_shard(mesh, shape, {Placement::shard(0), Placement::shard(0)}, {4, 1})   // (S0,S0)@1,0
///
///     from_strided_shard(Mesh{2}, Shape{9}, {Placement::shard(0)}, {2})                     // (S0:str2)
///
/// Throws PlacementError for factors that make no sense, and where another cut follows an uneven one.
[[nodiscard]] inline DynamicDistribution from_strided_shard(DynamicMesh const& mesh, DynamicShape const& shape,
                                                            Placements placements, Indices const& split_factors) {
    if (split_factors.size() != mesh.axes() || placements.size() != mesh.axes()) {
        errors::raise(ErrorCode::placement, "reshard::from_strided_shard: ", placements.size(), " placements and ",
                      split_factors.size(), " split factors for a mesh of ", mesh.axes(),
                      " axes. Fix: give one of each per mesh axis; 1 for Shard.");
    }
    AxisList cuts[max_dims];
    unsigned strided = 0;
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        Placement const& placement = placements[axis];
        bool const chunks = placement.is_shard() && placement.split() == SplitKind::chunk;
        if (split_factors[axis] < 1 || (split_factors[axis] > 1 && !chunks)) {
            errors::raise(ErrorCode::placement, "reshard::from_strided_shard: a split factor of ", split_factors[axis],
                          " for ", to_string(placement), " on mesh axis ", axis,
                          ". Fix: give 1, or more for a shard cut by chunks.");
        }
        if (split_factors[axis] > 1) strided |= 1U << axis;
        bool const exists = placement.is_shard() && placement.dim() >= 0 && placement.dim() < shape.rank();
        if (exists) cuts[placement.dim()].push_back(static_cast<std::int8_t>(axis));
    }
    AxisList order;
    for (int dim = 0; dim < shape.rank(); ++dim) {
        int first = -1;
        bool chunks = true;
        AxisList alone;  // axes of one rank, which cut nothing, and may come first
        AxisList axes;
        for (int axis : cuts[dim]) {
            (mesh.extent(axis) == 1 ? alone : axes).push_back(static_cast<std::int8_t>(axis));
            if (first < 0 && mesh.extent(axis) > 1 && ((strided >> axis) & 1U) != 0) first = axis;
            bool const is_whole = mesh.extent(axis) == 1 && placements[axis].split() == SplitKind::balanced;
            chunks = chunks && (is_whole || placements[axis].split() == SplitKind::chunk);
        }
        if (first < 0 || shape.extent(dim) == 0) continue;
        AxisList turned;
        if (chunks && detail::StridedCuts(mesh, shape, dim, axes, split_factors).find(placements, turned)) {
            for (std::int8_t axis : alone) order.push_back(axis);
            for (std::int8_t axis : turned.empty() && !alone.empty() ? axes : turned) order.push_back(axis);
            continue;
        }
        errors::raise(ErrorCode::placement, "reshard::from_strided_shard: _StridedShard(", dim,
                      ", split_factor=", split_factors[first], ") on mesh axis ", first, " of ", detail::brief(mesh),
                      " cuts the ", shape.extent(dim), " elements of dimension ", dim,
                      " into uneven parts, and another axis cuts these. Fix: redistribute it to Shard(", dim,
                      ") in PyTorch first.");
    }
    return DynamicDistribution(mesh, shape, placements, order);
}

}  // namespace reshard::inline v0_1
