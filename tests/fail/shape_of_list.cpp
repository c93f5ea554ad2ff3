// SPDX-License-Identifier: Apache-2.0
// expect-error: and a list says so at run time only. Fix: write DynamicShape(list).
#include <reshard/core/shape.hpp>

#include <vector>

using namespace reshard;

auto made(std::vector<int> const& extents) {
#ifndef RESHARD_FAIL
    return DynamicShape(extents);
#else
    return Shape(extents);
#endif
}
