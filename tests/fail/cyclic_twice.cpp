// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::distribution: two block-cyclic or strided cuts of one dimension. Fix: make one such cut,
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution(Mesh{2, 4}, Shape{64}, Shard<0>{}, Shard<0, BlockCyclic>{{4}});
#else
auto d = distribution(Mesh{2, 4}, Shape{64}, Shard<0, BlockCyclic>{{4}}, Shard<0, BlockCyclic>{{4}});
#endif
