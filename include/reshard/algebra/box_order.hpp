// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/box_order.hpp
/// \brief  Which of many boxes of a tensor may meet another one, found in their order along one dimension.
/// \depends box; <algorithm>, <span>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/algebra/box.hpp>

#include <algorithm>  // partition_point
#include <span>       // span

namespace reshard::inline v0::detail {

/// Boxes in ascending order of where they begin along a dimension: the one along which the longest of them is
/// shortest, as a part of the tensor's extent; of equal ones the first.
struct BoxOrder {
    int dim = 0;
    Index longest = 0;  ///< of the boxes, along `dim`
};

/// Of the boxes box_of(place), for the places given.
template <class BoxOf>
[[nodiscard]] BoxOrder box_order(DynamicShape const& shape, std::span<std::size_t const> places, BoxOf const& box_of) {
    BoxOrder best;
    double least = 0;
    for (int d = 0; d < shape.rank(); ++d) {
        Index longest = 0;
        for (std::size_t const place : places) longest = larger(longest, box_of(place).extent(d));
        double const part = static_cast<double>(longest) / static_cast<double>(larger<Index>(shape.extent(d), 1));
        if (d > 0 && part >= least) continue;
        least = part;
        best = {d, longest};
    }
    return best;
}

/// Those places that may meet a box. Logarithmic in their number where the boxes are about equally long.
/// \pre the places are in the order; where the tensor is a scalar there is none, and all of them are near
template <class BoxOf>
[[nodiscard]] std::span<std::size_t const> boxes_near(std::span<std::size_t const> places, BoxOrder const& order,
                                                      Box const& box, BoxOf const& box_of) {
    if (box.rank() == 0) return places;
    Interval const wanted = box[order.dim];
    Index const behind = wanted.begin - order.longest;  // those that begin here, or before, end before the box
    auto const first = [&](std::size_t place) { return box_of(place).begin(order.dim); };
    auto const begin =
        std::partition_point(places.begin(), places.end(), [&](std::size_t place) { return first(place) <= behind; });
    auto const end =
        std::partition_point(begin, places.end(), [&](std::size_t place) { return first(place) < wanted.end; });
    return {begin, end};
}

}  // namespace reshard::inline v0::detail
