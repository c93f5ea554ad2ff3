// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/taken_slots.hpp
/// \brief  Which slots of a shard are taken: refuses those taken twice, lists the free ones.
/// \depends mch/detail/refusals, memory/scratch, <bit>.
#pragma once

#include <reshard/mch/detail/refusals.hpp>
#include <reshard/memory/scratch.hpp>

#include <bit>      // popcount, countr_zero, bit_floor
#include <cstring>  // memset

namespace reshard::inline v0_1::detail {

/// A bit per slot; none is taken at first.
class MchTakenSlots {
public:
    explicit MchTakenSlots(Interval slots) : slots_(slots) {
        if (slots.empty()) return;
        spread_ = std::bit_floor(static_cast<std::uint64_t>(slots.size())) - 1;
        memory_ = Scratch(ceil_div(slots.size(), 64) * 8);
        words_ = {reinterpret_cast<std::uint64_t*>(memory_.data()), memory_.words().size()};
        std::memset(words_.data(), 0, words_.size_bytes());
    }

    [[nodiscard]] bool has(Index slot) const noexcept { return slots_.contains(slot); }
    /// Marks one slot; false when it was taken. \pre it is one of them; no other thread marks.
    [[nodiscard]] bool take(Index slot) noexcept {
        auto const place = static_cast<std::uint64_t>(slot - slots_.begin);
        std::uint64_t& word = words_[place / 64];
        std::uint64_t const bit = std::uint64_t{1} << (place % 64);
        bool const was_free = (word & bit) == 0;
        word |= bit;
        return was_free;
    }
    /// Marks one slot if `yes` is 1; if it is 0, any number may be given. Without a branch, and without that numbers in
    /// a row wait for one word. \pre the slot is one of them, or not `yes`; there are slots; no other thread marks.
    void take_if(Index slot, Index yes) noexcept {
        auto const place = static_cast<std::uint64_t>(slot) - static_cast<std::uint64_t>(slots_.begin);
        std::uint64_t const within = place & (spread_ | (std::uint64_t{0} - static_cast<std::uint64_t>(yes)));
        words_[within / 64] |= static_cast<std::uint64_t>(yes) << (within % 64);
    }
    [[nodiscard]] Index taken() const noexcept {
        Index total = 0;
        for (std::uint64_t const word : words_) total += std::popcount(word);
        return total;
    }

    /// Where slots stay: all arrive at their owner, none twice. Throws MismatchError.
    void take_or_refuse(MchTable const& table, Index slot) {
        if (!slots_.contains(slot)) {
            refuse_table(ErrorCode::mismatch, table, "slot ", slot, " arrives at the owner of ", slots_.begin, " to ",
                         slots_.end, ". Fix: the saved state is corrupt; validate() says where.");
        }
        if (!take(slot)) refuse_slot_twice(table, slot);
    }
    /// Throws MismatchError where two of these entries, which come by their ids, have one slot: names that of the last
    /// that comes too late. The slot of misses is named after all others.
    void refuse_kept_twice(MchTable const& table, std::span<Index const> slots) {
        Index const reserved = slots_.end - 1;
        Index found = -1;
        for (Index const slot : slots) {
            if (!slots_.contains(slot) || take(slot)) continue;
            if (slot != reserved || found < 0) found = slot;
        }
        if (found >= 0) refuse_slot_twice(table, found);
    }
    /// The free ones, ascending, and behind all others the last slot, which is that of misses.
    [[nodiscard]] Scratch list_free() const {
        Scratch list((slots_.size() - taken() + 1) * 8);
        Index* next = list.words().data();
        for (Index begin = 0; begin < slots_.size(); begin += 64) {
            std::uint64_t open = ~words_[as_size(begin / 64)];
            Index const rest = slots_.size() - begin;
            if (rest < 64) open &= (std::uint64_t{1} << rest) - 1;
            for (; open != 0; open &= open - 1) *next++ = slots_.begin + begin + std::countr_zero(open);
        }
        *next = slots_.end - 1;
        return list;
    }

private:
    Interval slots_;
    std::uint64_t spread_ = 0;  ///< of the numbers up to 2^n - 1, the most that are all places
    Scratch memory_;
    std::span<std::uint64_t> words_;  ///< there
};

}  // namespace reshard::inline v0_1::detail
