// SPDX-License-Identifier: Apache-2.0
// expect-error: constraint
// expect-note: PlacementType
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
Distribution<Mesh<2>, Shape<8>, AxisOrder<>, Replicate> d;
#else
Distribution<Mesh<2>, Shape<8>, AxisOrder<>, int> d;
#endif
