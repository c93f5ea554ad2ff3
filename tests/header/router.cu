// SPDX-License-Identifier: Apache-2.0
// The umbrella, and the router of a table, which is an argument of kernels: nvcc compiles both without a warning.
#include <reshard/mch/routing.hpp>
#include <reshard/reshard.hpp>

__global__ void route(reshard::Router router, reshard::Index const* ids, reshard::Index const* slots, int* parts,
                      int n) {
    int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n || ids[i] == reshard::empty_id(reshard::MchLayout::sorted)) return;
    parts[2 * i] = router.part_of_id(ids[i]);
    parts[2 * i + 1] = router.part_of_slot(slots[i]);
}

int main() { return 0; }
