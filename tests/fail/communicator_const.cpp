// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: this communicator is const, and what it does changes it. Fix: pass it, and take it, without
// const.
#include <reshard/reshard.hpp>

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8>{});

#ifndef RESHARD_FAIL
void sample(SelfCommunicator& comm, Tensor<float>& source, Tensor<float>& destination) {
#else
void sample(SelfCommunicator const& comm, Tensor<float>& source, Tensor<float>& destination) {
#endif
    redistribute(plan(rows, whole), comm, source, destination);
}
