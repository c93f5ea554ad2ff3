// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/emulated_receive.hpp
/// \brief  The device receiver with its kernel bodies run on the host: what CUB does is done by the standard library.
#pragma once

#include "cuda/support/emulated.hpp"
#include "cuda/support/receive_case.hpp"

#include <algorithm>
#include <vector>

namespace reshard::test {

/// The memory of DeviceReceive, and its launches by HostBlocks or others with their tiles().
struct EmulatedReceive {
    detail::ReceivePlan plan;
    detail::ReceiveFaults faults;
    std::vector<std::uint32_t> taken, free, arrivals, order;
    std::vector<Index> free_before, ids, sorted;

    explicit EmulatedReceive(ReceiveCase const& given) {
        plan.received = reinterpret_cast<std::byte const*>(given.words.data());
        plan.begins = given.begins.data();
        plan.sources = static_cast<int>(given.begins.size()) - 1;
        plan.columns = given.columns;
        plan.entries = given.count();
        plan.first = given.first;
        plan.slots = given.slots;
        auto const words = static_cast<std::size_t>(plan.words());
        auto const n = given.entries.size();
        taken.assign(words, 0);
        free.assign(words + 1, 77);
        free_before.assign(words + 1, 77);
        ids.assign(n, 77);
        sorted.assign(n, 77);
        arrivals.assign(n, 77);
        order.assign(n, 77);
        plan.taken = taken.data();
        plan.free = free.data();
        plan.free_before = free_before.data();
        plan.ids = ids.data();
        plan.arrivals = arrivals.data();
        plan.sorted = sorted.data();
        plan.order = order.data();
        plan.faults = &faults;
    }
    template <class Blocks>
    void inspect(Blocks& run) {
        run.template tiles<detail::InspectState, detail::InspectShared>(
            ceil_div(plan.entries, detail::inspect_tile),
            [&](auto& block, auto& shared, Index tile) { detail::inspect_tile_of(block, shared, plan, tile); });
    }
    /// What CUB does: a stable sort by bits [begin, end) of the keys with their sign flipped.
    template <class Blocks>
    void sort(Blocks& run, detail::SortBits bits) {
        auto const digit = [&](std::uint32_t arrival) {
            std::uint64_t const key = static_cast<std::uint64_t>(ids[arrival]) ^ (std::uint64_t{1} << 63U);
            std::uint64_t const high =
                bits.end == 64 ? key : key & ((std::uint64_t{1} << static_cast<unsigned>(bits.end)) - 1U);
            return bits.end == bits.begin ? 0 : high >> static_cast<unsigned>(bits.begin);
        };
        order = arrivals;
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return digit(a) < digit(b); });
        for (std::size_t i = 0; i != order.size(); ++i) sorted[i] = ids[order[i]];
        plan.order = order.data();
        for (Index i = 0; i < plan.entries + 5; ++i) faults.duplicate_ids += detail::repeats(plan, i) ? 1 : 0;
        each(run, plan.words() + 1, [&](Index word) { detail::count_free(plan, word); });
        Index sum = 0;
        for (std::size_t i = 0; i != free.size(); ++i) {
            free_before[i] = sum;
            sum += free[i];
        }
    }
    template <class Blocks>
    std::vector<std::vector<Index>> rebuild(Blocks& run) {
        std::vector<std::vector<Index>> shard(static_cast<std::size_t>(plan.columns),
                                              std::vector<Index>(static_cast<std::size_t>(plan.slots), 77));
        detail::RebuildColumns columns;
        for (auto& column : shard) columns.data.push_back(column.data());
        each(run, plan.slots, [&](Index row) { detail::rebuild_row(plan, columns, row); });
        each(run, plan.words(), [&](Index word) { detail::write_free(plan, shard[1].data(), word); });
        return shard;
    }

private:
    /// As the kernels do: every thread of the last block, too.
    template <class Blocks, class Body>
    static void each(Blocks& run, Index count, Body const& body) {
        run.template tiles<detail::NoState, detail::NoShared>(
            ceil_div(count, detail::block_threads), [&](auto& block, auto&, Index tile) {
                block.each([&](int thread, auto&) { body(tile * detail::block_threads + thread); });
            });
    }
};

inline bool same(detail::ReceiveFaults const& a, detail::ReceiveFaults const& b) {
    return a.slots_out_of_range == b.slots_out_of_range && a.duplicate_slots == b.duplicate_slots &&
           a.empty_ids == b.empty_ids && a.ids_or == b.ids_or && a.ids_and == b.ids_and;
}

}  // namespace reshard::test
