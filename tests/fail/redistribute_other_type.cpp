// SPDX-License-Identifier: Apache-2.0
// expect-error: source and destination have different element types. .* pass reshard::Casting\{\} to cast
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
using Source = float;
#else
using Source = double;
#endif
constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
constexpr auto owed = distribution<Partial<>>(Mesh<4>{}, Shape<8>{});

void sample(TensorView<Source const> source, TensorView<float> destination) {
    redistribute(plan(rows, owed), source, destination, 1);
}
