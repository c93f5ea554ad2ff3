// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/messages.hpp
/// \brief  A message, element by element.
#pragma once

#include <reshard/plan/message.hpp>

#include <algorithm>  // sort
#include <vector>

namespace reshard::test {

/// The indices a message has along one dimension, in the order they travel in.
inline std::vector<Index> indices(planning::Message const& message, int dim) {
    std::vector<Index> starts{message.box[dim].begin};
    for (planning::BoxRepeat const& repeat : message.repeats) {
        if (repeat.dim != dim) continue;
        std::vector<Index> more;
        for (Index start : starts)
            for (Index i = 0; i < repeat.count; ++i) more.push_back(start + i * repeat.pitch);
        starts.swap(more);
    }
    std::vector<Index> result;
    for (Index start : starts)
        for (Index i = 0; i < message.box[dim].size(); ++i) result.push_back(start + i);
    return result;
}

/// Row-major positions in a tensor of this shape of all elements of a message.
inline std::vector<Index> positions(planning::Message const& message, DynamicShape const& shape) {
    std::vector<Index> result{0};
    for (int dim = 0; dim < shape.rank(); ++dim) {
        std::vector<Index> longer;
        std::vector<Index> const along = indices(message, dim);
        for (Index prefix : result)
            for (Index i : along) longer.push_back(prefix * shape.extent(dim) + i);
        result.swap(longer);
    }
    return result;
}

/// Whether two messages have an element in common.
inline bool overlap(planning::Message const& a, planning::Message const& b) {
    for (int dim = 0; dim < a.box.size(); ++dim) {
        std::vector<Index> const mine = indices(a, dim);
        std::vector<Index> const other = indices(b, dim);
        bool const meet = std::any_of(mine.begin(), mine.end(),
                                      [&](Index i) { return std::find(other.begin(), other.end(), i) != other.end(); });
        if (!meet) return false;
    }
    return true;
}

}  // namespace reshard::test
