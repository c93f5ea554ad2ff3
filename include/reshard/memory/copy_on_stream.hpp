// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/copy_on_stream.hpp
/// \brief  Copies one strided box into another on a stream, by as few 2-D and 3-D copies of CUDA as will do.
/// \depends memory/cuda_call.hpp, core/transfer.hpp. No kernels: g++ will do.
#pragma once

#include <reshard/core/transfer.hpp>
#include <reshard/memory/cuda_call.hpp>

namespace reshard::inline v0 {

namespace detail {

struct StreamCopyDim {
    Index extent = 1;
    Index from = 0;
    Index to = 0;
};

/// A copy as CUDA knows it: planes of rows of `run` bytes. The dimensions that are left are walked by the host.
struct StreamCopyShape {
    InlineList<StreamCopyDim, max_rank + 1> loops;
    StreamCopyDim row;
    StreamCopyDim plane;
    Index run = 1;
    Index from_offset = 0;
    Index to_offset = 0;
    bool empty = false;
};

/// Pitches are positive, hold a row and fit into 31 bits (cudaDevAttrMaxPitch).
[[nodiscard]] constexpr bool can_be_row(StreamCopyDim const& dim, Index run) noexcept {
    constexpr Index most = 0x7fffffff;
    return dim.from >= run && dim.to >= run && dim.from <= most && dim.to <= most;
}
/// A plane lies a whole number of rows behind the one before, on both sides.
[[nodiscard]] constexpr bool can_be_plane(StreamCopyDim const& dim, StreamCopyDim const& row) noexcept {
    return dim.from > 0 && dim.to > 0 && dim.from % row.from == 0 && dim.to % row.to == 0 &&
           dim.from / row.from >= row.extent && dim.to / row.to >= row.extent;
}

[[nodiscard]] constexpr StreamCopyShape stream_copy_shape(StridedBox const& from, StridedBox const& to) noexcept {
    StreamCopyShape shape;
    shape.run = to.element_bytes;
    auto& loops = shape.loops;
    for (int d = 0; d < to.dims.size(); ++d) {
        StreamCopyDim dim{to.dims[d].extent, from.dims[d].stride, to.dims[d].stride};
        if (dim.extent == 0) shape.empty = true;
        if (dim.extent <= 1) continue;
        if (dim.from < 0 && dim.to < 0) {  // the other way round is forwards
            shape.from_offset += (dim.extent - 1) * dim.from;
            shape.to_offset += (dim.extent - 1) * dim.to;
            dim.from = -dim.from;
            dim.to = -dim.to;
        }
        if (!loops.empty() && loops.back().from == dim.from * dim.extent && loops.back().to == dim.to * dim.extent) {
            loops.back() = {loops.back().extent * dim.extent, dim.from, dim.to};
        } else {
            loops.push_back(dim);
        }
    }
    auto const take = [&](int at) {
        StreamCopyDim const taken = loops[at];
        for (int d = at; d + 1 < loops.size(); ++d) loops[d] = loops[d + 1];
        loops.pop_back();
        return taken;
    };
    for (int d = loops.size() - 1; d >= 0; --d) {  // what lies in a row on both sides, whichever dimension it is
        if (loops[d].from != shape.run || loops[d].to != shape.run) continue;
        shape.run *= take(d).extent;
        d = loops.size();
    }
    int best = -1;
    for (int d = 0; d < loops.size(); ++d) {
        if (can_be_row(loops[d], shape.run) && (best < 0 || loops[d].extent > loops[best].extent)) best = d;
    }
    if (best < 0) return shape;
    shape.row = take(best);
    best = -1;
    for (int d = 0; d < loops.size(); ++d) {
        if (can_be_plane(loops[d], shape.row) && (best < 0 || loops[d].extent > loops[best].extent)) best = d;
    }
    if (best >= 0) shape.plane = take(best);
    return shape;
}

inline void copy_planes_on_stream(StreamCopyShape const& shape, std::byte const* from, std::byte* to,
                                  cudaStream_t stream) {
    auto const size = [](Index value) { return static_cast<std::size_t>(value); };
    if (shape.plane.extent > 1) {
        cudaMemcpy3DParms copy{};
        copy.srcPtr = {const_cast<std::byte*>(from), size(shape.row.from), size(shape.run),
                       size(shape.plane.from / shape.row.from)};
        copy.dstPtr = {to, size(shape.row.to), size(shape.run), size(shape.plane.to / shape.row.to)};
        copy.extent = {size(shape.run), size(shape.row.extent), size(shape.plane.extent)};
        copy.kind = cudaMemcpyDefault;
        return cuda_check(cudaMemcpy3DAsync(&copy, stream), "cudaMemcpy3DAsync");
    }
    if (shape.row.extent > 1) {
        return cuda_check(cudaMemcpy2DAsync(to, size(shape.row.to), from, size(shape.row.from), size(shape.run),
                                            size(shape.row.extent), cudaMemcpyDefault, stream),
                          "cudaMemcpy2DAsync");
    }
    cuda_check(cudaMemcpyAsync(to, from, size(shape.run), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

}  // namespace detail

/// Element k of `from_box` becomes element k of `to_box`, in the order of the stream: between memory of the host and of
/// devices, as addresses say (cudaMemcpyDefault). Throws TransportError, with CUDA's words.
/// \pre The boxes have the same extents and element_bytes, and do not overlap.
inline void copy_on_stream(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box,
                           cudaStream_t stream) {
    detail::StreamCopyShape const shape = detail::stream_copy_shape(from_box, to_box);
    if (shape.empty) return;
    from += shape.from_offset;
    to += shape.to_offset;
    Index turns = 1;
    for (detail::StreamCopyDim const& loop : shape.loops) turns *= loop.extent;
    for (Index turn = 0; turn < turns; ++turn) {
        Index rest = turn;
        Index from_at = 0;
        Index to_at = 0;
        for (int d = shape.loops.size() - 1; d >= 0; --d) {
            Index const i = rest % shape.loops[d].extent;
            rest /= shape.loops[d].extent;
            from_at += i * shape.loops[d].from;
            to_at += i * shape.loops[d].to;
        }
        detail::copy_planes_on_stream(shape, from + from_at, to + to_at, stream);
    }
}

}  // namespace reshard::inline v0
