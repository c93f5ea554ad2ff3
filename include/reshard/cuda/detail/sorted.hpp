// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/sorted.hpp
/// \brief  The kernel bodies of a partition by a radix sort of the destinations: what comes before it and behind it.
/// \depends cuda/detail/tile. Compiles without CUDA.
#pragma once

#include <reshard/cuda/detail/tile.hpp>

namespace reshard::inline v0_1::detail {

/// Where entries go, for a sort.
template <class Rule, class Key>
struct ListDestinations {
    TilePlan plan;
    Rule rule;
    Key* keys;
    std::uint32_t* entries;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, Index entry) const {
        Index const answer = static_cast<Index>(rule(entry));
        keys[entry] = static_cast<Key>(bin_of(answer, plan.destinations));
        entries[entry] = static_cast<std::uint32_t>(entry);
        if (is_fault(answer, plan.destinations)) plan.faults->add(block, entry);
    }
};

/// Sorted entries to their places: what the second implementation does behind a radix sort. `sorted` are destinations
/// in order, `from` the entries they belong to.
template <class Columns, class Key>
struct PlaceSorted {
    TilePlan plan;
    Columns columns;
    std::byte* packed;
    Key const* sorted;
    std::uint32_t const* from;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index place) const {
        if (place >= plan.begins[plan.destinations]) return;  // not sent
        auto const d = as_index(sorted[place]);
        Index const row = place - plan.begins[d];
        Index const count = plan.counts[d];
        Index at = plan.blocks[d];
        Index const entry = from[place];
        columns.for_each([&](int c, Index offset, bool last, auto const& load) {
            using T = decltype(load(Index{0}));
            Index const width = columns.width(c);
            store_as<T>(packed + at + row * width + offset, load(entry));
            if (!last) return;
            Index const end = at + device_column_bytes(count, width);
            if (row == count - 1) {
                for (Index byte = at + count * width; byte < end; ++byte) packed[byte] = std::byte{0};
            }
            at = end;
        });
    }
};

/// The first place whose destination is at least `d`.
template <class Key>
struct BeginOfSorted {
    Key const* sorted;
    Index entries;
    [[nodiscard]] RESHARD_HOST_DEVICE Index operator()(Index d) const {
        return first_where<Index>(0, entries, [&, this](Index i) { return as_index(sorted[i]) >= d; });
    }
};

}  // namespace reshard::inline v0_1::detail
