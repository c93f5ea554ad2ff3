// SPDX-License-Identifier: Apache-2.0
// expect-error: only sums, and copies on one mesh, become Partial<avg>: an average has no identity to fill with.
// expect-error: Fix: move to Replicate first; copies owe an average as they are.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

auto rows = distribution<Shard<0>>(Mesh{8}, Shape{64});

#ifndef RESHARD_FAIL
using To = decltype(distribution<Partial<>>(Mesh{8}, Shape{64}));
static_assert(is_local<decltype(rows), To>);
#else
using To = decltype(distribution<Partial<Reduce::avg>>(Mesh{8}, Shape{64}));
static_assert(is_local<decltype(rows), To>);
#endif
