// SPDX-License-Identifier: Apache-2.0
// expect-error: no matching function
// expect-note: PlacementType
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Shard<0>>(Mesh{2}, Shape{8});
#else
auto d = distribution<Placement>(Mesh{2}, Shape{8});  // a value: pass it in Placements
#endif
