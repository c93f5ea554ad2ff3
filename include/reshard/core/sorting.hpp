// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/sorting.hpp
/// \brief  One sort for lists of anything: their places are sorted, which is compiled once, whatever lies there.
/// \depends core/{function_ref,index}; <span>, <vector>. <algorithm> would cost every program that includes this.
#pragma once

#include <reshard/core/function_ref.hpp>
#include <reshard/core/index.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// The places 0 to count - 1 in the order that `less` of two places says; equal ones stay in their order. None where
/// they lie in that order already, as lists mostly do. They lie in `room`, which becomes twice as long.
[[nodiscard]] inline std::span<std::size_t> sorted_places(std::size_t count,
                                                          FunctionRef<bool(std::size_t a, std::size_t b)> less,
                                                          std::vector<std::size_t>& room) {
    std::size_t at = 1;
    while (at < count && !less(at, at - 1)) ++at;
    if (at >= count) return {};
    room.assign(2 * count, 0);
    std::size_t* places = room.data();
    std::size_t* merged = places + count;
    for (std::size_t i = 0; i < count; ++i) places[i] = i;
    for (std::size_t run = 1; run < count; run *= 2) {  // std::sort is four times the code, std::stable_sort more
        for (std::size_t begin = 0; begin < count; begin += 2 * run) {
            std::size_t const middle = smaller(begin + run, count);
            std::size_t const end = smaller(begin + 2 * run, count);
            std::size_t first = begin;
            std::size_t second = middle;
            for (std::size_t to = begin; to < end; ++to) {
                bool const is_second = first == middle || (second != end && less(places[second], places[first]));
                merged[to] = places[is_second ? second++ : first++];
            }
        }
        std::swap(places, merged);
    }
    return {places, count};
}

/// Item places[i] becomes item i. Spoils the places.
template <class T>
void put_in_order(T* items, std::span<std::size_t> places) {
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i] == i) continue;
        T first = std::move(items[i]);  // of a cycle, whose items go a place on each
        std::size_t to = i;
        for (std::size_t from = places[to]; from != i; to = std::exchange(from, places[from])) {
            items[to] = std::move(items[from]);
            places[to] = to;
        }
        items[to] = std::move(first);
        places[to] = to;
    }
}

/// Sorts a vector or a span; equal items stay in their order. Where it has to move any it allocates, unless there is
/// `room` for twice as many places.
template <class List, class Less>
void sort_list(List&& list, Less const& less, std::vector<std::size_t>& room) {
    auto const before = [&](std::size_t a, std::size_t b) { return less(list[a], list[b]); };
    put_in_order(list.data(), sorted_places(list.size(), before, room));
}
template <class List, class Less>
void sort_list(List&& list, Less const& less) {
    std::vector<std::size_t> room;
    sort_list(list, less, room);
}
template <class T>
void sort_list(std::vector<T>& list) {
    sort_list(list, [](T const& a, T const& b) { return a < b; });
}

}  // namespace reshard::inline v0_1::detail
