// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/element_range.hpp
/// \brief  Runs of a view's elements in row-major order, wherever they lie: as boxes, and as dense bytes.
/// \depends core, algebra/box.hpp, memory/place.hpp. Allocates nothing.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/core/view_box.hpp>
#include <reshard/memory/place.hpp>

namespace reshard::inline v0_1::detail {

/// The index of the element at a row-major position. \pre the position is one of the shape's.
[[nodiscard]] constexpr Indices unravel(DynamicShape const& shape, Index position) noexcept {
    Indices index = shape.extents();
    for (int dim = shape.rank() - 1; dim >= 0; --dim) {
        index[dim] = position % shape.extent(dim);
        position /= shape.extent(dim);
    }
    return index;
}

/// Where the share of a rank begins, of bytes that lie in one line; that of rank `ranks`: where they end.
[[nodiscard]] constexpr Index share_begin(Index bytes, Index rank, Index ranks) noexcept {
    return bytes / ranks * rank + bytes % ranks * rank / ranks;
}

/// The place of the first element of a box among those of a frame that it lies in, packed row-major.
[[nodiscard]] constexpr Index place_in(Box const& frame, Box const& at) noexcept {
    Index place = 0;
    for (int d = 0; d < frame.rank(); ++d) place = place * frame.extent(d) + at.begin(d) - frame.begin(d);
    return place;
}

/// Calls visit(Box) for few boxes that hold the elements [begin, end) of a shape's row-major order, in that order. They
/// depend on the three arguments alone: two ranks list the same. At most one box less than twice the dimensions.
template <class Visit>
constexpr void for_each_box(DynamicShape const& shape, Index begin, Index end, Visit&& visit) {
    while (begin < end) {
        Box box;
        Indices const at = unravel(shape, begin);
        int dim = shape.rank() - 1;  // the outermost dimension that the box has more than one index of
        Index step = 1;              // elements per index of that dimension
        while (dim > 0 && at[dim] == 0 && shape.extent(dim) * step <= end - begin) step *= shape.extent(dim--);
        for (int d = 0; d < dim; ++d) box.push_back({at[d], at[d] + 1});
        if (dim >= 0) {
            box.push_back({at[dim], at[dim] + smaller(shape.extent(dim) - at[dim], (end - begin) / step)});
        }
        for (int d = dim + 1; d < shape.rank(); ++d) box.push_back({0, shape.extent(d)});
        visit(static_cast<Box const&>(box));
        begin += box.size();
    }
}

/// The same of the elements of a box: visit(Box) for boxes of what it is a box of.
template <class Visit>
constexpr void for_each_box_in(Box const& frame, Index begin, Index end, Visit&& visit) {
    for_each_box(frame.shape(), begin, end, [&](Box box) {
        for (int d = 0; d < box.rank(); ++d) box.set(d, {box.begin(d) + frame.begin(d), box.end(d) + frame.begin(d)});
        visit(static_cast<Box const&>(box));
    });
}

/// Copies the elements [begin, end) to `to`, dense; see place().
inline void gather(ConstDynamicView const& view, Index begin, Index end, std::byte* to,
                   MemoryPolicy const* policy = nullptr) {
    for_each_box(view.shape(), begin, end, [&](Box const& box) {
        ConstDynamicView const from = view.window(box);
        ConstDynamicView const dense(to, view.dtype(), from.shape());
        place(policy, {0, from.data(), strided_box(from)}, {0, to, strided_box(dense)});
        to += box.size() * bytes(view.dtype());
    });
}

}  // namespace reshard::inline v0_1::detail
