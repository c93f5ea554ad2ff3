// SPDX-License-Identifier: Apache-2.0
// expect-error: deleted
#include <reshard/core/tensor.hpp>

using namespace reshard;

DynamicView view_of(Tensor<float>& tensor) { return tensor; }

#ifdef RESHARD_FAIL
DynamicView view_of_nothing() {
    Tensor<float> tensor(Shape{4});
    return tensor;
}
#endif
