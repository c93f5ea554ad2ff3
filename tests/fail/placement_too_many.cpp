// SPDX-License-Identifier: Apache-2.0
// expect-error: give exactly one placement per mesh axis.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Replicate, Shard<0>>(Mesh{2, 4}, Shape{8, 8});
#else
auto d = distribution<Replicate, Shard<0>, Replicate>(Mesh{2, 4}, Shape{8, 8});
#endif
