// SPDX-License-Identifier: Apache-2.0
// How checkpoint/consolidate_options.hpp is done.
#pragma once

#include <reshard/checkpoint/consolidate_options.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE std::function<DType(StoredTensor const&)> floats_as(DType dtype) {
    return [dtype](StoredTensor const& tensor) { return is_floating(tensor.dtype) ? dtype : tensor.dtype; };
}

}  // namespace reshard::inline v0
