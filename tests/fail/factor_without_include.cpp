// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: casts and factors are an include of their own. Fix: #include <reshard/exec/casting.hpp>.
#include <reshard/exec/redistribute.hpp>
#ifndef RESHARD_FAIL
#include <reshard/exec/casting.hpp>
#endif

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});

void sample(TensorView<float const> source, TensorView<float> destination) {
    redistribute(plan(rows, rows), source, destination, 1, PrepareOptions{.factor = 0.5});
}
