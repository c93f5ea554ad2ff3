// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/succession.hpp
/// \brief  A new shard whose parts follow one another by id: no merge, and what stays is moved where it lies.
/// \depends core/{large_memory,sorting}, memory/scratch, mch/{packed,transition}, mch/detail/{own_entries,parts,score,
///         taken_slots}.
///
/// Each saved shard held ids of a range of its own, so what comes from different ranks hardly ever overlaps. Then the
/// order of runs is the order of entries, and nothing need be written for it, nor for what a rank keeps. Whatever is
/// out of the ordinary (ids that overlap or repeat, too many of them, numbers that cannot be) is only noticed here: the
/// MchIncoming deals with it.
#pragma once

#include <reshard/core/large_memory.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/mch/detail/own_entries.hpp>
#include <reshard/mch/detail/parts.hpp>
#include <reshard/mch/detail/score.hpp>
#include <reshard/mch/detail/taken_slots.hpp>
#include <reshard/mch/packed.hpp>
#include <reshard/mch/transition.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // fill
#include <optional>   // optional

namespace reshard::inline v0_1::detail {

/// The move of a part's row of misses, its last slot: what lay there may have been an id's. It is the row of the saved
/// part as far along or, where that has no slots, of the next before it that has some, else of the first. None where
/// that is the same slot, and for a part without slots (-1: no part).
[[nodiscard]] inline std::optional<MchRowMove> miss_move(MchTable const& saved, MchTable const& current, Index part) {
    if (part < 0 || current.part_range(part).empty()) return std::nullopt;
    Index from = part * saved.parts() / current.parts();
    while (from > 0 && saved.part_range(from).empty()) --from;
    while (from < saved.parts() && saved.part_range(from).empty()) ++from;
    if (from == saved.parts()) return std::nullopt;
    MchRowMove const move{saved.part_range(from).end - 1, current.part_range(part).end - 1};
    return move.from == move.to ? std::nullopt : std::optional(move);
}

/// Whether rows of a part's free slots may be of ids that left or of misses: unless it was saved with the same slots
/// and has all of the ids that had them. `live`: ids that were saved in it, if it was; `kept`: those it has.
/// \pre the part has slots.
[[nodiscard]] inline bool has_freed(MchTable const& saved, MchTable const& current, Index part, Index live,
                                    Index kept) {
    bool const same = part < saved.parts() && saved.part_range(part) == current.part_range(part);
    return !same || kept < live;
}

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
        from_shard_ = entries_ - moving + on_reserved;
        bool const distinct = taken_.taken() == entries_ - moving + 1 && on_reserved <= 1;
        if (!distinct || (!may_move && moving != on_reserved)) return false;
        free_memory_ = taken_.list_free();
        free_ = free_memory_.words();
        list_moves(moves);
        return true;
    }
    /// Entries that came with a slot of the shard. \pre give().
    [[nodiscard]] Index from_shard() const noexcept { return from_shard_; }
    /// Slots that no entry has, ascending, but the last. \pre give().
    [[nodiscard]] std::span<Index const> free() const noexcept {
        return free_.subspan(homeless_.size(), as_size(range_.size() - 1 - entries_));
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
        moves.reserve(homeless_.size() + 1);  // and miss_move()
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
    Index from_shard_ = 0;
    Scratch homeless_memory_;
    std::span<MchRowMove> homeless_;  ///< slots that cannot be kept, and the positions of their entries
    Scratch free_memory_;
    std::span<Index> free_;  ///< free slots, ascending, the last slot last
};

class MchSuccession {
public:
    /// \pre `table` outlives this, and so do `own` (if it is not null) and what `add` names.
    MchSuccession(MchTable const& table, MchShard const& shard, MchOwnEntries* own)
        : table_(&table), shard_(shard), own_(own), widths_(widths_of(table)) {
        if (own_ != nullptr) kept_ = own_->count;
    }

    /// A packed block of entries.
    void add(std::byte const* block, Index entries) {
        kept_ += entries;
        auto const* const ids = reinterpret_cast<Index const*>(block);
        for (Index begin = 0; begin < entries && ascends_;) {
            Index const end = end_of_run(ids, begin, entries);
            pieces_.push_back({ids[begin], ids[end - 1], block, entries, begin, end, 0, nullptr});
            begin = end;
            ascends_ = as_index(pieces_.size()) <= most_runs;
        }
    }
    /// Works out the shard and what becomes of its ids; false when this is a case for the caller. Writes nothing of the
    /// caller's.
    [[nodiscard]] bool arrange(bool may_move, Index iteration, std::vector<MchRowMove>& moves) {
        if (!ascends_ || kept_ >= shard_.entries || !line_up()) return false;
        return is_sound(iteration) && give_slots(may_move, moves);
    }
    [[nodiscard]] Index kept() const noexcept { return kept_; }
    /// \pre arrange() of a shard that has slots.
    [[nodiscard]] MchGivenSlots const& given() const noexcept { return *given_; }

