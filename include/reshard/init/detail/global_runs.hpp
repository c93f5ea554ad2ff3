// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/detail/global_runs.hpp
/// \brief  A rank's local tensor as runs of elements that lie side by side in the whole tensor.
/// \depends algebra, exec/local_tensor. No allocation.
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

/// Calls body(GlobalRun) until every element of the rank's local tensor has been in one run. Trailing dimensions that
/// the rank holds whole, and that lie in memory without gaps, are part of the runs. \pre the mesh has the rank.
template <class Body>
void for_each_global_run(LocalTensor const& tensor, Index rank, Body&& body) {
    struct Dim {
        IndexSet set;
        Index pitch;   ///< between neighbours, in the whole tensor
        Index stride;  ///< and in local memory
        bool whole;
    };
    DynamicShape const& shape = whole_shape(tensor);
    Indices const coordinates = tensor.distribution.mesh().coordinates(rank);
    InlineList<Dim, max_dims>
        dims;         // inner to outer; dims[0] makes the runs, of pitch elements for each of its indices
    Index begin = 0;  // of the tensor's box, in the whole tensor
    Index step = 1;
    Index pitch = 1;
    for (int d = shape.rank() - 1; d >= 0; pitch *= shape.extent(d--)) {
        IndexSet const set = tensor.distribution.index_set(coordinates, d);
        if (set.size() == 0) return;
        if (!tensor.within.is_whole()) begin += tensor.within.begin[d] * pitch;
        if (shape.extent(d) == 1) continue;
        Dim const dim{set, pitch, tensor.view.stride(d), set.is_interval() && set.size() == shape.extent(d)};
        if (dims.empty()) step = dim.stride;
        if (dims.size() == 1 && dims[0].whole && (set.size() == 1 || dim.stride == pitch * step)) {
            dims[0] = dim;  // what was the run is now one of its steps
        } else {
            dims.push_back(dim);
        }
    }
    auto const walk = [&](auto const& self, int d, Index first, Index offset) -> void {
        Dim const& at = dims[d];
        Index local = 0;
        for (Index k = 0; k < at.set.segments(); ++k) {
            Interval const segment = at.set.segment(k);
            if (d == 0) {
                body(GlobalRun{first + segment.begin * at.pitch, segment.size() * at.pitch, offset + local * at.stride,
                               step});
                local += segment.size();
                continue;
            }
            for (Index i = segment.begin; i < segment.end; ++i, ++local) {
                self(self, d - 1, first + i * at.pitch, offset + local * at.stride);
            }
        }
    };
    dims.empty() ? body(GlobalRun{begin, 1, 0, 1}) : walk(walk, dims.size() - 1, begin, 0);
}

}  // namespace reshard::inline v0_1::detail
