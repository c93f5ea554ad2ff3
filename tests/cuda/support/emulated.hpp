// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/emulated.hpp
/// \brief  The device partition with its kernel bodies run on the host: what CUB does is done by the standard library.
#pragma once

#include "cuda/support/host_block.hpp"
#include "cuda/support/host_device.hpp"
#include "support/mch_kernels.hpp"

#include <reshard/cuda/detail/sorted.hpp>
#include <reshard/cuda/work.hpp>

#include <algorithm>
#include <new>      // align_val_t
#include <numeric>  // iota
#include <vector>

namespace reshard::test {

/// Memory that begins where cudaMalloc's may.
template <class T>
struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t alignment{256};
    AlignedAllocator() = default;
    template <class U>
    AlignedAllocator(AlignedAllocator<U> const&) noexcept {}
    [[nodiscard]] T* allocate(std::size_t count) {
        return static_cast<T*>(::operator new(count * sizeof(T), alignment));
    }
    void deallocate(T* memory, std::size_t) noexcept { ::operator delete(memory, alignment); }
    friend bool operator==(AlignedAllocator const&, AlignedAllocator const&) = default;
};
template <class T>
using DeviceList = std::vector<T, AlignedAllocator<T>>;

/// Device memory of one partition. What the rule and the columns read is claimed by the test.
struct EmulatedPartition {
    HostDevice device;
    detail::TilePlan plan;
    DeviceList<std::uint32_t> table;
    DeviceList<Index> rows;
    DeviceList<std::uint16_t> bins;
    DeviceList<Index> counts;
    DeviceList<Index> begins;
    DeviceList<Index> blocks;
    detail::PartitionFaults faults;

    EmulatedPartition(Index entries, int destinations, int tile) {
        plan = {entries, destinations, tile};
        table.assign(static_cast<std::size_t>(plan.tiles * destinations + 1), 0xdeadbeef);
        rows.assign(table.size(), -1);
        bins.assign(static_cast<std::size_t>(entries), 0xdead);
        counts.assign(static_cast<std::size_t>(destinations), -1);
        begins.assign(counts.size() + 1, -1);
        blocks.assign(counts.size() + 1, -1);
        plan.table = table.data();
        plan.rows = rows.data();
        plan.bins = bins.data();
        plan.counts = counts.data();
        plan.begins = begins.data();
        plan.blocks = blocks.data();
        plan.faults = &faults;
        claim_unwritten(table);
        claim_unwritten(bins);
        claim_unwritten(counts);
        claim_unwritten(begins);
        claim_unwritten(blocks);
        claim(rows);
        device.claim(&faults, sizeof(faults));
    }
    template <class List>
    void claim(List const& list) {
        device.claim(list.data(), static_cast<Index>(list.size() * sizeof(list[0])));
    }
    template <class List>
    void claim_unwritten(List const& list) {
        device.claim_unwritten(list.data(), static_cast<Index>(list.size() * sizeof(list[0])));
    }
    /// Launches of `run`, if it asks whose memory kernels may touch.
    template <class Blocks>
    void watch(Blocks& run) const {
        if constexpr (requires { run.device; }) run.device = &device;
    }
};

/// Shared memory as a kernel finds it: anything; and some behind it that is nobody's.
template <class Shared>
struct Garbage {
    DeviceList<std::uint64_t> memory;
    Garbage() : memory((sizeof(Shared) + guard_bytes + 15) / 8) { spoil(); }
    void spoil() { std::fill(memory.begin(), memory.end(), 0xa5a5a5a5a5a5a5a5); }
    Shared& operator*() { return *reinterpret_cast<Shared*>(memory.data()); }
};

/// Runs the tiles of a launch one after the other, each by a HostBlock.
struct HostBlocks {
    ThreadOrder order = ThreadOrder::up;
    bool bits_suffice = true;  ///< HostBlock::bits_suffice(), of all blocks so far

    /// body(block, shared, tile) for tiles [0, count).
    template <class State, class Shared, class Body>
    void tiles(Index count, Body const& body) {
        for (Index t = 0; t < count; ++t) {
            Index const tile = order == ThreadOrder::up ? t : count - 1 - t;
            HostBlock<State> block(order, static_cast<std::uint64_t>(tile) + 1);
            Garbage<Shared> shared;
            body(block, *shared, tile);
            bits_suffice = bits_suffice && block.bits_suffice();
        }
    }
};

