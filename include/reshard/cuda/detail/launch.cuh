// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/launch.cuh
/// \brief  The launch of a kernel body that cuda/detail/block.hpp describes: one block a tile.
/// \depends core, cuda/detail/device_block.cuh, memory/cuda_call.hpp.
#pragma once

#include <reshard/cuda/detail/device_block.cuh>
#include <reshard/memory/cuda_call.hpp>

namespace reshard::inline v0_1::detail {

/// Arguments stay where launches put them: a copy of what is indexed at run time would be in local memory.
template <class State, class Shared, class Body>
__global__ void __launch_bounds__(block_threads, resident_blocks<Body>) tile_kernel(__grid_constant__ Body const body) {
    __shared__ Shared shared;
    __shared__ typename DeviceBlock<State>::Shared scan;
    DeviceBlock<State> block(scan);
    body(block, shared, as_index(blockIdx.x));
}

/// body(block, shared, tile) for tiles [0, count). Throws ShapeError for more than a launch has, TransportError when
/// CUDA refuses it.
template <class State, class Shared, class Body>
void launch_tiles(char const* what, Index count, Body const& body, cudaStream_t stream) {
    if (count == 0) return;
    if (count > INT32_MAX) {
        raise(ErrorCode::shape, "reshard: ", count, " blocks of the kernel '", what,
              "' are more than a launch has. Fix: use more ranks.");
    }
    launch_kernel(what, tile_kernel<State, Shared, Body>, static_cast<unsigned>(count), block_threads, stream, body);
}

}  // namespace reshard::inline v0_1::detail
