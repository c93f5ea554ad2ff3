// SPDX-License-Identifier: Apache-2.0
// What the host code that nvcc makes asks of the CUDA runtime, as part of the test double: a launch of
// copy_boxes_kernel<<<...>>> is a task of the double's stream that runs the body of the kernel for each of its threads.
// It is the only kernel here: comm/nccl.cuh launches no other.
#include "kernels_on_host.hpp"

#include "support/fake_nccl.hpp"

#include <reshard/memory/detail/box_kernels.hpp>

#include <algorithm>
#include <atomic>
#include <memory>

namespace {

using namespace reshard;
std::atomic<int> launched{0};

struct Launch {
    detail::CopyBox const* boxes;
    Index const* starts;
    int count;
    unsigned tiles;
};
void run_on_host(void* data) {
    std::unique_ptr<Launch> const launch(static_cast<Launch*>(data));
    for (Index tile = 0; tile != static_cast<Index>(launch->tiles); ++tile) {
        auto const box = std::upper_bound(launch->starts, launch->starts + launch->count, tile) - launch->starts - 1;
        for (int thread = 0; thread != detail::box_threads; ++thread)
            detail::copy_thread(launch->boxes[box], tile - launch->starts[box], thread);
    }
}

struct Configuration {
    dim3 grid;
    dim3 block;
    std::size_t shared = 0;
    cudaStream_t stream = nullptr;
};
thread_local Configuration configuration;

}  // namespace

int reshard::test::launches() { return launched; }

extern "C" {

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, char const*, char*, char const*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
char __cudaInitModule(void**) { return 1; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
    configuration = {grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *static_cast<cudaStream_t*>(stream) = configuration.stream;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaLaunchKernel(void const*, dim3 grid, dim3, void** arguments, std::size_t, cudaStream_t stream) {
    ++launched;
    return cudaLaunchHostFunc(
        stream, run_on_host,
        new Launch{*static_cast<detail::CopyBox const**>(arguments[0]), *static_cast<Index const**>(arguments[1]),
                   *static_cast<int*>(arguments[2]), grid.x});
}

// From CUDA 13 on, launches go this way.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, void const*) {
    *kernel = nullptr;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(nullptr, grid, block, arguments, shared, stream);
}

}  // extern "C"
