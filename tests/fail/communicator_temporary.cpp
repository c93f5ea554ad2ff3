// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: this communicator is a temporary, and what is prepared or under way refers to it.
#include <reshard/reshard.hpp>

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8>{});

PreparedPlan sample(SelfCommunicator& all, TensorView<float> source, TensorView<float> destination) {
#ifndef RESHARD_FAIL
    auto& comm = all;
    return prepare(plan(rows, whole), comm, source, destination);
#else
    return prepare(plan(rows, whole), all.split(0, 0), source, destination);
#endif
}
