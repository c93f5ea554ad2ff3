// SPDX-License-Identifier: Apache-2.0
// expect-error: an average has no identity to fill with.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

auto rows = distribution<Shard<0>>(Mesh{8}, Shape{64});

#ifndef RESHARD_FAIL
static_assert(transition_kind<decltype(rows), decltype(distribution<Partial<>>(Mesh{8}, Shape{64}))> == Kind::copy);
#else
static_assert(transition_kind<decltype(rows), decltype(distribution<Partial<Reduce::avg>>(Mesh{8}, Shape{64}))> ==
              Kind::copy);
#endif
