// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/stored_order.hpp
/// \brief  Names of tensors that come twice, and the places of tensors by their names.
/// \depends checkpoint/tensor_info.hpp, core/sorting.hpp.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // adjacent_find
#include <cstddef>    // size_t
#include <vector>     // vector

namespace reshard::inline v0::detail {

/// Throws FormatError (DuplicateKey) for two items with the same key; `where` leads the message. \pre sorted by it.
template <class List, class Key>
void refuse_twice(List const& sorted, Key const& key, std::string_view where = {},
                  std::string_view fix = "write each name once.") {
    auto const twin = std::adjacent_find(sorted.begin(), sorted.end(),
                                         [&](auto const& a, auto const& b) { return key(a) == key(b); });
    if (twin != sorted.end()) {
        raise_rule(SafetensorsRule::duplicate_key,
                   concat(where, quote_name(key(*twin)), " is given twice. Fix: ", fix));
    }
}

/// The places of tensors in the order of their names.
template <class Tensor>
[[nodiscard]] std::vector<std::size_t> places_by_name(std::vector<Tensor> const& tensors) {
    std::vector<std::size_t> places(tensors.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
    sort_list(places, [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
    return places;
}

}  // namespace reshard::inline v0::detail
