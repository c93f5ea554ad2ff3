// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/view_box.hpp
/// \brief  A view as transports and kernels see it: a strided box of bytes.
/// \depends core only. Opt-in: not part of the umbrella, whose executor cuts its boxes from plans.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>

namespace reshard::inline v0::detail {

/// The box of all elements of a view, from view.data() on. \pre elements of whole bytes.
[[nodiscard]] inline StridedBox strided_box(ConstDynamicView const& view) noexcept {
    StridedBox box;
    box.element_bytes = bytes(view.dtype());
    for (int dim = 0; dim < view.rank(); ++dim) {
        box.dims.push_back({view.extent(dim), view.stride(dim) * box.element_bytes});
    }
    return box;
}

}  // namespace reshard::inline v0::detail
