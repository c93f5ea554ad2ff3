// SPDX-License-Identifier: Apache-2.0
/// \file   tests/memory/boxes.hpp
/// \brief  Random strided boxes inside a buffer of their own, and the dumbest correct way to walk them.
#pragma once

#include <reshard/core/transfer.hpp>

#include <algorithm>  // shuffle
#include <random>     // mt19937
#include <vector>

namespace reshard::test {

/// Byte offsets of the elements of a box from its first one, in the order of its dimensions.
inline std::vector<Index> offsets_of(transport::StridedBox const& box) {
    std::vector<Index> offsets{0};
    for (auto const& dim : box.dims) {
        std::vector<Index> longer;
        for (Index offset : offsets)
            for (Index i = 0; i < dim.extent; ++i) longer.push_back(offset + i * dim.stride);
        offsets = longer;
    }
    return offsets;
}

/// A box and a buffer that holds it: `first` is the position of its first element, guard bytes lie all around.
struct Placed {
    transport::StridedBox box;
    std::vector<std::byte> memory;
    Index first = 0;
    std::byte* base() { return memory.data() + first; }
};

inline constexpr std::byte guard{0xA5};

/// Lays `extents` out with random dimension order, gaps and signs; `may_repeat` also allows zero strides.
inline Placed place(std::mt19937& rng, std::vector<Index> const& extents, Index element_bytes, bool may_repeat) {
    Placed placed;
    placed.box.element_bytes = element_bytes;
    std::vector<int> order(extents.size());
    for (std::size_t d = 0; d != order.size(); ++d) order[d] = static_cast<int>(d);
    if (rng() % 2 != 0) std::shuffle(order.begin(), order.end(), rng);
    std::vector<Index> strides(extents.size());
    Index step = element_bytes;
    bool const gaps = rng() % 2 != 0;
    for (std::size_t i = order.size(); i-- > 0;) {
        auto const d = static_cast<std::size_t>(order[i]);
        if (gaps && rng() % 3 == 0) step += static_cast<Index>(rng() % 5) * (rng() % 2 != 0 ? element_bytes : 1);
        bool const repeat = may_repeat && rng() % 8 == 0;
        strides[d] = repeat ? 0 : step;
        if (!repeat) step *= std::max<Index>(extents[d], 1);
    }
    Index lowest = 0;
    for (std::size_t d = 0; d != extents.size(); ++d) {
        if (rng() % 6 == 0) strides[d] = -strides[d];
        if (strides[d] < 0) lowest += strides[d] * std::max<Index>(extents[d] - 1, 0);
        placed.box.dims.push_back({extents[d], strides[d]});
    }
    Index const margin = 64 + static_cast<Index>(rng() % 16);
    placed.memory.assign(static_cast<std::size_t>(step + element_bytes + 2 * margin), guard);
    placed.first = margin - lowest;
    return placed;
}

/// Lays `extents` out row after row from a multiple of 64 bytes on; rows begin at multiples of 16 elements, or
/// anywhere.
inline Placed place_in_rows(std::mt19937& rng, std::vector<Index> const& extents, Index element_bytes) {
    Placed placed{{{}, element_bytes}, {}, 0};
    std::vector<Index> strides(extents.size());
    bool const padded = rng() % 2 != 0;
    Index step = 1;
    for (std::size_t d = extents.size(); d-- > 0;) {
        strides[d] = step;
        step *= std::max<Index>(extents[d], 1);
        if (padded && d + 1 == extents.size()) step = (step + 15) / 16 * 16;
    }
    for (std::size_t d = 0; d != extents.size(); ++d)
        placed.box.dims.push_back({extents[d], strides[d] * element_bytes});
    placed.memory.assign(static_cast<std::size_t>(step * element_bytes + 128), guard);
    while (reinterpret_cast<std::uintptr_t>(placed.base()) % 64 != 0) ++placed.first;
    return placed;
}

inline void scramble(std::mt19937& rng, std::vector<std::byte>& memory) {
    for (auto& byte : memory) byte = static_cast<std::byte>(rng() & 0xffU);
}

}  // namespace reshard::test
