// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/succession.hpp
/// \brief  A new shard whose parts follow one another by id: no merge, and what stays is moved where it lies.
/// \depends mch/packed, mch/detail/{own_entries,refusals,score}, memory/scratch.
///
/// Each saved shard held ids of a range of its own, so what comes from different ranks hardly ever overlaps. Then the
/// order of runs is the order of entries, and nothing need be written for it, nor for what a rank keeps. Whatever is
/// out of the ordinary (ids that overlap or repeat, too many of them, numbers that cannot be) is only noticed here: the
/// merge deals with it.
#pragma once

#include <reshard/core/sorting.hpp>
#include <reshard/mch/detail/own_entries.hpp>
#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/detail/score.hpp>
#include <reshard/mch/packed.hpp>
#include <reshard/memory/scratch.hpp>

#include <algorithm>  // copy

namespace reshard::inline v0 {

namespace detail {

class MchSuccession {
public:
    /// \pre `table` outlives this, and so do `own` (if it is not null) and what `add` names.
    MchSuccession(MchTable const& table, MchShard const& shard, MchOwnEntries* own)
        : table_(&table), shard_(shard), own_(own) {
        if (own_ != nullptr) kept_ = own_->count;
    }

    /// A packed block of entries.
    void add(std::byte const* block, Index entries) {
        kept_ += entries;
        auto const* const ids = reinterpret_cast<Index const*>(block);
        for (Index begin = 0; begin < entries && ascends_;) {
            Index const end = end_of_run(ids, begin, entries);
            runs_.push_back({block, entries, begin, end, 0});
            begin = end;
            ascends_ = static_cast<Index>(runs_.size()) <= most_runs;
        }
    }
    /// Works out the shard and what becomes of its ids; false when this is a case for the merge. Writes nothing of the
    /// caller's.
    [[nodiscard]] bool arrange(bool may_move, Index iteration, std::vector<MchRowMove>& moves) {
        if (!ascends_ || kept_ >= shard_.entries || !line_up()) return false;
        return is_sound(iteration) && give_slots(may_move, moves);
    }
    [[nodiscard]] Index kept() const noexcept { return kept_; }

    /// Writes the columns.
    template <class Team>
    void commit(int parts, Team&& team) {
        auto const columns = static_cast<int>(table_->metadata.size()) + 2;
        team(parts, [&](int part) {
            std::byte* words[MchOwnEntries::most_words];
            std::size_t count = 0;
            for (int c = part; c < columns && own_ != nullptr; c += parts) {
                auto const column = static_cast<std::size_t>(c);
                std::byte* const at = address_of(column);
                if (at != nullptr && width_of(column) != 8) own_->move(at, width_of(column));
                if (at != nullptr && width_of(column) == 8) words[count++] = at;
                bool const last = c + parts >= columns;
                if (count != MchOwnEntries::most_words && !last) continue;
                own_->move_words({words, count});
                count = 0;
            }
            for (int c = part; c < columns; c += parts) write(static_cast<std::size_t>(c));
        });
    }

private:
    /// Entries [begin, end) of a block, whose ids ascend.
    struct Run {
        std::byte const* block;
        Index entries;  ///< of the block
        Index begin;
        Index end;
        Index to;
    };
    static constexpr Index most_runs = 4096;

    [[nodiscard]] static Index end_of_run(Index const* ids, Index begin, Index end) noexcept {
        constexpr Index step = 512;
        Index at = begin + 1;
        while (at + step <= end && ascend_with_one_sign(ids + at - 1, step + 1)) at += step;
        while (at < end && ids[at - 1] < ids[at]) ++at;
        return at;
    }

    /// Puts runs and stretches in order and gives them their places; false when their ids overlap.
    [[nodiscard]] bool line_up() {
        struct PieceOfRun {
            Index first;  ///< id
            Index last;
            Run* run;
            MchStretch* stretch;
        };
        std::vector<PieceOfRun> pieces;
        for (Run& run : runs_) {
            auto const* const ids = reinterpret_cast<Index const*>(run.block);
            pieces.push_back({ids[run.begin], ids[run.end - 1], &run, nullptr});
        }
        if (own_ != nullptr) {
            if (!own_->in_stretches) return false;
            for (MchStretch& one : own_->stretches) {
                pieces.push_back({shard_.ids[one.begin], shard_.ids[one.end - 1], nullptr, &one});
            }
        }
        sort_list(pieces, [](PieceOfRun const& a, PieceOfRun const& b) { return a.first < b.first; });
        Index to = 0;
        Index last_position = -1;
        for (std::size_t p = 0; p < pieces.size(); ++p) {
            PieceOfRun const& one = pieces[p];
            if (p != 0 && pieces[p - 1].last >= one.first) return false;
            if (one.run != nullptr) {
                one.run->to = to;
                to += one.run->end - one.run->begin;
                continue;
            }
            if (one.stretch->begin < last_position) return false;  // shards that were not loaded in their order
            last_position = one.stretch->begin;
            own_->place(*one.stretch, to);
            to += one.stretch->count;
        }
        order_.reserve(pieces.size());
        for (PieceOfRun const& one : pieces) order_.push_back({one.run, one.stretch});
        return true;
    }

