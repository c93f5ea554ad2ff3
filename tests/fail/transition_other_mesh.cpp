// SPDX-License-Identifier: Apache-2.0
// expect-error: the two distributions have different meshes.
// expect-error: Fix: use reshard::plan_across(from, to) to move between meshes.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

template <Index Ranks>
using On = Distribution<Mesh<Ranks>, Shape<64>, AxisOrder<>, Replicate>;

#ifndef RESHARD_FAIL
static_assert(is_local<On<8>, On<dynamic>>);
#else
static_assert(is_local<On<8>, On<4>>);
#endif