    /// Writes the columns, each part by a thread.
    void commit(int parts) {
        auto const columns = static_cast<int>(widths_.size());
        run_parts(parts, parts, [&, this](int part) {
            std::byte* words[MchOwnEntries::most_words];
            std::size_t count = 0;
            for (int c = part; c < columns && own_ != nullptr; c += parts) {
                auto const column = as_size(c);
                std::byte* const at = shard_.column(column);
                if (at != nullptr && widths_[column] != 8) own_->move(at, widths_[column]);
                if (at != nullptr && widths_[column] == 8) words[count++] = at;
                bool const last = c + parts >= columns;
                if (count != MchOwnEntries::most_words && !last) continue;
                own_->move_words({words, count});
                count = 0;
            }
            for (int c = part; c < columns; c += parts) write(as_size(c));
        });
    }

private:
    static constexpr Index most_runs = 4096;
    /// Entries [begin, end) of a block that arrived, or of the shard itself, whose ids ascend.
    struct Piece {
        Index first;  ///< id
        Index last;
        std::byte const* block;
        Index entries;  ///< of the block
        Index begin;
        Index end;
        Index to;
        MchOwnRun* own;  ///< of the shard: which of them stay, and where they go

        [[nodiscard]] Index count() const noexcept { return own != nullptr ? own->count : end - begin; }
    };

    [[nodiscard]] static Index end_of_run(Index const* ids, Index begin, Index end) noexcept {
        constexpr Index step = 512;
        Index at = begin + 1;
        while (at + step <= end && ascend_with_one_sign(ids + at - 1, step + 1)) at += step;
        while (at < end && ids[at - 1] < ids[at]) ++at;
        return at;
    }

    /// Puts runs in order and gives them their places; false when their ids overlap.
    [[nodiscard]] bool line_up() {
        if (own_ != nullptr) {
            if (!own_->in_runs) return false;
            for (MchOwnRun& one : own_->runs) {
                pieces_.push_back(
                    {shard_.ids[one.begin], shard_.ids[one.end - 1], nullptr, 0, one.begin, one.end, 0, &one});
            }
        }
        sort_list(pieces_, [](Piece const& a, Piece const& b) { return a.first < b.first; });
        Index to = 0;
        Index last_position = -1;
        for (std::size_t p = 0; p < pieces_.size(); to += pieces_[p++].count()) {
            Piece& one = pieces_[p];
            if (p != 0 && pieces_[p - 1].last >= one.first) return false;
            one.to = to;
            if (one.own == nullptr) continue;
            if (one.begin < last_position) return false;  // shards that were not loaded in their order
            last_position = one.begin;
            own_->place(*one.own, to);
        }
        return true;
    }

    /// Whether counts are from 0 on and none is INT64_MAX, and accesses are from 0 on and not after the iteration.
    [[nodiscard]] bool is_sound(Index iteration) const noexcept {
        auto const latest = static_cast<std::uint64_t>(iteration);
        MchScored const scored(*table_);
        return iteration >= 0 &&
               all_of_column(scored.counts,
                             [](Index count) { return count | as_index(static_cast<std::uint64_t>(count) + 1); }) &&
               all_of_column(scored.access, [latest](Index access) {
                   return access | as_index(latest - static_cast<std::uint64_t>(access));
               });
    }
    /// Whether `sign` is negative for none of a column's entries, if there is one.
    template <class Sign>
    [[nodiscard]] bool all_of_column(int place, Sign const& sign) const noexcept {
        if (place < 0) return true;
        Index signs = 0;
        for (Piece const& one : pieces_) {
            auto const* const numbers = reinterpret_cast<Index const*>(column_of(one, as_size(place)));
            Index found = 0;
            for (Index i = 0; i < one.end - one.begin; ++i) found |= sign(numbers[i]);
            if (one.own == nullptr || found >= 0) {
                signs |= found;
                continue;
            }
            for (Index i = 0; i < one.end - one.begin; ++i) signs |= sign(numbers[i]) & -own_->stays(one.begin + i);
        }
        return signs >= 0;
    }
    [[nodiscard]] std::byte const* column_of(Piece const& one, std::size_t column) const noexcept {
        std::byte const* const first =
            one.own != nullptr ? shard_.column(column) : one.block + packed_column_begin(one.entries, widths_, column);
        return first + one.begin * widths_[column];
    }

    /// Gives every entry a slot of the shard.
    [[nodiscard]] bool give_slots(bool may_move, std::vector<MchRowMove>& moves) {
        given_.emplace(shard_.range(), kept_);
        for (Piece const& one : pieces_) {
            auto const* const slots = reinterpret_cast<Index const*>(column_of(one, 1));
            if (one.own == nullptr || one.own->is_dense()) {
                given_->look(slots, one.count());
            } else {
                given_->look(slots, one.end - one.begin,
                             [own = own_, begin = one.begin](Index i) { return own->stays(begin + i); });
            }
        }
        return given_->give(may_move, moves);
    }
    /// What comes from others, and empty places.
    void write(std::size_t c) {
        std::byte* const to = shard_.column(c);
        if (to == nullptr) return;
        Index const width = widths_[c];
        for (Piece const& one : pieces_) {
            if (one.own == nullptr) std::memcpy(to + one.to * width, column_of(one, c), as_size(one.count() * width));
        }
        if (c == 0) {
            std::fill(shard_.ids + kept_, shard_.ids + shard_.entries, empty_id(table_->layout));
        } else if (c == 1) {
            given_->write(shard_.slots);
        } else {
            std::memset(to + kept_ * width, table_->metadata[c - 2].empty, as_size((shard_.entries - kept_) * width));
        }
    }

    MchTable const* table_;
    MchShard shard_;
    MchOwnEntries* own_;
    std::vector<Index> widths_;  ///< of columns
    Index kept_ = 0;
    bool ascends_ = true;                 ///< whether there are few runs
    std::vector<Piece> pieces_;           ///< by their ids, once line_up() has sorted them
    std::optional<MchGivenSlots> given_;  ///< once they are in order
};

}  // namespace reshard::inline v0_1::detail