    /// Whether counts are from 0 on and none is INT64_MAX, and accesses are from 0 on and not after the iteration.
    [[nodiscard]] bool is_sound(Index iteration) const noexcept {
        auto const latest = static_cast<std::uint64_t>(iteration);
        MchScored const scored(*table_);
        return iteration >= 0 &&
               all_of_column(
                   scored.counts,
                   [](Index count) { return count | static_cast<Index>(static_cast<std::uint64_t>(count) + 1); }) &&
               all_of_column(scored.access, [latest](Index access) {
                   return access | static_cast<Index>(latest - static_cast<std::uint64_t>(access));
               });
    }
    /// Whether `sign` is negative for none of a column's entries, if there is one.
    template <class Sign>
    [[nodiscard]] bool all_of_column(int place, Sign const& sign) const noexcept {
        if (place < 0) return true;
        auto const column = static_cast<std::size_t>(place);
        Index signs = 0;
        for (Run const& run : runs_) {
            auto const* const numbers = reinterpret_cast<Index const*>(column_of(run, column));
            for (Index i = 0; i < run.end - run.begin; ++i) signs |= sign(numbers[i]);
        }
        if (own_ == nullptr) return signs >= 0;
        auto const* const numbers = reinterpret_cast<Index const*>(address_of(column));
        for (MchStretch const& one : own_->stretches) {
            Index found = 0;
            for (Index i = one.begin; i < one.end; ++i) found |= sign(numbers[i]);
            if (found >= 0) continue;
            for (Index i = one.begin; i < one.end; ++i) signs |= sign(numbers[i]) & -own_->stays(i);
        }
        return signs >= 0;
    }
    [[nodiscard]] std::byte const* column_of(Run const& run, std::size_t column) const noexcept {
        std::byte const* at = run.block;
        for (std::size_t c = 0; c < column; ++c) at += packed_column_bytes(run.entries, width_of(c));
        return at + run.begin * width_of(column);
    }
    [[nodiscard]] Index width_of(std::size_t column) const noexcept {
        return column < 2 ? 8 : table_->metadata[column - 2].bytes;
    }

    /// Gives every entry a slot of the shard: its own where that is one, else the lowest free one. The last is the row
    /// of misses. False when two entries hold a slot and, where slots stay, when one is not of the shard.
    [[nodiscard]] bool give_slots(bool may_move, std::vector<MchRowMove>& moves) {
        Index const reserved = shard_.range().end - 1;
        MchTakenSlots taken(shard_.range());
        list_memory_ = Scratch((kept_ + 1) * static_cast<Index>(sizeof(MchRowMove)));
        homeless_ = {reinterpret_cast<MchRowMove*>(list_memory_.data()), 0};
        MchRowMove* homeless = homeless_.data();
        Index position = 0;
        auto const look = [&](Index const* slots, Index count, auto const& is_meant) {
            MchRowMove* next = homeless;  // locals: what is written through pointers could be these
            Index at = position;
            for (Index i = 0; i < count; ++i) {  // without branches: who stays follows no pattern
                Index const slot = slots[i];
                Index const meant = is_meant(i);
                Index const stays = meant & static_cast<Index>(shard_.can_keep(slot));
                taken.take_if(slot, stays);
                *next = {slot, at};
                next += meant - stays;
                at += meant;
            }
            homeless = next;
            position = at;
        };
        auto const all = [](Index) { return Index{1}; };
        for (Link const& one : order_) {
            if (one.run != nullptr) {
                look(reinterpret_cast<Index const*>(column_of(*one.run, 1)), one.run->end - one.run->begin, all);
            } else if (one.stretch->is_dense()) {
                look(shard_.slots + one.stretch->begin, one.stretch->count, all);
            } else {
                look(shard_.slots + one.stretch->begin, one.stretch->end - one.stretch->begin,
                     [own = own_, begin = one.stretch->begin](Index i) { return own->stays(begin + i); });
            }
        }
        static_cast<void>(taken.take(reserved));
        homeless_ = {homeless_.data(), homeless};
        Index on_reserved = 0;
        for (MchRowMove const& one : homeless_) on_reserved += static_cast<Index>(one.from == reserved);
        auto const moving = static_cast<Index>(homeless_.size());
        if (taken.taken() != kept_ - moving + 1 || on_reserved > 1 || (!may_move && moving != on_reserved))
            return false;
        free_memory_ = taken.list_free();
        free_ = free_memory_.words();
        list_moves(moves);
        return true;
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
    [[nodiscard]] std::byte* address_of(std::size_t column) const noexcept {
        if (column >= 2) return shard_.metadata[column - 2];
        return reinterpret_cast<std::byte*>(column == 0 ? shard_.ids : shard_.slots);
    }
    /// What comes from others, and empty places.
    void write(std::size_t c) {
        std::byte* const to = address_of(c);
        if (to == nullptr) return;
        Index const width = width_of(c);
        for (Run const& run : runs_) {
            std::memcpy(to + run.to * width, column_of(run, c),
                        static_cast<std::size_t>((run.end - run.begin) * width));
        }
        if (c == 0) {
            std::fill(shard_.ids + kept_, shard_.ids + shard_.entries, empty_id(table_->layout));
        } else if (c == 1) {
            std::size_t next = 0;
            for (MchRowMove const& one : homeless_) shard_.slots[one.to] = free_[next++];
            for (Index i = kept_; i < shard_.entries; ++i) shard_.slots[i] = free_[next++];
        } else {
            std::memset(to + kept_ * width, table_->metadata[c - 2].empty,
                        static_cast<std::size_t>((shard_.entries - kept_) * width));
        }
    }

    /// Either a run or a stretch.
    struct Link {
        Run const* run;
        MchStretch const* stretch;
    };

    MchTable const* table_;
    MchShard shard_;
    MchOwnEntries* own_;
    Index kept_ = 0;
    bool ascends_ = true;  ///< whether there are few runs
    std::vector<Run> runs_;
    std::vector<Link> order_;  ///< by id
    Scratch list_memory_;
    std::span<MchRowMove> homeless_;  ///< slots that cannot be kept, and the positions of their entries
    Scratch free_memory_;
    std::span<Index> free_;  ///< free slots, ascending, the last slot last
};

}  // namespace detail

}  // namespace reshard::inline v0
