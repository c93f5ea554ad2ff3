// SPDX-License-Identifier: Apache-2.0
// expect-error: and a list says so at run time only. Fix: write DynamicMesh(list).
#include <reshard/algebra/mesh.hpp>

#include <vector>

using namespace reshard;

auto made(std::vector<int> const& extents) {
#ifndef RESHARD_FAIL
    return DynamicMesh(extents);
#else
    return Mesh(extents);
#endif
}
