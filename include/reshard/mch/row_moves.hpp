// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/row_moves.hpp
/// \brief  Rows of weights and optimizer states that follow their ids to other slots.
/// \depends mch/redistribute.hpp, mch/slot_bitmap.hpp, memory/scratch.hpp.
#pragma once

#include <reshard/mch/redistribute.hpp>
#include <reshard/mch/slot_bitmap.hpp>
#include <reshard/memory/scratch.hpp>

namespace reshard::inline v0 {

namespace detail {

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

}  // namespace detail

/// Collective over `comm`. `rows` are this rank's parts of the table's weights and of its optimizer states, all of
/// which follow the ids: one row per slot of its shard, [z] or [z, ...], dense, of any element type with whole bytes,
/// loaded by position. Row `move.from` of each whole becomes row `move.to`, all at once: what is overwritten has been
/// read. Rows that no move names stay. The same number of views in the same order on all ranks; a rank without slots
/// may leave them null.
///
/// One exchange of counts, one of row numbers, one of rows, however many views; with one rank no collective call.
/// Memory beside the rows: those that leave this rank, those that come, their numbers, and a bit per row.
///
/// Throws the same error on every rank before anything is written: BufferError for rows that are not the shard's,
/// MismatchError for moves without any rows, for a move from a row the table does not have, or into another rank's
/// shard, for two into one row, and for rows that are of another width on another rank; DTypeError; OutOfMemory.
inline void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, std::span<DynamicView const> rows,
                            CommunicatorRef comm) {
    int const rank = comm.rank();
    auto const ranks = static_cast<std::size_t>(comm.size());
    Interval range{};
    detail::MchRowMoves mine;
    std::vector<Index> widths(rows.size(), 0);
    std::vector<std::byte*> own(rows.size(), nullptr);
    Index row_bytes = 0;
    std::vector<detail::MchRowCount> counts(ranks);
    std::vector<detail::MchRowCount> theirs(ranks);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    Digest digest;
    reshard::digest(digest, table);
    digest.add(rows.size());
    detail::agree_after(comm, digest.value(), [&] {
        check_table(table);
        detail::check_rows_given(table, rank, moves.size(), rows.size());
        range = table.range(rank);
        detail::MchBuffers buffers(table, rank);
        for (std::size_t v = 0; v < rows.size(); ++v) {
            widths[v] = bytes(rows[v].dtype());
            for (int d = 1; d < rows[v].rank(); ++d) widths[v] *= rows[v].extent(d);
            own[v] = buffers.column(rows[v], rows.size() == 1 ? "the rows" : concat("the rows of view ", v),
                                    range.size(), widths[v]);
            detail::refuse_device_buffer(table, rank, own[v]);
            row_bytes += widths[v];
        }
        mine.sort(moves, table, rank, ranks);
        for (std::size_t r = 0; r < ranks; ++r) counts[r] = {mine.count(r), row_bytes};
        theirs = counts;
        detail::list_all_to_all(std::as_bytes(std::span(counts)), std::as_writable_bytes(std::span(theirs)),
                                comm.size(), sends, receives);
    });
    if (ranks != 1) comm.exchange(sends, receives).wait();

    std::vector<Index> asked;
    std::vector<Index> asked_begin{0};
    std::vector<std::byte> arriving;
    std::vector<std::byte> leaving;
    detail::agree_after(comm, digest.value(), [&] {
        sends.clear();
        receives.clear();
        for (std::size_t r = 0; r < ranks; ++r) {
            bool const meet = counts[r].rows != 0 || theirs[r].rows != 0;
            if (meet && theirs[r].row_bytes != row_bytes) {
                detail::refuse_row_bytes(table, rank, row_bytes, static_cast<int>(r), theirs[r].row_bytes);
            }
            asked_begin.push_back(asked_begin.back() + theirs[r].rows);
        }
        asked.resize(static_cast<std::size_t>(asked_begin.back()));
        arriving.resize(mine.wanted.size() * static_cast<std::size_t>(row_bytes));
        leaving.resize(asked.size() * static_cast<std::size_t>(row_bytes));
        for (std::size_t r = 0; r < ranks; ++r) {
            if (counts[r].rows != 0) {
                sends.push_back({static_cast<int>(r),
                                 reinterpret_cast<std::byte const*>(mine.wanted.data() + mine.begin(r)),
                                 detail::byte_box(counts[r].rows * 8)});
            }
            if (theirs[r].rows != 0) {
                receives.push_back({static_cast<int>(r), reinterpret_cast<std::byte*>(asked.data() + asked_begin[r]),
                                    detail::byte_box(theirs[r].rows * 8)});
            }
        }
    });
    if (ranks != 1) {
        comm.exchange(sends, receives).wait();
    } else {
        asked = mine.wanted;
    }

    std::byte* to = leaving.data();
    for (Index row : asked) {
        for (std::size_t v = 0; v < rows.size(); ++v) {
            std::memcpy(to, own[v] + (row - range.begin) * widths[v], static_cast<std::size_t>(widths[v]));
            to += widths[v];
        }
    }
    sends.clear();
    receives.clear();
    for (std::size_t r = 0; r < ranks && row_bytes != 0; ++r) {
        if (theirs[r].rows != 0) {
            sends.push_back({static_cast<int>(r), leaving.data() + asked_begin[r] * row_bytes,
                             detail::byte_box(theirs[r].rows * row_bytes)});
        }
        if (counts[r].rows != 0) {
            receives.push_back({static_cast<int>(r), arriving.data() + mine.begin(r) * row_bytes,
                                detail::byte_box(counts[r].rows * row_bytes)});
        }
    }
    if (ranks != 1) {
        comm.exchange(sends, receives).wait();
    } else {
        arriving.swap(leaving);
    }
    std::byte const* from = arriving.data();
    for (Index row : mine.targets) {
        for (std::size_t v = 0; v < rows.size(); ++v) {
            std::memcpy(own[v] + (row - range.begin) * widths[v], from, static_cast<std::size_t>(widths[v]));
            from += widths[v];
        }
    }
}

/// The same for one view.
inline void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, DynamicView const& rows,
                            CommunicatorRef comm) {
    apply_row_moves(moves, table, std::span<DynamicView const>(&rows, 1), comm);
}

}  // namespace reshard::inline v0
