// SPDX-License-Identifier: Apache-2.0
// expect-error: the two distributions have different meshes.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

template <class P>
using On1 = Distribution<Mesh<8>, Shape<64>, AxisOrder<>, P>;
template <class P>
using On2 = Distribution<Mesh<2, 4>, Shape<64>, AxisOrder<>, Replicate, P>;

#ifndef RESHARD_FAIL
static_assert(is_local<On2<Replicate>, On2<Shard<0>>>);
#else
static_assert(is_local<On1<Replicate>, On2<Shard<0>>>);
#endif
