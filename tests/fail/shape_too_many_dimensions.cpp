// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Shape: too many dimensions. Fix: merge dimensions that are never cut.
#include <reshard/core/shape.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto shape = Shape{1, 1, 1, 1, 1, 1, 1, 1};
#else
auto shape = Shape{1, 1, 1, 1, 1, 1, 1, 1, 1};
#endif
