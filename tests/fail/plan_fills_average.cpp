// SPDX-License-Identifier: Apache-2.0
// expect-error: become Partial<avg>: an average has no identity to fill with. Fix: move to Replicate first
#include <reshard/plan/plan.hpp>

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});
#ifndef RESHARD_FAIL
constexpr auto sample = plan(rows, distribution<Partial<>>(Mesh<4>{}, Shape<8>{}));
#else
constexpr auto sample = plan(rows, distribution<Partial<Reduce::avg>>(Mesh<4>{}, Shape<8>{}));
#endif
