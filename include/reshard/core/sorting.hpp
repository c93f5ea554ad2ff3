// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/sorting.hpp
/// \brief  One sort for lists of anything: their places are sorted, which is compiled once, whatever lies there.
/// \depends core/function_ref; <algorithm>, <vector>.
#pragma once

#include <reshard/core/config.hpp>
#include <reshard/core/function_ref.hpp>

#include <algorithm>  // sort
#include <cstddef>    // size_t
#include <utility>    // exchange, move
#include <vector>     // vector

namespace reshard::inline v0::detail {

/// The places 0 to count - 1 in the order that `less` of two places says; equal ones stay in their order. Empty where
/// they lie in that order already, as lists mostly do.
[[nodiscard]] inline std::vector<std::size_t> sorted_places(std::size_t count,
                                                            FunctionRef<bool(std::size_t a, std::size_t b)> less) {
    std::vector<std::size_t> places;
    std::size_t at = 1;
    while (at < count && !less(at, at - 1)) ++at;
    if (at >= count) return places;
    for (std::size_t i = 0; i < count; ++i) places.push_back(i);
    std::sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
        if (less(a, b)) return true;
        return a < b && !less(b, a);
    });
    return places;
}

/// Sorts a vector or a span; equal items stay in their order. Allocates where it has to move any.
template <class List, class Less>
void sort_list(List&& list, Less const& less) {
    auto places = sorted_places(list.size(), [&](std::size_t a, std::size_t b) { return less(list[a], list[b]); });
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i] == i) continue;
        auto first = std::move(list[i]);  // of a cycle, whose items go a place on each
        std::size_t to = i;
        for (std::size_t from = places[to]; from != i; to = std::exchange(from, places[from])) {
            list[to] = std::move(list[from]);
            places[to] = to;
        }
        list[to] = std::move(first);
        places[to] = to;
    }
}
template <class T>
void sort_list(std::vector<T>& list) {
    sort_list(list, [](T const& a, T const& b) { return a < b; });
}

}  // namespace reshard::inline v0::detail
