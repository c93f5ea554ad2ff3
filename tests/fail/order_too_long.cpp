// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::AxisOrder: a mesh has at most 8 axes.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto order = AxisOrder<7, 6, 5, 4, 3, 2, 1, 0>::list();
#else
auto order = AxisOrder<8, 7, 6, 5, 4, 3, 2, 1, 0>::list();
#endif
