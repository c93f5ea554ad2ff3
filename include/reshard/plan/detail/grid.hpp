// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/grid.hpp
/// \brief  A distribution laid out for planning: per dimension the cuts with their ordinal strides.
/// \depends algebra, core/function_ref.
///
/// A grid has the tensor's dimensions and up to two more, so that one planner serves every case: the addends of a
/// partial tensor are a dimension that partial axes cut one by one, and "one rank owns it" is a dimension of extent 1.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/core/function_ref.hpp>

#include <bit>   // countr_zero
#include <span>  // span

namespace reshard::inline v0_1::detail {

inline constexpr int max_grid_dims = max_dims + 2;

/// A box with the planner's extra dimensions behind the tensor's.
using GridBox = InlineList<Interval, max_grid_dims>;

struct GridCut {
    int axis = 0;
    Index parts = 0;
    Index stride = 0;  ///< mesh ordinals between neighbours
    RuleRef rule{};
    Index shift = 0;  ///< the coordinate that takes part 0; the others follow in turn
};

/// Who alone has or needs the data along some axes: the rank at these coordinates.
struct Owner {
    AxisList axes;
    InlineList<std::int32_t, max_axes> coordinates;

    [[nodiscard]] constexpr bool is_at(Indices const& place) const noexcept {
        for (int i = 0; i < axes.size(); ++i)
            if (place[axes[i]] != coordinates[i]) return false;
        return true;
    }
    friend constexpr bool operator==(Owner const&, Owner const&) = default;
};

struct GridDim {
    Index extent = 0;
    int first = 0;  ///< of its cuts in Grid::all_cuts
    int last = 0;
};

/// \pre the distribution outlives the grid: cuts point at the numbers of its rules.
struct Grid {
    DynamicMesh const* mesh = nullptr;
    InlineList<GridDim, max_grid_dims> dims;
    InlineList<GridCut, max_axes> all_cuts;  ///< an axis cuts one dimension at most
    unsigned cutting = 0;                    ///< bit a is set when axis a cuts some dimension
    int rank = 0;                            ///< dimensions of the tensor itself

    explicit Grid(DynamicDistribution const& distribution)
        : mesh(&distribution.mesh()), rank(distribution.shape().rank()) {
        for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
            dims.push_back({distribution.shape().extent(dim), all_cuts.size(), all_cuts.size()});
            for (int axis : distribution.cuts(dim)) add_cut(axis, distribution.rule(axis));
        }
    }

    /// The cuts of a dimension, first cut first.
    using Cuts = std::span<GridCut const>;
    [[nodiscard]] Cuts cuts(int dim) const noexcept {
        return {all_cuts.begin() + dims[dim].first, all_cuts.begin() + dims[dim].last};
    }
    /// A bit for every axis that cuts a dimension.
    [[nodiscard]] unsigned axes_cutting(int dim) const noexcept {
        unsigned mask = 0;
        for (GridCut const& cut : cuts(dim)) mask |= 1U << cut.axis;
        return mask;
    }
    /// One more dimension, cut evenly by `axes` in the order given.
    void add_dim(Index extent, AxisList const& axes) {
        dims.push_back({extent, all_cuts.size(), all_cuts.size()});
        for (int axis : axes) add_cut(axis, {});
    }
    /// One more dimension of extent 1, which one coordinate along each of `axes` owns.
    void add_owner(Owner const& owner) {
        add_dim(1, owner.axes);
        for (int i = 0; i < owner.axes.size(); ++i) all_cuts[dims.back().first + i].shift = owner.coordinates[i];
    }

    /// Goes over to a finer mesh of the same ranks: every axis is one or two of the finer axes. \pre `finer` outlives
    /// the grid.
    void lay_on(DynamicMesh const& finer) {
        InlineList<int, max_axes> place;
        for (int axis = 0, next = 0; axis < mesh->axes(); ++axis) {
            place.push_back(next);
            next += mesh->extent(axis) == finer.extent(next) ? 1 : 2;
        }
        mesh = &finer;
        cutting = 0;
        for (GridCut& cut : all_cuts) {
            cut.axis = place[cut.axis];
            cutting |= axes_of(cut);
        }
    }

    /// Whether parts of a dimension lie in one another: its last cut says.
    [[nodiscard]] bool is_interleaved(int dim) const noexcept {
        return dims[dim].first != dims[dim].last && interleaves(all_cuts[dims[dim].last - 1].rule.kind);
    }

    /// What the rank at `ordinal` holds along a dimension, as DynamicDistribution::index_set does.
    [[nodiscard]] IndexSet index_set(Index ordinal, int dim) const noexcept {
        Interval span{0, dims[dim].extent};
        for (GridCut const& cut : cuts(dim)) {
            if (span.empty()) break;
            Index i = ordinal / cut.stride % cut.parts;
            if (cut.shift != 0) i = (i - cut.shift + cut.parts) % cut.parts;
            if (interleaves(cut.rule.kind)) return IndexSet(span, cut.rule, cut.parts, i);
            Interval const own = part(cut.rule, span.size(), cut.parts, i);
            span = own.empty() ? Interval{dims[dim].extent, dims[dim].extent}
                               : Interval{span.begin + own.begin, span.begin + own.end};
        }
        return IndexSet(span);
    }

