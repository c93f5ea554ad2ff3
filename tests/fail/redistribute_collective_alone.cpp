// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::redistribute: this transition needs communication. Fix: pass a communicator.
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
#ifndef RESHARD_FAIL
constexpr auto move = plan(rows, distribution<Partial<>>(Mesh<4>{}, Shape<8>{}));
#else
constexpr auto move = plan(rows, distribution<Replicate>(Mesh<4>{}, Shape<8>{}));
#endif

void sample(TensorView<float const> source, TensorView<float> destination) {
    redistribute(move, source, destination, 1);
}
