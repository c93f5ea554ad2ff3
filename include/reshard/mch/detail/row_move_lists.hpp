// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/row_move_lists.hpp
/// \brief  Moves of rows by the rank that holds them, and what is refused of moves and rows.
/// \depends mch/{routing,slot_bitmap,transition}, memory/scratch.
#pragma once

#include <reshard/mch/routing.hpp>
#include <reshard/mch/slot_bitmap.hpp>
#include <reshard/mch/transition.hpp>
#include <reshard/memory/scratch.hpp>

namespace reshard::inline v0::detail {

/// How many rows a rank wants of another, and how wide they are there.
struct MchRowCount {
    Index rows = 0;
    Index row_bytes = 0;
};

[[noreturn]] inline void refuse_move(MchTable const& table, Index rank, MchRowMove const& move, Interval range) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("on rank ", rank, ": a move from row ", move.from, " to row ", move.to, ", but the table has ",
                        table.size(), " rows, this rank those from ", range.begin, " to ", range.end,
                        ". Fix: pass the moves that redistribute() returned on this rank."));
}
[[noreturn]] inline void refuse_target_twice(MchTable const& table, Index rank, Index row) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("on rank ", rank, ": two moves end at row ", row,
                        ". Fix: pass the moves that redistribute() returned on this rank, each once."));
}
inline void check_rows_given(MchTable const& table, Index rank, std::size_t moves, std::size_t views) {
    if (moves == 0 || views != 0) return;
    refuse_table(ErrorCode::mismatch, table,
                 concat("on rank ", rank, ": ", moves,
                        " moves and no rows to move. Fix: pass the weights and every state of the optimizer."));
}
[[noreturn]] inline void refuse_row_bytes(MchTable const& table, int rank, Index row_bytes, int other, Index others) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("rows have ", row_bytes, " bytes on rank ", rank, ", ", others, " on rank ", other,
                        ". Fix: pass the same weights and states on every rank."));
}

/// Moves of one rank, grouped by the rank that holds the rows. `wanted` and `asked` are grouped alike by rank.
class MchRowMoves {
public:
    /// Throws MismatchError for moves that are not this rank's, and for two to the same row.
    void sort(std::span<MchRowMove const> moves, MchTable const& table, Index rank, std::size_t ranks) {
        Interval const range = table.range(rank);
        SlotRouter const owner(table.slots);
        begin_.assign(ranks + 1, 0);
        auto const holder = [&](MchRowMove const& move) {
            return static_cast<std::size_t>(table.slots.mesh().rank_at(owner(move.from)));
        };
        SlotBitmap taken(range.begin, range.size());
        Scratch const bits(moves.empty() ? 0 : taken.workspace_bytes());
        if (!moves.empty()) taken.clear(bits.bytes());
        Index twice = INT64_MAX;
        for (MchRowMove const& move : moves) {
            if (move.from < 0 || move.from >= table.size() || !range.contains(move.to)) {
                refuse_move(table, rank, move, range);
            }
            if (!taken.take(move.to)) twice = smaller(twice, move.to);
            ++begin_[holder(move) + 1];
        }
        if (twice != INT64_MAX) refuse_target_twice(table, rank, twice);
        for (std::size_t r = 0; r < ranks; ++r) begin_[r + 1] += begin_[r];
        wanted.resize(moves.size());
        targets.resize(moves.size());
        std::vector<Index> next(begin_.begin(), begin_.end() - 1);
        for (MchRowMove const& move : moves) {
            auto const at = static_cast<std::size_t>(next[holder(move)]++);
            wanted[at] = move.from;
            targets[at] = move.to;
        }
    }
    [[nodiscard]] Index begin(std::size_t rank) const noexcept { return begin_[rank]; }
    [[nodiscard]] Index count(std::size_t rank) const noexcept { return begin_[rank + 1] - begin_[rank]; }

    std::vector<Index> wanted;   ///< rows of the whole that this rank wants
    std::vector<Index> targets;  ///< and where they go

private:
    std::vector<Index> begin_;  ///< per rank, and the end
};

}  // namespace reshard::inline v0::detail
