// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/refuse_twice.hpp
/// \brief  Names that are to be written, each once.
/// \depends checkpoint/tensor_info.hpp.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>

#include <algorithm>  // adjacent_find

namespace reshard::inline v0::detail {

/// Throws FormatError (DuplicateKey) for two items with the same key. \pre sorted by it.
template <class List, class Key>
void refuse_twice(List const& sorted, Key const& key) {
    auto const twin = std::adjacent_find(sorted.begin(), sorted.end(),
                                         [&](auto const& a, auto const& b) { return key(a) == key(b); });
    if (twin != sorted.end()) {
        raise_rule(SafetensorsRule::duplicate_key,
                   concat(quote_name(key(*twin)), " is given twice. Fix: write each name once."));
    }
}

}  // namespace reshard::inline v0::detail
