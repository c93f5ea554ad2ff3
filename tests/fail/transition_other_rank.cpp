// SPDX-License-Identifier: Apache-2.0
// expect-error: the two distributions have different shapes.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

template <Index... E>
using Whole = Distribution<Mesh<8>, Shape<E...>, AxisOrder<>, Replicate>;
template <Index... E>
using Rows = Distribution<Mesh<8>, Shape<E...>, AxisOrder<>, Shard<0>>;

#ifndef RESHARD_FAIL
static_assert(is_local<Whole<dynamic, dynamic>, Rows<dynamic, dynamic>>);
#else
static_assert(is_local<Whole<dynamic, dynamic>, Rows<dynamic>>);
#endif