template <class Blocks, class Columns, class Begin>
DeviceList<std::byte> emulate_layout(Blocks& run, EmulatedPartition& memory, Columns const& columns,
                                     Begin const& begin) {
    run.template tiles<detail::LayoutState, detail::NoShared>(
        1, detail::LayOutBlocks<Begin>{memory.plan, detail::column_widths(columns), begin});
    DeviceList<std::byte> packed(static_cast<std::size_t>(memory.blocks.back()), std::byte{0x77});
    memory.claim(packed);
    return packed;
}

/// `run`: HostBlocks, or others with their tiles().
template <int Items, class Blocks, class Rule, class Columns>
Bytes emulate_tiles(Blocks& run, EmulatedPartition& memory, Rule const& rule, Columns const& columns) {
    detail::TilePlan const& plan = memory.plan;
    memory.watch(run);
    run.template tiles<detail::CountState, detail::CountShared<Rule>>(plan.tiles,
                                                                      detail::CountTile<Items, Rule>{plan, rule});
    Index sum = 0;
    for (std::size_t i = 0; i != memory.table.size(); ++i) {
        memory.rows[i] = sum;
        sum += memory.table[i];
    }
    DeviceList<std::byte> packed = emulate_layout(run, memory, columns, detail::BeginOfTable{plan.rows, plan.tiles});
    run.template tiles<detail::ScatterState<Items>, detail::ScatterShared<Items>>(
        plan.tiles, detail::ScatterTile<Items, Columns>{plan, columns, packed.data()});
    return Bytes(packed.begin(), packed.end());
}

template <class Blocks, class Rule, class Columns>
Bytes emulate_sort(Blocks& run, EmulatedPartition& memory, Rule const& rule, Columns const& columns) {
    detail::TilePlan const& plan = memory.plan;
    auto const n = static_cast<std::size_t>(plan.entries);
    DeviceList<Index> keys(n);
    DeviceList<std::uint32_t> entries(n);
    memory.claim(keys);
    memory.claim(entries);
    memory.watch(run);
    auto const each = [&](auto const& body) {
        run.template tiles<detail::NoState, detail::NoShared>(
            detail::ceil_div(plan.entries, detail::block_threads),
            detail::EachIndex<std::decay_t<decltype(body)>>{plan.entries, body});
    };
    each(detail::ListDestinations<Rule, Index>{plan, rule, keys.data(), entries.data()});
    DeviceList<std::uint32_t> from = entries;
    std::stable_sort(from.begin(), from.end(), [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
    DeviceList<Index> sorted;
    for (std::uint32_t entry : from) sorted.push_back(keys[entry]);
    memory.claim(from);
    memory.claim(sorted);
    DeviceList<std::byte> packed =
        emulate_layout(run, memory, columns, detail::BeginOfSorted<Index>{sorted.data(), plan.entries});
    each(detail::PlaceSorted<Columns, Index>{plan, columns, packed.data(), sorted.data(), from.data()});
    return Bytes(packed.begin(), packed.end());
}

/// Kernels for tests/support/mch_kernels.hpp. `Items` 0 sorts.
template <int Items, ThreadOrder Order, class Blocks = HostBlocks>
struct EmulatedKernels {
    template <class Columns>
    static PartitionResult with(PartitionCase const& given, Columns const& columns) {
        EmulatedPartition memory(given.entries, static_cast<int>(given.world),
                                 Items == 0 ? 1 : Items * detail::block_threads);
        ByList const rule{given.destinations.data()};
        memory.claim(given.destinations);
        for (Bytes const& column : given.columns) memory.claim(column);
        PartitionResult result;
        Blocks run{Order};
        if constexpr (Items == 0) {
            result.packed = emulate_sort(run, memory, rule, columns);
        } else {
            result.packed = emulate_tiles<Items>(run, memory, rule, columns);
        }
        result.counts.assign(memory.counts.begin(), memory.counts.end());
        result.begins.assign(memory.begins.begin(), memory.begins.end());
        result.blocks.assign(memory.blocks.begin(), memory.blocks.end());
        result.guards_intact = run.bits_suffice;
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
