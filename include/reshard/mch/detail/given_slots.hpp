// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/given_slots.hpp
/// \brief  Slots for the entries of a new shard: which keep theirs, which move to which, and what is left.
/// \depends core/large_pages, mch/detail/taken_slots, mch/transition, memory/scratch.
#pragma once

#include <reshard/core/large_pages.hpp>
#include <reshard/mch/detail/taken_slots.hpp>
#include <reshard/mch/transition.hpp>
#include <reshard/memory/scratch.hpp>

namespace reshard::inline v0::detail {

/// Gives every entry a slot of the shard: its own where it can keep it, else the lowest free one. The last slot is the
/// row of misses. Entries come in the order of their ids.
class MchGivenSlots {
public:
    /// \pre `range` has more slots than there are entries.
    MchGivenSlots(Interval range, Index entries)
        : range_(range),
          entries_(entries),
          taken_(range),
          homeless_memory_((entries + 1) * as_index(sizeof(MchRowMove))),
          homeless_(reinterpret_cast<MchRowMove*>(homeless_memory_.data()), 0) {}

    /// The slots that entries have had: of those places i where is_meant(i) is 1, not 0.
    template <class IsMeant>
    void look(Index const* slots, Index count, IsMeant const& is_meant) {
        MchRowMove* next = homeless_.data() + homeless_.size();  // locals: what is written could be the members
        Index at = position_;
        for (Index i = 0; i < count; ++i) {  // without branches: who stays follows no pattern
            Index const slot = slots[i];
            Index const meant = is_meant(i);
            Index const stays = meant & as_index(can_keep(slot));
            taken_.take_if(slot, stays);
            *next = {slot, at};
            next += meant - stays;
            at += meant;
        }
        homeless_ = {homeless_.data(), next};
        position_ = at;
    }
    void look(Index const* slots, Index count) {
        look(slots, count, [](Index) { return Index{1}; });
    }
    /// Gives the others theirs, and lists their moves. False when two entries hold a slot and, where slots stay, when
    /// one is not of the shard.
    [[nodiscard]] bool give(bool may_move, std::vector<MchRowMove>& moves) {
        static_cast<void>(taken_.take(range_.end - 1));
        Index on_reserved = 0;
        for (MchRowMove const& one : homeless_) on_reserved += static_cast<Index>(one.from == range_.end - 1);
        auto const moving = as_index(homeless_.size());
        bool const distinct = taken_.taken() == entries_ - moving + 1 && on_reserved <= 1;
        if (!distinct || (!may_move && moving != on_reserved)) return false;
        free_memory_ = taken_.list_free();
        free_ = free_memory_.words();
        list_moves(moves);
        return true;
    }
    /// Writes the slots that were given, and behind the entries those that are left. \pre the column has the entries'
    /// own.
    void write(Index* column) const noexcept {
        std::size_t next = 0;
        for (MchRowMove const& one : homeless_) column[one.to] = free_[next++];
        for (Index i = entries_; i < range_.size(); ++i) column[i] = free_[next++];
    }

private:
    /// Whether a slot is the shard's, and not the last.
    [[nodiscard]] bool can_keep(Index slot) const noexcept {
        return static_cast<std::uint64_t>(slot) - static_cast<std::uint64_t>(range_.begin) <
               static_cast<std::uint64_t>(range_.size() - 1);
    }
    void list_moves(std::vector<MchRowMove>& moves) const {
        constexpr std::size_t step = 1024;
        moves.reserve(homeless_.size());
        prefer_large_pages(moves.data(), homeless_.size() * sizeof(MchRowMove));
        for (std::size_t begin = 0; begin < homeless_.size(); begin += step) {
            std::size_t const end = smaller(begin + step, homeless_.size());
            moves.insert(moves.end(), homeless_.begin() + static_cast<std::ptrdiff_t>(begin),
                         homeless_.begin() + static_cast<std::ptrdiff_t>(end));
            for (std::size_t i = begin; i < end; ++i) moves[i].to = free_[i];
        }
    }

    Interval range_;
    Index entries_;
    MchTakenSlots taken_;
    Index position_ = 0;
    Scratch homeless_memory_;
    std::span<MchRowMove> homeless_;  ///< slots that cannot be kept, and the positions of their entries
    Scratch free_memory_;
    std::span<Index> free_;  ///< free slots, ascending, the last slot last
};

}  // namespace reshard::inline v0::detail
