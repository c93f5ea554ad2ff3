// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Mesh: a mesh has 1 to 8 axes.
#include <reshard/algebra/mesh.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto mesh = Mesh{1, 1, 1, 1, 1, 1, 1, 1};
#else
auto mesh = Mesh{1, 1, 1, 1, 1, 1, 1, 1, 1};
#endif
