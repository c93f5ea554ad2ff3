// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Shard: the dimension is part of the type. Fix: Shard<0>{}; Placement::shard(0) is a value.
#include <reshard/reshard.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto rows = distribution(Mesh{4}, Shape{64, 32}, Shard<0>{});
#else
auto rows = distribution(Mesh{4}, Shape{64, 32}, Shard(0));
#endif
