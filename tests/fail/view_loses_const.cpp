// SPDX-License-Identifier: Apache-2.0
// expect-error: no matching function|no viable conversion|could not convert|conversion from
#include <reshard/core/tensor_view.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
float const number = 0;
TensorView<float const> view{&number, Shape{1}};
TensorView<float const> other = view;
#else
float const number = 0;
TensorView<float const> view{&number, Shape{1}};
TensorView<float> other = view;
#endif
