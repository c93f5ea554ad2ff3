// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::redistribute: the plan comes first, then the communicator. Fix: redistribute(plan(from, to),
// comm, source, destination)
#include <reshard/reshard.hpp>

using namespace reshard;

void sample(SelfCommunicator& comm, Tensor<float> const& source, Tensor<float>& destination) {
    auto const rows = distribution<Shard<0>>(Mesh{1}, Shape{4, 4});
    auto const columns = distribution<Shard<1>>(Mesh{1}, Shape{4, 4});
#ifndef RESHARD_FAIL
    redistribute(plan(rows, columns), comm, source, destination);
#else
    redistribute(rows, columns, comm, source, destination);
#endif
}
