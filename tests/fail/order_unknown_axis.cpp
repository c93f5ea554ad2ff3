// SPDX-License-Identifier: Apache-2.0
// expect-error: AxisOrder names an axis twice, an axis the mesh does not have
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Shard<0>, Shard<0>>(Mesh{2, 4}, Shape{8}, AxisOrder<1, 0>{});
#else
auto d = distribution<Shard<0>, Shard<0>>(Mesh{2, 4}, Shape{8}, AxisOrder<2, 0>{});
#endif
