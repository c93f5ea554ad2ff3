// SPDX-License-Identifier: Apache-2.0
// How mch/slot_bitmap.hpp is done.
#pragma once

#include <reshard/mch/slot_bitmap.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE SlotBitmap::SlotBitmap(Index first, Index count) : first_(first), count_(count) {
    if (first < 0 || count < 0 || first > INT64_MAX - count || count > INT64_MAX - 4096) {
        raise(ErrorCode::shape, concat("reshard::SlotBitmap: ", count, " slots from ", first,
                                       ". Fix: give a range of slots within 0 ... 2^63 - 1."));
    }
    if (count == 0) return;
    spread_ = std::bit_floor(static_cast<std::uint64_t>(count)) - 1;
    memory_ = Scratch(word_count() * 8);
    words_ = reinterpret_cast<std::uint64_t*>(memory_.data());
    std::memset(words_, 0, memory_.bytes().size());
}

RESHARD_INLINE Index SlotBitmap::taken() const noexcept {
    Index total = 0;
    for (Index w = 0; w < word_count(); ++w) total += std::popcount(words_[w]);
    return total;
}

RESHARD_INLINE Index SlotBitmap::free_slots(std::span<Index> list) const noexcept {
    Index written = 0;
    auto const room = static_cast<Index>(list.size());
    for (Index w = 0; w < word_count() && written < room; ++w) {
        std::uint64_t open = ~words_[w];
        Index const rest = count_ - 64 * w;
        if (rest < 64) open &= (std::uint64_t{1} << rest) - 1;
        for (; open != 0 && written < room; open &= open - 1) {
            list[static_cast<std::size_t>(written++)] = first_ + 64 * w + std::countr_zero(open);
        }
    }
    return written;
}

}  // namespace reshard::inline v0
