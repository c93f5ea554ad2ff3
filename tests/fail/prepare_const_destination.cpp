// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: the destination is const. Fix: give it elements that can be written.
#include <reshard/comm/self.hpp>
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
using Destination = float;
#else
using Destination = float const;
#endif
constexpr auto rows = distribution<Shard<0>>(Mesh<1>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<1>{}, Shape<8>{});

void sample(SelfCommunicator& comm, TensorView<float const> source, TensorView<Destination> destination) {
    redistribute(plan_across(rows, whole), comm, source, destination);
}
