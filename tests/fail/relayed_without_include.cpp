// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Plan::relayed: relays are an include of their own. Fix: #include <reshard/plan/relay.hpp>.
#include <reshard/plan/plan.hpp>
#ifndef RESHARD_FAIL
#include <reshard/plan/relay.hpp>
#endif

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<4>{}, Shape<8>{});
auto const sample = plan(rows, whole).relayed(2);
