// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_slots.hpp
/// \brief  The kernel bodies that give the entries of a shard their slots, and write it.
/// \depends mch/detail/device_kernels. Compiles without CUDA.
#pragma once

#include <reshard/mch/detail/device_kernels.hpp>

namespace reshard::inline v0_1::detail {

// ---- Slots -------------------------------------------------------------------------------------------------------

/// Sets one of a list of bits; whether it was set.
template <class Block>
[[nodiscard]] RESHARD_HOST_DEVICE inline bool set_bit(Block& block, std::uint32_t* bits, Index at) {
    std::uint32_t const bit = std::uint32_t{1} << static_cast<unsigned>(at % 32);
    return (block.fetch_or(bits + at / 32, bit) & bit) != 0;
}
/// Marks slots that are kept, and says which entries need another. `taken` has a bit per slot but the last.
struct MchMarkSlots {
    MchReceived received;
    std::uint32_t const* order = nullptr;
    Index kept = 0;
    Index first = 0;
    Index slots = 0;  ///< of the shard, the last included
    std::uint32_t* taken = nullptr;
    std::uint32_t* moved = nullptr;  ///< [kept + 1], a zero behind the last
    MchFindings* found = nullptr;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, Index i) const {
        if (i == kept) {
            moved[i] = 0;
            return;
        }
        Index const slot = received.word(1, as_index(order[i]));
        bool const stays = slot >= first && slot - first < slots - 1;
        moved[i] = stays ? 0 : 1;
        if (slot == first + slots - 1) block.add(&found->on_reserved, 1ULL);
        if (stays && set_bit(block, taken, slot - first)) block.add(&found->faults, 1ULL);
    }
};
/// Where slots stay: marks those of all entries, the last slot too, and counts what is faulty.
struct MchCheckSlots {
    MchReceived received;
    Index first = 0;
    Index slots = 0;
    std::uint32_t* taken = nullptr;
    MchFindings* found = nullptr;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, Index arrival) const {
        Index const slot = received.word(1, arrival);
        bool const outside = slot < first || slot - first >= slots;
        if (outside || set_bit(block, taken, slot - first)) block.add(&found->faults, 1ULL);
    }
};

/// Which slots of [first, first + slots) nobody has.
struct MchFreeSlots {
    Index first = 0;
    Index slots = 0;                       ///< all but the last
    std::uint32_t const* taken = nullptr;  ///< a bit per slot
    std::uint32_t* free = nullptr;         ///< free slots per word, and a zero behind the last
    Index const* free_before = nullptr;    ///< their exclusive sum, that goes on from another list's

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index words() const noexcept { return ceil_div(slots, 32); }
    [[nodiscard]] RESHARD_HOST_DEVICE std::uint32_t free_bits(Index word) const noexcept {
        if (word == words()) return 0;
        Index const left = slots - 32 * word;
        return ~taken[word] & (left >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << static_cast<unsigned>(left)) - 1U);
    }
};
struct MchCountFree {
    MchFreeSlots among;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index word) const {
        among.free[word] = static_cast<std::uint32_t>(ones(among.free_bits(word)));
    }
};
/// The free slots, ascending, the last slot behind them.
struct MchListFree {
    MchFreeSlots among;
    Index* list;
    /// A thread a slot: those of a warp write side by side.
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index slot) const {
        bool const last = slot == among.slots;
        Index const word = last ? among.words() : slot / 32;
        auto const bit = static_cast<int>(slot % 32);
        std::uint32_t const bits = among.free_bits(word);
        if (!last && (bits >> static_cast<unsigned>(bit) & 1U) == 0) return;
        Index const before = among.free_before[word] - among.free_before[0];
        list[last ? before : before + ones_below(bits, bit)] = among.first + slot;
    }
};
/// A slot for every row: its own, the lowest free ones in turn, then what is left.
struct MchGiveSlots {
    MchReceived received;
    std::uint32_t const* order = nullptr;
    Index kept = 0;
    Index homeless = 0;                   ///< how many move
    Index const* moved_before = nullptr;  ///< [kept + 1], goes on from another list's
    Index const* free = nullptr;
    Index* slots = nullptr;
    MchRowMove* moves = nullptr;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index row) const {
        if (row >= kept) {
            slots[row] = free[homeless + row - kept];
            return;
        }
        Index const slot = received.word(1, as_index(order[row]));
        if (homeless == 0 || moved_before[row] == moved_before[row + 1]) {
            slots[row] = slot;
            return;
        }
        Index const number = moved_before[row] - moved_before[0];
        moves[number] = {slot, free[number]};
        slots[row] = free[number];
    }
};

// ---- The shard ---------------------------------------------------------------------------------------------------

struct MchWriteIds {
    Index const* from;
    Index kept;
    Index empty;
    Index* to;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index row) const {
        to[row] = row < kept ? from[row] : empty;
    }
};
struct MchWrittenColumn {
    int column = 2;
    std::uint8_t empty = 0;
    bool counts = false;  ///< INT64_MAX becomes `largest_count`
    std::byte* to = nullptr;
};
/// Columns of metadata whose elements are `pieces` of T.
template <class T>
struct MchWriteColumns {
    MchReceived received;
    std::uint32_t const* order = nullptr;
    Index kept = 0;
    Index pieces = 1;
    Index largest_count = 0;
    InlineList<MchWrittenColumn, max_device_columns> columns;

    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        Index const row = pieces == 1 ? i : i / pieces;
        Index const offset = (i - row * pieces) * as_index(sizeof(T));
        Index const width = pieces * as_index(sizeof(T));
        Index const arrival = row < kept ? as_index(order[row]) : 0;
        int const source = row < kept ? received.block_of(arrival) : 0;
        for (MchWrittenColumn const& column : columns) {
            T value;
            if (row < kept) {
                value = load_as<T>(received.element(source, column.column, width, arrival) + offset);
                if (column.counts && value == static_cast<T>(INT64_MAX)) value = static_cast<T>(largest_count);
            } else {
                std::memset(&value, column.empty, sizeof(T));
            }
            store_as<T>(column.to + i * as_index(sizeof(T)), value);
        }
    }
};

}  // namespace reshard::inline v0_1::detail
