// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Plan::view: this transition is not a view. Fix: use redistribute(plan, ...)
#include <reshard/plan/plan.hpp>

using namespace reshard;

float memory[8];
TensorView<float> const local{memory, Shape{8}};
constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8>{});
#ifndef RESHARD_FAIL
auto const sample = plan(whole, distribution<Partial<Reduce::max>>(Mesh<4>{}, Shape<8>{})).view(local, 1);
#else
auto const sample = plan(whole, distribution<Partial<>>(Mesh<4>{}, Shape<8>{})).view(local, 1);
#endif
