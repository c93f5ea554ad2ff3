// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Mesh: give one name per axis. Fix: Mesh{2, 4} has two axes, Mesh{8} has one.
#include <reshard/algebra/mesh.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto mesh = Mesh{2, 4}.named("dp", "tp");
#else
auto mesh = Mesh{2, 4}.named("dp");
#endif
