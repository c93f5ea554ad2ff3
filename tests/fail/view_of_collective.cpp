// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Plan::view: this transition is not a view. Fix: use redistribute(plan, ...)
#include <reshard/plan/plan.hpp>

using namespace reshard;

float memory[8];
TensorView<float> const local{memory, Shape{8}};
constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8>{});
constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
#ifndef RESHARD_FAIL
auto const sample = plan(whole, rows).view(local, 1);
#else
auto const sample = plan(rows, whole).view(local, 1);
#endif
