// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/copy_on_stream.hpp
/// \brief  Copies one strided box into another on a stream, by as few 2-D and 3-D copies of CUDA as will do.
/// \depends memory/cuda_call.hpp, memory/loop_nest.hpp. No kernels: g++ will do.
#pragma once

#include <reshard/memory/cuda_call.hpp>
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0 {

namespace detail {

/// A copy as CUDA knows it: planes of rows of `run` bytes. The loops that are left are walked by the host.
struct StreamCopyShape {
    LoopNest rest;
    LoopDim row{1, 0, 0};
    LoopDim plane{1, 0, 0};
    Index run = 1;
};

/// Pitches are positive, hold a row and fit into 31 bits (cudaDevAttrMaxPitch).
[[nodiscard]] constexpr bool can_be_row(LoopDim const& dim, Index run) noexcept {
    constexpr Index most = 0x7fffffff;
    return dim.from >= run && dim.to >= run && dim.from <= most && dim.to <= most;
}
/// A plane lies a whole number of rows behind the one before, on both sides.
[[nodiscard]] constexpr bool can_be_plane(LoopDim const& dim, LoopDim const& row) noexcept {
    return dim.from > 0 && dim.to > 0 && dim.from % row.from == 0 && dim.to % row.to == 0 &&
           dim.from / row.from >= row.extent && dim.to / row.to >= row.extent;
}

[[nodiscard]] constexpr StreamCopyShape stream_copy_shape(StridedBox const& from, StridedBox const& to) noexcept {
    StreamCopyShape shape{loop_nest(from, to)};
    shape.run = take_row(shape.rest, to.element_bytes);
    auto const& loops = shape.rest.dims;
    int best = -1;
    for (int d = 0; d < loops.size(); ++d) {
        if (can_be_row(loops[d], shape.run) && (best < 0 || loops[d].extent > loops[best].extent)) best = d;
    }
    if (best < 0) return shape;
    shape.row = take_loop(shape.rest, best);
    best = -1;
    for (int d = 0; d < loops.size(); ++d) {
        if (can_be_plane(loops[d], shape.row) && (best < 0 || loops[d].extent > loops[best].extent)) best = d;
    }
    if (best >= 0) shape.plane = take_loop(shape.rest, best);
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
    if (shape.rest.empty) return;
    detail::for_each_origin(shape.rest, shape.rest.dims.size(), from + shape.rest.from_offset,
                            to + shape.rest.to_offset, [&](std::byte const* from_at, std::byte* to_at) {
                                detail::copy_planes_on_stream(shape, from_at, to_at, stream);
                            });
}

}  // namespace reshard::inline v0
