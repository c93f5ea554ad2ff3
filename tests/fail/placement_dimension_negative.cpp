// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Shard: the dimension is negative. Fix: count dimensions from 0.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Shard<1>>(Mesh{8}, Shape{8, 8});
#else
auto d = distribution<Shard<-1>>(Mesh{8}, Shape{8, 8});
#endif
