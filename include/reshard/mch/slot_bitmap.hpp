// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/slot_bitmap.hpp
/// \brief  Which slots of a range are taken: finds those taken twice, lists the free ones.
/// \depends core, memory/scratch, <bit>.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>
#include <reshard/memory/scratch.hpp>

#include <bit>      // popcount, countr_zero, bit_floor
#include <cstring>  // memset
#include <span>     // span

namespace reshard::inline v0 {

/// A bit per slot.
class SlotBitmap {
public:
    /// Slots [first, first + count), all of them free. Throws ShapeError when they are negative or do not fit 64 bits,
    /// std::bad_alloc.
    SlotBitmap(Index first, Index count);

    [[nodiscard]] bool contains(Index slot) const noexcept { return slot >= first_ && slot - first_ < count_; }

    /// Marks one slot; false when it was taken. \pre contains(slot); no other thread marks.
    [[nodiscard]] bool take(Index slot) noexcept {
        std::uint64_t& word = words_[(slot - first_) / 64];
        std::uint64_t const bit = std::uint64_t{1} << (static_cast<std::uint64_t>(slot - first_) % 64);
        bool const was_free = (word & bit) == 0;
        word |= bit;
        return was_free;
    }
    /// Marks one slot if `yes` is 1; if it is 0, any number may be given. Without a branch, and without that numbers in
    /// a row wait for one word. \pre contains(slot) or not `yes`; there are slots; no other thread marks.
    void take_if(Index slot, Index yes) noexcept {
        auto const place = static_cast<std::uint64_t>(slot) - static_cast<std::uint64_t>(first_);
        std::uint64_t const within = place & (spread_ | (std::uint64_t{0} - static_cast<std::uint64_t>(yes)));
        words_[within / 64] |= static_cast<std::uint64_t>(yes) << (within % 64);
    }
    [[nodiscard]] Index taken() const noexcept;
    [[nodiscard]] Index free() const noexcept { return count_ - taken(); }

    /// Writes the free slots in ascending order, as many as `list` has room for; returns how many it wrote.
    Index free_slots(std::span<Index> list) const noexcept;

private:
    [[nodiscard]] Index word_count() const noexcept { return ceil_div(count_, 64); }

    Index first_;
    Index count_;
    std::uint64_t spread_ = 0;  ///< of the numbers up to 2^n - 1, the most that are all places
    Scratch memory_;
    std::uint64_t* words_ = nullptr;  ///< there
};

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/slot_bitmap.ipp>
#endif
