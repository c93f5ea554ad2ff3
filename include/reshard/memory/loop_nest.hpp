// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/loop_nest.hpp
/// \brief  The fewest loops that visit two strided boxes element by element: what every host kernel starts from.
/// \depends core only. No allocation.
#pragma once

#include <reshard/core/transfer.hpp>

namespace reshard::inline v0_1::detail {

/// One loop of a nest: `extent` steps, `from` and `to` bytes apart.
struct LoopDim {
    Index extent = 0;
    Index from = 0;
    Index to = 0;
};

/// Loops outer to inner, none of extent 0 or 1; starts at the offsets (bytes) from the bases of the two boxes.
struct LoopNest {
    InlineList<LoopDim, max_dims + 1> dims;
    Index from_offset = 0;
    Index to_offset = 0;
    bool empty = false;  ///< an extent is zero: there is nothing to visit
};

[[nodiscard]] constexpr Index magnitude(Index value) noexcept { return value < 0 ? -value : value; }

/// The nest of two boxes with equal extents. The order of visits is free, so loops run forwards in the destination,
/// the smallest destination stride innermost, and loops that continue each other on both sides become one.
[[nodiscard]] constexpr LoopNest loop_nest(StridedBox const& from, StridedBox const& to) noexcept {
    LoopNest nest;
    InlineList<LoopDim, max_dims + 1> sorted;
    for (int d = 0; d < to.dims.size(); ++d) {
        LoopDim dim{to.dims[d].extent, from.dims[d].stride, to.dims[d].stride};
        if (dim.extent <= 0) nest.empty = true;
        if (dim.extent <= 1) continue;
        if (dim.to < 0) {
            nest.from_offset += dim.from * (dim.extent - 1);
            nest.to_offset += dim.to * (dim.extent - 1);
            dim.from = -dim.from;
            dim.to = -dim.to;
        }
        int place = sorted.size();
        sorted.push_back(dim);
        for (; place > 0 && sorted[place - 1].to < dim.to; --place) sorted[place] = sorted[place - 1];
        sorted[place] = dim;
    }
    if (nest.empty) return nest;
    for (LoopDim const& dim : sorted) {
        if (!nest.dims.empty() && nest.dims.back().from == dim.from * dim.extent &&
            nest.dims.back().to == dim.to * dim.extent) {
            nest.dims.back() = {nest.dims.back().extent * dim.extent, dim.from, dim.to};
        } else {
            nest.dims.push_back(dim);
        }
    }
    return nest;
}

/// Takes one loop out of the nest.
[[nodiscard]] constexpr LoopDim take_loop(LoopNest& nest, int at) noexcept {
    LoopDim const taken = nest.dims[at];
    for (int d = at; d + 1 < nest.dims.size(); ++d) nest.dims[d] = nest.dims[d + 1];
    nest.dims.pop_back();
    return taken;
}
/// The innermost one, or a loop of one step.
[[nodiscard]] constexpr LoopDim take_inner(LoopNest& nest) noexcept {
    return nest.dims.empty() ? LoopDim{1, 0, 0} : take_loop(nest, nest.dims.size() - 1);
}

/// Two loops that are taken together, in tiles.
struct LoopPair {
    LoopDim inner;
    LoopDim outer;
    /// Neighbours in the source are far apart in the destination: square tiles keep the lines of both sides in the
    /// caches until their other elements are asked for.
    bool transposes = false;
};
/// The innermost loop, and the one of the others along which neighbours of the source lie, if that is closer; else the
/// one around it.
[[nodiscard]] constexpr LoopPair take_pair(LoopNest& nest) noexcept {
    LoopPair pair{take_inner(nest), {1, 0, 0}};
    int const last = nest.dims.size() - 1;
    if (last < 0) return pair;
    int nearest = last;
    for (int d = 0; d < last; ++d)
        if (magnitude(nest.dims[d].from) < magnitude(nest.dims[nearest].from)) nearest = d;
    pair.transposes = magnitude(nest.dims[nearest].from) < magnitude(pair.inner.from);
    pair.outer = take_loop(nest, pair.transposes ? nearest : last);
    return pair;
}

/// Bytes that lie in a row on both sides: an element, or the innermost loop, which then is none any more.
[[nodiscard]] constexpr Index take_row(LoopNest& nest, Index element_bytes) noexcept {
    if (nest.dims.empty() || nest.dims.back().from != element_bytes || nest.dims.back().to != element_bytes) {
        return element_bytes;
    }
    return element_bytes * take_inner(nest).extent;
}

/// Calls body(from, to) at every point of the outermost `loops` loops; the inner ones are the body's business.
template <class From, class To, class Body>
constexpr void for_each_origin(LoopNest const& nest, int loops, From* from, To* to, Body&& body) {
    Index at[max_dims + 1] = {};
    for (;;) {
        body(from, to);
        int d = loops - 1;
        for (; d >= 0; --d) {
            LoopDim const& dim = nest.dims[d];
            if (++at[d] < dim.extent) {
                from += dim.from;
                to += dim.to;
                break;
            }
            at[d] = 0;
            from -= dim.from * (dim.extent - 1);
            to -= dim.to * (dim.extent - 1);
        }
        if (d < 0) return;
    }
}

}  // namespace reshard::inline v0_1::detail
