// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::plan: the two distributions have different shapes. Fix: a plan moves one tensor
#include <reshard/plan/plan.hpp>

using namespace reshard;

constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8, 4>{});
#ifndef RESHARD_FAIL
constexpr auto sample = plan(whole, distribution<Shard<0>>(Mesh<4>{}, Shape<8, 4>{}));
#else
constexpr auto sample = plan(whole, distribution<Shard<0>>(Mesh<4>{}, Shape<8, 5>{}));
#endif
