// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/emulated.hpp
/// \brief  The device partition with its kernel bodies run on the host: what CUB does is done by the standard library.
#pragma once

#include "cuda/support/host_block.hpp"
#include "support/mch_kernels.hpp"

#include <reshard/cuda/detail/tile.hpp>

#include <numeric>  // iota

namespace reshard::test {

/// Device memory of one partition.
struct EmulatedPartition {
    detail::TilePlan plan;
    std::vector<std::uint32_t> table;
    std::vector<Index> rows;
    std::vector<Index> counts;
    std::vector<Index> begins;
    std::vector<Index> blocks;
    detail::PartitionFaults faults;
    bool bits_suffice = true;

    EmulatedPartition(Index entries, int destinations, int tile) {
        plan.entries = entries;
        plan.destinations = destinations;
        plan.bits = detail::bits_for(static_cast<std::uint64_t>(destinations) + 1);
        plan.tiles = ceil_div(entries, tile);
        table.assign(static_cast<std::size_t>(plan.tiles * destinations + 1), 0xdeadbeef);
        rows.assign(table.size(), -1);
        counts.assign(static_cast<std::size_t>(destinations), -1);
        begins.assign(counts.size() + 1, -1);
        blocks.assign(counts.size() + 1, -1);
        plan.table = table.data();
        plan.rows = rows.data();
        plan.counts = counts.data();
        plan.begins = begins.data();
        plan.blocks = blocks.data();
        plan.faults = &faults;
    }
};

/// Shared memory as a kernel finds it: anything.
template <class Shared>
struct Garbage {
    std::vector<std::uint64_t> memory = std::vector<std::uint64_t>((sizeof(Shared) + 7) / 8, 0xa5a5a5a5a5a5a5a5);
    Shared& operator*() { return *reinterpret_cast<Shared*>(memory.data()); }
};

template <int Items, class Rule, class Columns>
Bytes emulate_tiles(EmulatedPartition& memory, Rule const& rule, Columns const& columns, ThreadOrder order) {
    detail::TilePlan const& plan = memory.plan;
    for (Index tile = 0; tile < plan.tiles; ++tile) {
        HostBlock<detail::CountState> block(order, static_cast<std::uint64_t>(tile) + 1);
        Garbage<detail::CountShared<Rule>> shared;
        detail::count_tile<Items>(block, *shared, plan, rule, tile);
    }
    Index sum = 0;
    for (std::size_t i = 0; i != memory.table.size(); ++i) {
        memory.rows[i] = sum;
        sum += memory.table[i];
    }
    HostBlock<detail::LayoutState> one(order);
    detail::lay_out_blocks(one, plan, columns, detail::BeginOfTable{plan.rows, plan.tiles});
    Bytes packed(static_cast<std::size_t>(memory.blocks.back()), std::byte{0x77});
    for (Index tile = 0; tile < plan.tiles; ++tile) {
        HostBlock<detail::ScatterState<Items>> block(order, static_cast<std::uint64_t>(tile) + 9);
        Garbage<detail::ScatterShared<Items, Rule>> shared;
        detail::scatter_tile<Items>(block, *shared, plan, rule, columns, packed.data(), tile);
        memory.bits_suffice = memory.bits_suffice && block.bits_suffice();
    }
    return packed;
}

template <class Rule, class Columns>
Bytes emulate_sort(EmulatedPartition& memory, Rule const& rule, Columns const& columns, ThreadOrder order) {
    detail::TilePlan const& plan = memory.plan;
    auto const n = static_cast<std::size_t>(plan.entries);
    std::vector<std::uint16_t> keys(n);
    for (std::size_t i = 0; i != n; ++i) {
        Index const answer = rule(static_cast<Index>(i));
        keys[i] = static_cast<std::uint16_t>(detail::bin_of(answer, plan.destinations));
        if (!detail::is_fault(answer, plan.destinations)) continue;
        ++memory.faults.out_of_range;
        memory.faults.first = std::min<unsigned long long>(memory.faults.first, i);
    }
    std::vector<std::uint32_t> from(n);
    std::iota(from.begin(), from.end(), 0U);
    std::stable_sort(from.begin(), from.end(), [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
    std::vector<std::uint16_t> sorted;
    for (std::uint32_t entry : from) sorted.push_back(keys[entry]);
    HostBlock<detail::LayoutState> one(order);
    detail::lay_out_blocks(one, plan, columns, detail::BeginOfSorted{sorted.data(), plan.entries});
    Bytes packed(static_cast<std::size_t>(memory.blocks.back()), std::byte{0x77});
    for (Index place = 0; place < plan.begins[plan.destinations]; ++place) {
        detail::place_sorted(plan, columns, packed.data(), sorted.data(), from.data(), place);
    }
    return packed;
}

/// Kernels for tests/support/mch_kernels.hpp. `Items` 0 sorts.
template <int Items, ThreadOrder Order>
struct EmulatedKernels {
    template <class Columns>
    static PartitionResult with(PartitionCase const& given, Columns const& columns) {
        EmulatedPartition memory(given.entries, static_cast<int>(given.world),
                                 Items == 0 ? 1 : Items * detail::block_threads);
        ByList const rule{given.destinations.data()};
        PartitionResult result;
        if constexpr (Items == 0) {
            result.packed = emulate_sort(memory, rule, columns, Order);
        } else {
            result.packed = emulate_tiles<Items>(memory, rule, columns, Order);
        }
        result.counts = memory.counts;
        result.begins = memory.begins;
        result.blocks = memory.blocks;
        result.guards_intact = memory.bits_suffice;
        return result;
    }
    static PartitionResult partition(PartitionCase const& given) {
        ByteColumns bytes;
        WordColumns words;
        bool all_words = true;
        for (std::size_t c = 0; c != given.columns.size(); ++c) {
            bytes.add(given.columns[c].data(), given.widths[c]);
            words.data.push_back(reinterpret_cast<Index const*>(given.columns[c].data()));
            all_words = all_words && given.widths[c] == 8;
        }
        auto const result = with(given, bytes);
        if (!all_words) return result;
        auto other = with(given, words);
        other.guards_intact = other.guards_intact && other == result;
        return other;
    }
};

}  // namespace reshard::test
