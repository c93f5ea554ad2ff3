// SPDX-License-Identifier: Apache-2.0
// The router of a table is an argument of kernels: nvcc compiles it without a warning.
#include <reshard/mch/routing.hpp>

__global__ void route(reshard::Router router, reshard::Index const* ids, reshard::Index const* slots, int* parts,
                      int n) {
    int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n || ids[i] == reshard::empty_id(reshard::MchLayout::sorted)) return;
    parts[2 * i] = router.part_of_id(ids[i]);
    parts[2 * i + 1] = router.part_of_slot(slots[i]);
}

int main() { return 0; }
