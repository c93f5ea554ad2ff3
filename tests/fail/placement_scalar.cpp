// SPDX-License-Identifier: Apache-2.0
// expect-error: a placement shards a dimension the tensor does not have.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Replicate>(Mesh{8}, Shape{});
#else
auto d = distribution<Shard<0>>(Mesh{8}, Shape{});
#endif
