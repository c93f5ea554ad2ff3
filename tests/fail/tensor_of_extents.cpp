// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Tensor: extents are given as a shape. Fix: Tensor<float>(Shape{64, 32}).
#include <reshard/reshard.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
Tensor<float> tensor(Shape{64, 32});
#else
Tensor<float> tensor(64, 32);
#endif