    /// Calls `visit(index_set, ordinal)` for every part of dimension `dim` that meets `query`, and perhaps for some
    /// that do not where one interleaves; `ordinal` sums coordinate * stride over the dimension's axes.
    void for_each_part(int dim, IndexSet const& query, FunctionRef<void(IndexSet const&, Index)> visit) const {
        descend(cuts(dim), {0, dims[dim].extent}, query, 0, visit);
    }

    /// The axes of the mesh by which a cut cuts: two where the mesh is finer than the cut (lay_on).
    [[nodiscard]] unsigned axes_of(GridCut const& cut) const noexcept {
        return (cut.parts > mesh->extent(cut.axis) ? 3U : 1U) << cut.axis;
    }
    /// Part of the ordinal that the cutting axes contribute.
    [[nodiscard]] Index cutting_ordinal(Index ordinal) const noexcept {
        Index result = 0;
        for (GridCut const& cut : all_cuts) result += ordinal / cut.stride % cut.parts * cut.stride;
        return result;
    }

private:
    void add_cut(int axis, RuleRef rule) {
        all_cuts.push_back({axis, mesh->extent(axis), mesh->stride(axis), rule});
        dims.back().last = all_cuts.size();
        cutting |= 1U << axis;
    }

    static void descend(Cuts cuts, Interval span, IndexSet const& query, Index ordinal,
                        FunctionRef<void(IndexSet const&, Index)> visit) {
        Interval met = met_from(span.begin, span, query);
        if (met.empty()) return;
        if (cuts.empty()) {
            visit(IndexSet(span), ordinal);
            return;
        }
        GridCut const& cut = cuts.front();
        Index const extent = span.size();
        if (interleaves(cut.rule.kind)) {  // always the last cut of its dimension
            Index const end = smaller(span.end, query.span().end) - span.begin;
            bool const some = within_a_round(cut, extent, {met.begin - span.begin, end});
            for (Index next = 0; !met.empty();) {
                Index const i = some ? part_of(cut.rule, extent, cut.parts, met.begin - span.begin) : next++;
                if (i == cut.parts) return;
                IndexSet const own(span, cut.rule, cut.parts, i);
                visit(own, ordinal + i * cut.stride);
                if (some) met = met_from(own.segment_from(met.begin).end, span, query);
            }
            return;
        }
        while (!met.empty()) {
            Index const i = part_of(cut.rule, extent, cut.parts, met.begin - span.begin);
            Interval const piece = part(cut.rule, extent, cut.parts, i);
            Interval const child{span.begin + piece.begin, span.begin + piece.end};
            descend(cuts.subspan(1), child, query,
                    ordinal + (cut.shift == 0 ? i : (i + cut.shift) % cut.parts) * cut.stride, visit);
            met = met_from(child.end, span, query);
        }
    }
    /// Whether no part of an extent has two of its intervals there.
    [[nodiscard]] static bool within_a_round(GridCut const& cut, Index extent, Interval there) noexcept {
        Index const block = cut.rule.block();
        if (cut.rule.kind == SplitKind::cyclic) return (there.end - 1) / block - there.begin / block < cut.parts;
        Index const piece = larger<Index>(ceil_div(extent, block), 1);
        return (there.end - 1) / piece == there.begin / piece;
    }
    /// What `query` has of `span` from `position` on, up to the end of its segment.
    [[nodiscard]] static Interval met_from(Index position, Interval span, IndexSet const& query) noexcept {
        if (position >= span.end) return {};
        return intersect({position, span.end}, query.segment_from(position));
    }
};

/// Splits the axes of a mesh by a mask and numbers their coordinates row-major.
class AxisSubset {
public:
    [[gnu::noinline]] AxisSubset(DynamicMesh const& mesh, unsigned mask) {
        for (mask &= (1U << mesh.axes()) - 1; mask != 0; mask &= mask - 1) {
            int const axis = std::countr_zero(mask);
            extents_.push_back(mesh.extent(axis));
            strides_.push_back(mesh.stride(axis));
            size_ *= mesh.extent(axis);
        }
    }
    [[nodiscard]] Index size() const noexcept { return size_; }
    /// Position of an ordinal's coordinates among the subset's.
    [[nodiscard]] Index index(Index ordinal) const noexcept {
        Index result = 0;
        for (int i = 0; i < extents_.size(); ++i) result = result * extents_[i] + ordinal / strides_[i] % extents_[i];
        return result;
    }
    /// The contribution of position `index` to an ordinal; index(ordinal(i)) == i.
    [[nodiscard]] Index ordinal(Index index) const noexcept {
        Index result = 0;
        for (int i = extents_.size() - 1; i >= 0; --i) {
            result += index % extents_[i] * strides_[i];
            index /= extents_[i];
        }
        return result;
    }

private:
    Indices extents_;
    Indices strides_;
    Index size_ = 1;
};

}  // namespace reshard::inline v0_1::detail
