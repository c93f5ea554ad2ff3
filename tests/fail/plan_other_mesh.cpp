// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::plan: the two distributions have different meshes. Fix: use reshard::plan_across(from, to)
#include <reshard/plan/plan.hpp>

using namespace reshard;

auto const rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8, 4>{});
auto const wider = distribution<Shard<0>>(Mesh<8>{}, Shape<8, 4>{});
#ifndef RESHARD_FAIL
auto const sample = plan_across(rows, wider);
#else
auto const sample = plan(rows, wider);
#endif
