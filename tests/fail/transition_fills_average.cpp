// SPDX-License-Identifier: Apache-2.0
// expect-error: whole or sharded data cannot become Partial<avg>: an average has no identity to fill with.
// expect-error: Fix: use Partial<> (sum) and scale, or keep the tensor as it is.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

auto whole = distribution<Replicate>(Mesh{8}, Shape{64});

#ifndef RESHARD_FAIL
using To = decltype(distribution<Partial<>>(Mesh{8}, Shape{64}));
static_assert(is_local<decltype(whole), To>);
#else
using To = decltype(distribution<Partial<Reduce::avg>>(Mesh{8}, Shape{64}));
static_assert(is_local<decltype(whole), To>);
#endif
