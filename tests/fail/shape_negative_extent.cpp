// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Shape: an extent is negative. Fix: extents are zero or more, or reshard::dynamic.
#include <reshard/core/shape.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
Shape<8, dynamic> shape{8, 3};
#else
Shape<8, -2> shape{8, 3};
#endif
