// SPDX-License-Identifier: Apache-2.0
// expect-error: a placement shards a dimension the tensor does not have.
// expect-error: Fix: dimensions count from 0, so the last of n is n - 1.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Shard<1>>(Mesh{8}, Shape{8, 8});
#else
auto d = distribution<Shard<2>>(Mesh{8}, Shape{8, 8});
#endif
