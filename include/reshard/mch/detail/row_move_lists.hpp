// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/row_move_lists.hpp
/// \brief  Moves of rows by the rank that holds them, what ranks ask of each other, and what is refused of either.
/// \depends comm/{agree,collectives}, mch/routing, mch/detail/{buffers,refusals,taken_slots}.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/refusals.hpp>
#include <reshard/mch/detail/taken_slots.hpp>
#include <reshard/mch/routing.hpp>

namespace reshard::inline v0_1::detail {

/// How many rows a rank wants of another, and how wide they are there.
struct MchRowCount {
    Index rows = 0;
    Index row_bytes = 0;       ///< in all views
    std::uint64_t widths = 0;  ///< digest of those of the views, in their order
};

/// Collective: a rank's first work, then what it has in hand, told to all where that differs. Returns what the
/// agreements that follow compare.
template <class Work>
[[nodiscard]] std::uint64_t agree_on_rows(CommunicatorRef comm, MchTable const& table, std::size_t views,
                                          std::string_view where, Work&& work) {
    Digest digest;
    digest.add_text(where);
    reshard::digest(digest, table);
    digest.add(views);
    std::string words;
    agree_on_work(
        comm,
        [&] {
            work();
            words = concat("moves rows ", where, ": ", views, " views of table ", to_string(table));
        },
        [&](Verdict mine) {
            mine.digest = digest.value();
            if (mine.ok()) mine.reason = std::move(words);
            agree_or_raise(comm, std::move(mine));
        });
    return digest.value();
}

/// Rows of several views: one record of all of them for each.
struct MchRowViews {
    std::vector<std::byte*> data;
    std::vector<Index> widths;
    Index record_bytes = 0;

    /// Throws BufferError for views that do not hold the rank's rows, or that `buffers` refuse, and MismatchError for
    /// moves without any.
    void take(std::span<DynamicView const> rows, Index entries, std::size_t moves, MchBuffers&& buffers) {
        if (moves != 0 && rows.empty()) {
            buffers.refuse(ErrorCode::mismatch, moves,
                           " moves and no rows to move. Fix: pass the weights and every state of the optimizer.");
        }
        for (std::size_t v = 0; v < rows.size(); ++v) {
            std::string const what = rows.size() == 1 ? std::string("the rows") : concat("the rows of view ", v);
            Index const width = entry_bytes(rows[v]);
            widths.push_back(width);
            data.push_back(buffers.column(rows[v], what, entries, width));
            record_bytes += width;
        }
    }
    [[nodiscard]] std::uint64_t widths_digest() const {
        Digest digest;
        for (Index width : widths) digest.add_signed(width);
        return digest.value();
    }
};

/// Rows that ranks want of each other: how many, then which, then their records. By rank, in memory of the caller's.
struct MchRowExchange {
    std::vector<MchRowCount> counts;  ///< that this rank wants of each
    std::vector<MchRowCount> theirs;  ///< that each wants of this one
    std::vector<Index> begins;        ///< of each among those that this rank wants
    std::vector<Index> asked_begins;  ///< and among those that it is asked for; the end
    TransferLists lists;

    void resize(std::size_t ranks, MchRowViews const& views) {
        counts.assign(ranks, {0, views.record_bytes, views.widths_digest()});
        begins.assign(ranks, 0);
        asked_begins.reserve(ranks + 1);
        lists.make_room(static_cast<int>(ranks));
    }
    void list_counts(std::span<MchRowCount const> to, std::span<MchRowCount> from) {
        list_all_to_all(std::as_bytes(to), std::as_writable_bytes(from), static_cast<int>(counts.size()), lists);
    }
    /// Returns how many rows the rank is asked for. Throws MismatchError for records of another form.
    [[nodiscard]] Index count_asked(MchTable const& table, int rank) {
        Index asked = 0;
        asked_begins.clear();
        for (std::size_t r = 0; r < counts.size(); ++r) {
            bool const meet = counts[r].rows != 0 || theirs[r].rows != 0;
            if (meet && theirs[r].widths != counts[r].widths) {
                bool const same_bytes = theirs[r].row_bytes == counts[r].row_bytes;
                refuse_table(ErrorCode::mismatch, table, "rows have ", counts[r].row_bytes, " bytes on rank ", rank,
                             ", ", theirs[r].row_bytes, " on rank ", r, same_bytes ? ", in views of other widths" : "",
                             ". Fix: pass the same weights and states on every rank.");
            }
            asked_begins.push_back(asked);
            asked += theirs[r].rows;
        }
        return asked;
    }
    /// From `out` to `in`: what was listed. What one rank alone wants of others is what it is asked for.
    template <class List>
    void deliver(CommunicatorRef comm, List& out, List& in) {
        if (comm.size() != 1) return lists.deliver(comm);
        std::swap(out, in);
    }
    void list_numbers(Index const* wanted, Index* asked) {
        lists.clear();
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const peer = static_cast<int>(r);
            lists.send(peer, std::span(wanted + begins[r], as_size(counts[r].rows)));
            lists.receive(peer, std::span(asked + asked_begins[r], as_size(theirs[r].rows)));
        }
    }
    void list_records(std::byte const* leaving, std::byte* arriving) {
        lists.clear();
        for (std::size_t r = 0; r < counts.size(); ++r) {
            auto const peer = static_cast<int>(r);
            Index const width = counts[r].row_bytes;
            lists.send(peer, std::span(leaving + asked_begins[r] * width, as_size(theirs[r].rows * width)));
            lists.receive(peer, std::span(arriving + begins[r] * width, as_size(counts[r].rows * width)));
        }
    }
};

/// Moves of one rank, grouped by the rank that holds the rows.
struct MchRowMoves {
    std::vector<Index> wanted;   ///< rows of the whole that this rank wants
    std::vector<Index> targets;  ///< and where they go

    /// Throws MismatchError for moves that are not this rank's, and for two to the same row.
    void sort(std::span<MchRowMove const> moves, MchTable const& table, Index rank, MchRowExchange& exchange) {
        Interval const range = table.range(rank);
        SlotRouter const owner(table.slots);
        auto const holder = [&](MchRowMove const& move) {
            return as_size(table.slots.mesh().rank_at(owner(move.from)));
        };
        MchTakenSlots taken(range);
        Index twice = INT64_MAX;
        for (MchRowMove const& move : moves) {
            if (move.from < 0 || move.from >= table.size() || !range.contains(move.to)) {
                refuse_table(ErrorCode::mismatch, table, "on rank ", rank, ": a move from row ", move.from, " to row ",
                             move.to, ", but the table has ", table.size(), " rows, this rank those from ", range.begin,
                             " to ", range.end, ". Fix: pass the moves that redistribute() returned on this rank.");
            }
            if (!taken.take(move.to)) twice = smaller(twice, move.to);
            ++exchange.counts[holder(move)].rows;
        }
        if (twice != INT64_MAX) {
            refuse_table(ErrorCode::mismatch, table, "on rank ", rank, ": two moves end at row ", twice,
                         ". Fix: pass the moves that redistribute() returned on this rank, each once.");
        }
        for (std::size_t r = 1; r < exchange.begins.size(); ++r) {
            exchange.begins[r] = exchange.begins[r - 1] + exchange.counts[r - 1].rows;
        }
        wanted.resize(moves.size());
        targets.resize(moves.size());
        std::vector<Index> next = exchange.begins;
        for (MchRowMove const& move : moves) {
            auto const at = as_size(next[holder(move)]++);
            wanted[at] = move.from;
            targets[at] = move.to;
        }
    }
};

}  // namespace reshard::inline v0_1::detail
