// SPDX-License-Identifier: Apache-2.0
// expect-error: two different reductions in one tensor.
// expect-error: Fix: use one Partial op on all partial axes, or reduce one of them first.
#include <reshard/algebra/transition.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
auto d = distribution<Partial<>, Partial<>>(Mesh{2, 4}, Shape{8});
#else
auto d = distribution<Partial<>, Partial<Reduce::max>>(Mesh{2, 4}, Shape{8});
#endif
