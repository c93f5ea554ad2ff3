// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::distribution: give exactly one placement per mesh axis. Fix: add reshard::Replicate
#include <reshard/algebra/distribution.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto sample = distribution<Replicate, Shard<0>>(Mesh{2, 4}, Shape{8, 4});
#else
auto sample = distribution<Shard<0>>(Mesh{2, 4}, Shape{8, 4});
#endif
