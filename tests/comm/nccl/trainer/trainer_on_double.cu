// SPDX-License-Identifier: Apache-2.0
// What examples/trainer --gpus is linked with where there is no GPU: its transport, over the doubles of NCCL and CUDA.
#include "../../../../examples/support/gpus.cu"

#include "support/box_kernels_on_host.cuh"

namespace {
[[maybe_unused]] bool const registered = (reshard::test::run_box_kernels_on_host(), true);
}
