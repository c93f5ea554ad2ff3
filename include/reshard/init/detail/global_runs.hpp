// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/detail/global_runs.hpp
/// \brief  A rank's local tensor as runs of elements that lie side by side in the whole tensor.
/// \depends algebra, exec/local_tensor (Within). No allocation.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/exec/local_tensor.hpp>

namespace reshard::inline v0_1::detail {

/// `count` elements with row-major indices first, first + 1, ... of the whole tensor; in local memory the first lies
/// `offset` elements from the base, each `step` elements from the one before.
struct GlobalRun {
    Index first = 0;
    Index count = 0;
    Index offset = 0;
    Index step = 1;
};

/// The loops over a rank's local tensor. Trailing dimensions that the rank holds whole, and that lie in memory without
/// gaps, are part of the runs.
template <class Body>
class GlobalRuns {
public:
    GlobalRuns(DynamicDistribution const& distribution, Within const& within, Index rank, Indices const& strides,
               Body& body)
        : body_(body) {
        Indices const coordinates = distribution.mesh().coordinates(rank);
        DynamicShape const& shape = distribution.shape();
        Index pitch = 1;
        for (int dim = shape.rank() - 1; dim >= 0; --dim) {
            IndexSet const set = distribution.index_set(coordinates, dim);
            empty_ = empty_ || set.size() == 0;
            Index const extent = within.is_whole() ? shape.extent(dim) : within.shape.extent(dim);
            if (!within.is_whole()) begin_ += within.begin[dim] * pitch;
            if (!empty_ && extent != 1) add(set, extent, pitch, strides[dim]);
            pitch *= extent;
        }
    }
    void visit() const {
        if (empty_) return;
        if (dims_.empty()) return body_(GlobalRun{begin_, 1, 0, 1});
        walk(dims_.size() - 1, begin_, 0);
    }

private:
    struct Dim {
        IndexSet set;
        Index pitch;   ///< between neighbours, in the whole tensor
        Index stride;  ///< and in local memory
        bool whole;
    };

    /// Dimensions come inner to outer. dims_[0] makes the runs, of pitch elements for each of its indices.
    void add(IndexSet const& set, Index extent, Index pitch, Index stride) {
        Dim const dim{set, pitch, stride, set.is_interval() && set.size() == extent};
        if (dims_.size() == 1 && dims_[0].whole && (set.size() == 1 || stride == pitch * step_)) {
            dims_[0] = dim;  // what was the run is now one of its steps
            return;
        }
        if (dims_.empty()) step_ = stride;
        dims_.push_back(dim);
    }

    void walk(int dim, Index first, Index offset) const {
        Dim const& at = dims_[dim];
        Index local = 0;
        for (Index k = 0; k < at.set.segments(); ++k) {
            Interval const segment = at.set.segment(k);
            if (dim == 0) {
                body_(GlobalRun{first + segment.begin * at.pitch, segment.size() * at.pitch, offset + local * at.stride,
                                step_});
                local += segment.size();
                continue;
            }
            for (Index i = segment.begin; i < segment.end; ++i, ++local) {
                walk(dim - 1, first + i * at.pitch, offset + local * at.stride);
            }
        }
    }

    Body& body_;
    InlineList<Dim, max_dims> dims_;
    Index begin_ = 0;  ///< of the tensor's box, in the whole tensor
    Index step_ = 1;
    bool empty_ = false;
};

/// Calls body(GlobalRun) until every element of the rank's local tensor has been in one run. \pre the mesh has the
/// rank.
template <class Body>
void for_each_global_run(DynamicDistribution const& distribution, Index rank, Indices const& strides, Body&& body,
                         Within const& within = {}) {
    GlobalRuns<Body>(distribution, within, rank, strides, body).visit();
}

}  // namespace reshard::inline v0_1::detail
