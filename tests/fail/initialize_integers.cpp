// SPDX-License-Identifier: Apache-2.0
// expect-error: random values need floats. Fix: use double, float, BFloat16 or Float16, or initialise with Constant
#include <reshard/init/initialize.hpp>

using namespace reshard;

void sample(TensorView<float> floats, TensorView<std::int32_t> integers) {
    auto const whole = distribution<Replicate>(Mesh{1}, Shape{8});
#ifndef RESHARD_FAIL
    initialize("w", whole, floats, 0, 1, Normal{});
    initialize("w", whole, integers, 0, 1, Constant{});
#else
    initialize("w", whole, integers, 0, 1, Normal{});
#endif
}
