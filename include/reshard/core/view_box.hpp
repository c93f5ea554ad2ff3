// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/view_box.hpp
/// \brief  A view as transports and kernels see it: a strided box of bytes, or a row of them.
/// \depends core only. Opt-in: not part of the umbrella, whose executor cuts its boxes from plans.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>

namespace reshard::inline v0_1::detail {

/// The box of all elements of a view, from view.data() on. \pre elements of whole bytes.
[[nodiscard]] inline StridedBox strided_box(ConstDynamicView const& view) noexcept {
    StridedBox box;
    box.element_bytes = bytes(view.dtype());
    for (int dim = 0; dim < view.rank(); ++dim) {
        box.dims.push_back({view.extent(dim), view.stride(dim) * box.element_bytes});
    }
    return box;
}

/// Whether the elements of a view lie in memory as in row-major order, without gaps.
template <class View>
[[nodiscard]] constexpr bool is_dense(View const& view) noexcept {
    Indices const strides = row_major_strides(view.shape());
    for (int dim = 0; dim < view.rank() && view.size() > 1; ++dim) {
        if (view.extent(dim) > 1 && view.stride(dim) != strides[dim]) return false;
    }
    return true;
}

}  // namespace reshard::inline v0_1::detail
