// SPDX-License-Identifier: Apache-2.0
// The umbrella, and the router of a table, which is an argument of kernels: nvcc compiles both without a warning. So it
// does all other headers, header-only; they are for hosts, so its compiler for devices skips them. For g++ a file of
// C++.
#include <reshard/mch/routing.hpp>
#include <reshard/reshard.hpp>

#ifndef __CUDA_ARCH__
#include <nvcc_headers.hpp>
#if __has_include(<cuda_runtime_api.h>)
#include <reshard/comm/device_threads.hpp>
#include <reshard/comm/staged_on_host.hpp>
#endif
#if __has_include(<nccl.h>)
#include <reshard/comm/nccl.hpp>
#endif
#endif

/// nvcc.py finds that the lambda's captures lie in another order for g++ than for nvcc.
struct Broken {
    int sum = 0;
    void add(int x) { sum += x; }
    void run(int x) {
        [&] { add(x); }();
    }
};

#ifdef __CUDACC__
__global__ void route(reshard::Router router, reshard::Index const* ids, reshard::Index const* slots, int* parts,
                      int n) {
    int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n || ids[i] == reshard::empty_id(reshard::MchLayout::sorted)) return;
    parts[2 * i] = router.part_of_id(ids[i]);
    parts[2 * i + 1] = router.part_of_slot(slots[i]);
}
#endif

int main() {
    Broken().run(1);
    return 0;
}
