// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/receive_kernels.hpp
/// \brief  The kernel bodies of the receiver: look at what came, find free slots, rebuild a shard.
/// \depends core, cuda/detail/block.hpp. Compiles without CUDA.
///
/// Received are packed blocks of words, one per source, as DevicePartition and Partition write them: columns one after
/// the other, column 0 the ids, column 1 the slots, metadata behind.
#pragma once

#include <reshard/cuda/detail/block.hpp>

namespace reshard::inline v0::detail {

inline constexpr int max_receive_columns = 16;

/// What the receiver finds. On the device; the host copies it as words.
struct ReceiveFaults {
    unsigned long long slots_out_of_range = 0;
    unsigned long long duplicate_slots = 0;  ///< slots that an entry before had already
    unsigned long long empty_ids = 0;        ///< entries whose id is that of an empty place
    unsigned long long duplicate_ids = 0;    ///< after sorting: ids equal to the one before
    unsigned long long ids_or = 0;           ///< of all ids, bit by bit
    unsigned long long ids_and = ~0ULL;
};

struct ReceivePlan {
    std::byte const* received = nullptr;
    Index const* begins = nullptr;  ///< [sources + 1]: entries before each source's block
    int sources = 0;
    int columns = 2;
    Index entries = 0;
    Index first = 0;  ///< slots [first, first + slots)
    Index slots = 0;
    Index empty = INT64_MAX;
    std::uint32_t* taken = nullptr;  ///< a bit per slot
    std::uint32_t* free = nullptr;   ///< free slots per word, and a zero behind the last
    Index* free_before = nullptr;    ///< their exclusive sum
    Index* ids = nullptr;            ///< in the order of arrival
    std::uint32_t* arrivals = nullptr;
    Index const* sorted = nullptr;
    std::uint32_t const* order = nullptr;  ///< arrival of each sorted id
    ReceiveFaults* faults = nullptr;

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index words() const noexcept { return ceil_div(slots, 32); }
};

/// Element of column c that arrived as number `arrival`.
[[nodiscard]] RESHARD_HOST_DEVICE inline Index const* received_word(ReceivePlan const& plan, int c,
                                                                    Index arrival) noexcept {
    int low = 0;
    int high = plan.sources;  // begins[low] <= arrival < begins[high]
    while (high - low > 1) {
        int const middle = low + (high - low) / 2;
        (plan.begins[middle] <= arrival ? low : high) = middle;
    }
    Index const begin = plan.begins[low];
    Index const count = plan.begins[low + 1] - begin;
    return reinterpret_cast<Index const*>(plan.received) + plan.columns * begin + c * count + (arrival - begin);
}

struct InspectState {};
struct InspectShared {
    unsigned long long counts[3];
    unsigned long long ids_or;
    unsigned long long ids_and;
};
inline constexpr int inspect_items = 4;
inline constexpr Index inspect_tile = Index{inspect_items} * block_threads;

/// Ids and arrivals for the sort, slots into the bitmap, faults counted: one atomic a block and kind.
template <class Block>
RESHARD_HOST_DEVICE inline void inspect_tile_of(Block& block, InspectShared& shared, ReceivePlan const& plan,
                                                Index tile) {
    block.each([&](int thread, auto&) {
        if (thread < 3) shared.counts[thread] = 0;
        if (thread == 3) shared.ids_or = 0;
        if (thread == 4) shared.ids_and = ~0ULL;
    });
    block.each([&](int thread, auto&) {
        unsigned long long ids_or = 0;
        unsigned long long ids_and = ~0ULL;
        unsigned long long counts[3] = {};
        for (int i = 0; i < inspect_items; ++i) {
            Index const arrival = tile * inspect_tile + Index{i} * block_threads + thread;
            if (arrival >= plan.entries) continue;
            Index const id = *received_word(plan, 0, arrival);
            Index const slot = *received_word(plan, 1, arrival);
            plan.ids[arrival] = id;
            plan.arrivals[arrival] = static_cast<std::uint32_t>(arrival);
            ids_or |= static_cast<unsigned long long>(id);
            ids_and &= static_cast<unsigned long long>(id);
            if (id == plan.empty) ++counts[2];
            if (slot < plan.first || slot - plan.first >= plan.slots) {
                ++counts[0];
                continue;
            }
            Index const at = slot - plan.first;
            std::uint32_t const bit = std::uint32_t{1} << static_cast<unsigned>(at % 32);
            if ((block.fetch_or(plan.taken + at / 32, bit) & bit) != 0) ++counts[1];
        }
        for (int k = 0; k < 3; ++k) {
            if (counts[k] != 0) block.add(&shared.counts[k], counts[k]);
        }
        block.join(&shared.ids_or, ids_or);
        block.meet(&shared.ids_and, ids_and);
    });
    block.each([&](int thread, auto&) {
        if (thread == 0 && shared.counts[0] != 0) block.add(&plan.faults->slots_out_of_range, shared.counts[0]);
        if (thread == 0 && shared.counts[1] != 0) block.add(&plan.faults->duplicate_slots, shared.counts[1]);
        if (thread == 0 && shared.counts[2] != 0) block.add(&plan.faults->empty_ids, shared.counts[2]);
        if (thread == 0) block.join(&plan.faults->ids_or, shared.ids_or);
        if (thread == 0) block.meet(&plan.faults->ids_and, shared.ids_and);
    });
}

/// The bits that a radix sort of signed numbers has to look at: [begin, end), from the or and the and of all of them.
/// Bits above the highest that varies are equal in all; where the sign does not vary, order is that of the others.
struct SortBits {
    int begin = 0;
    int end = 0;
};
[[nodiscard]] RESHARD_HOST_DEVICE constexpr SortBits sort_bits(std::uint64_t all_or, std::uint64_t all_and) noexcept {
    std::uint64_t const varying = all_or & ~all_and;
    SortBits bits;
    if (varying == 0) return bits;
    while ((varying >> static_cast<unsigned>(bits.begin) & 1U) == 0) ++bits.begin;
    bits.end = 64;
    while ((varying >> static_cast<unsigned>(bits.end - 1) & 1U) == 0) --bits.end;
    return bits;
}

/// Whether a sorted id repeats the one before it.
[[nodiscard]] RESHARD_HOST_DEVICE inline bool repeats(ReceivePlan const& plan, Index place) noexcept {
    return place > 0 && place < plan.entries && plan.sorted[place] == plan.sorted[place - 1];
}

/// Bits of a word of the bitmap that are slots and free.
[[nodiscard]] RESHARD_HOST_DEVICE inline std::uint32_t free_bits(ReceivePlan const& plan, Index word) noexcept {
    Index const left = plan.slots - 32 * word;
    std::uint32_t const slots = left >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << static_cast<unsigned>(left)) - 1U;
    return ~plan.taken[word] & slots;
}
RESHARD_HOST_DEVICE inline void count_free(ReceivePlan const& plan, Index word) noexcept {
    if (word < plan.words()) plan.free[word] = static_cast<std::uint32_t>(ones(free_bits(plan, word)));
    if (word == plan.words()) plan.free[word] = 0;
}

