// SPDX-License-Identifier: Apache-2.0
// The umbrella, and the router of a table, which is an argument of kernels: nvcc compiles both without a warning. So it
// does the headers of checkpoints and tables, header-only; they are for hosts, so its compiler for devices skips them.
#include <reshard/mch/routing.hpp>
#include <reshard/reshard.hpp>

#ifndef __CUDA_ARCH__
#include <files_and_tables.hpp>
#endif

__global__ void route(reshard::Router router, reshard::Index const* ids, reshard::Index const* slots, int* parts,
                      int n) {
    int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n || ids[i] == reshard::empty_id(reshard::MchLayout::sorted)) return;
    parts[2 * i] = router.part_of_id(ids[i]);
    parts[2 * i + 1] = router.part_of_slot(slots[i]);
}

int main() { return 0; }
