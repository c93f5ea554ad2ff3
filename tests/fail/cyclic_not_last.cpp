// SPDX-License-Identifier: Apache-2.0
// expect-error: a block-cyclic or strided cut is not the last of its dimension.
// expect-error: Fix: let the other axes of that dimension cut first (AxisOrder).
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution(Mesh{2, 4}, Shape{64}, AxisOrder<1, 0>{}, Shard<0, BlockCyclic>{{4}}, Shard<0>{});
#else
auto d = distribution(Mesh{2, 4}, Shape{64}, Shard<0, BlockCyclic>{{4}}, Shard<0>{});
#endif
