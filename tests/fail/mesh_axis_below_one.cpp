// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Mesh: an axis is smaller than 1. Fix: every axis has at least one rank.
#include <reshard/algebra/mesh.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
Mesh<2, 1> mesh;
#else
Mesh<2, 0> mesh;
#endif
