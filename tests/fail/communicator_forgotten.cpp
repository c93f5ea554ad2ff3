// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: there is no communicator here. Fix: pass it behind the plan; where nothing crosses ranks,
#include <reshard/reshard.hpp>

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8>{});

void sample([[maybe_unused]] SelfCommunicator& comm, Tensor<float>& source, Tensor<float>& destination) {
#ifndef RESHARD_FAIL
    redistribute(plan(rows, whole), comm, source, destination);
#else
    redistribute(plan(rows, whole), source, destination);
#endif
}
