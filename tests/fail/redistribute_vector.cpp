// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: source and destination are views. Fix: pass a Tensor, or TensorView<float>{pointer, shape}
#include <reshard/reshard.hpp>

#include <vector>

using namespace reshard;

int main() {
    auto const rows = distribution<Shard<0>>(Mesh{1}, Shape{4, 4});
    auto const columns = distribution<Shard<1>>(Mesh{1}, Shape{4, 4});
    SelfCommunicator comm;
    std::vector<float> from(16);
#ifndef RESHARD_FAIL
    static_cast<void>(redistribute(plan(rows, columns), comm, TensorView<float>(from.data(), rows.local_shape(0))));
#else
    redistribute(plan(rows, columns), comm, from);
#endif
}
