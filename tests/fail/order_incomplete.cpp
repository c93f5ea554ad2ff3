// SPDX-License-Identifier: Apache-2.0
// expect-error: or only some of the axes that cut a dimension.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Shard<0>, Shard<0>, Shard<0>>(Mesh{2, 2, 2}, Shape{8}, AxisOrder<2, 0, 1>{});
#else
auto d = distribution<Shard<0>, Shard<0>, Shard<0>>(Mesh{2, 2, 2}, Shape{8}, AxisOrder<2, 0>{});
#endif
