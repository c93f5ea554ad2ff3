// SPDX-License-Identifier: Apache-2.0
// expect-error: two integers are no shape known at run time. Fix: write Shape{0, 4}.
#include <reshard/core/tensor.hpp>

using namespace reshard;

void make() {
#ifndef RESHARD_FAIL
    [[maybe_unused]] DynamicShape const shape = Shape{0, 4};
    Tensor<float> const tensor(Shape{0, 4});
    [[maybe_unused]] DynamicView const late(nullptr, DType::f32, Shape{0, 4});
    [[maybe_unused]] TensorView<float> const view{nullptr, Shape{0, 4}};
#else
    [[maybe_unused]] DynamicShape const shape{0, 4};
    Tensor<float> const tensor({0, 4L});
    [[maybe_unused]] DynamicView const late(nullptr, DType::f32, {0, 4U});
    [[maybe_unused]] TensorView<float> const view{nullptr, {0, 4LL}};
#endif
}
