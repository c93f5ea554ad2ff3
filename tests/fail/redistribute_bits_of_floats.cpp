// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: a Partial op is not defined for this element type: bit operations need integers
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
using T = int;
#else
using T = float;
#endif
constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
constexpr auto owed = distribution<Partial<Reduce::bxor>>(Mesh<4>{}, Shape<8>{});

void sample(TensorView<T const> source, TensorView<T> destination) {
    redistribute(plan(rows, owed), source, destination, 1);
}
