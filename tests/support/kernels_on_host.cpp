// SPDX-License-Identifier: Apache-2.0
// What the host code that nvcc makes asks of the CUDA runtime, as part of the test double: see kernels_on_host.hpp.
#include "support/kernels_on_host.hpp"

#include "support/fake_cuda_runtime.hpp"

#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace reshard::test;

struct Kernel {
    kernels::Prepare prepare;
    int launches = 0;
};
struct Registry {
    std::mutex mutex;
    std::unordered_map<std::string, Kernel> kernels;     // by name: each file has a stub of its own for one kernel
    std::unordered_map<void const*, std::string> names;  // of all that were compiled
    std::vector<std::string> unknown;
    int launches = 0;

    [[nodiscard]] std::string name_of(void const* kernel) const {
        auto const name = names.find(kernel);
        return name == names.end() ? "a kernel without a name" : name->second;
    }
};
/// Compiled files register their kernels before main() begins.
Registry& registry() {
    static Registry all;
    return all;
}

thread_local Launch configuration;
thread_local cudaError_t failing = cudaSuccess;
thread_local int failing_after = 0;

cudaError_t launch(void const* kernel, Launch const& as, void** arguments) {
    if (failing != cudaSuccess && failing_after-- == 0) return std::exchange(failing, cudaSuccess);
    std::function<void()> task;
    {
        Registry& all = registry();
        std::lock_guard const lock(all.mutex);
        auto const it = all.kernels.find(all.name_of(kernel));
        if (it == all.kernels.end()) {
            all.unknown.push_back(all.name_of(kernel));
            return cudaErrorInvalidDeviceFunction;
        }
        ++all.launches;
        ++it->second.launches;
        task = it->second.prepare(as, arguments);
    }
    // As the device: no launch without blocks, none larger than it can be.
    if (as.blocks() == 0 || as.threads() == 0 || as.threads() > 1024) return cudaErrorInvalidConfiguration;
    fake_nccl::enqueue(as.stream, std::move(task));
    return cudaSuccess;
}

}  // namespace

namespace reshard::test {

void kernels::add(void const* kernel, Prepare prepare) {
    std::lock_guard const lock(registry().mutex);
    registry().kernels[registry().name_of(kernel)].prepare = std::move(prepare);
}
int kernels::launches(void const* kernel) {
    std::lock_guard const lock(registry().mutex);
    auto const it = registry().kernels.find(registry().name_of(kernel));
    return it == registry().kernels.end() ? 0 : it->second.launches;
}
int launches() {
    std::lock_guard const lock(registry().mutex);
    return registry().launches;
}
std::vector<std::string> unknown_kernels() {
    std::lock_guard const lock(registry().mutex);
    return registry().unknown;
}
void fail_launch(cudaError_t code, int skipped) {
    failing = code;
    failing_after = skipped;
}

}  // namespace reshard::test

extern "C" {

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, char const* kernel, char*, char const* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    std::lock_guard const lock(registry().mutex);
    registry().names[kernel] = name;
}
void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int) {}
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
cudaError_t cudaLaunchKernel(void const* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
    cudaError_t const error = launch(kernel, {grid, block, shared, stream}, arguments);
    if (error != cudaSuccess) reshard::test::fake_runtime::set_last_error(error);
    return error;
}

// From CUDA 13 on, launches go this way: the handle of a kernel is its address.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, void const* address) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(address));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(reinterpret_cast<void const*>(kernel), grid, block, arguments, shared, stream);
}

}  // extern "C"
