// SPDX-License-Identifier: Apache-2.0
// expect-error: AxisOrder names an axis twice, an axis the mesh does not have, or only some of the axes that
// expect-error: cut a dimension.
// expect-error: Fix: list all axes of that dimension, first cut first.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Shard<0>, Shard<0>>(Mesh{2, 4}, Shape{8}, AxisOrder<1, 0>{});
#else
auto d = distribution<Shard<0>, Shard<0>>(Mesh{2, 4}, Shape{8}, AxisOrder<1, 1>{});
#endif