/// A rebuilt shard: `slots` elements a column, column 0 the ids, column 1 the slots.
struct RebuildColumns {
    InlineList<Index*, max_receive_columns> data;
};

/// One row of the shard: sorted entries first, empty places behind. Slots of empty places are write_free()'s.
RESHARD_HOST_DEVICE inline void rebuild_row(ReceivePlan const& plan, RebuildColumns const& columns,
                                            Index row) noexcept {
    if (row >= plan.slots) return;
    if (row >= plan.entries) {
        columns.data[0][row] = plan.empty;
        for (int c = 2; c < plan.columns; ++c) columns.data[c][row] = 0;
        return;
    }
    Index const arrival = plan.order[row];
    columns.data[0][row] = plan.sorted[row];
    for (int c = 1; c < plan.columns; ++c) columns.data[c][row] = *received_word(plan, c, arrival);
}

/// The free slots of a word, ascending, to where empty places want them: the last slot, if free, comes last.
RESHARD_HOST_DEVICE inline void write_free(ReceivePlan const& plan, Index* slots, Index word) noexcept {
    if (word >= plan.words()) return;
    Index row = plan.entries + plan.free_before[word];
    for (std::uint32_t rest = free_bits(plan, word); rest != 0; rest &= rest - 1U) {
        slots[row++] = plan.first + 32 * word + ones((rest & (~rest + 1U)) - 1U);
    }
}

}  // namespace reshard::inline v0::detail
