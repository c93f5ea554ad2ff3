// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/row_moves.hpp
/// \brief  Rows of weights and optimizer states that follow their ids to other slots.
/// \depends mch/redistribute.hpp.
#pragma once

#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0 {

namespace detail {

/// What each rank asks of each other: one exchange of counts, one of lists.
struct RowRequests {
    std::vector<Index> wanted;        ///< rows that this rank wants, by the rank that holds them
    std::vector<Index> wanted_begin;  ///< per rank, and the end
    std::vector<Index> asked;         ///< rows that others want of this rank, by who wants them
    std::vector<Index> asked_begin;
};

template <Communicator C>
[[nodiscard]] RowRequests exchange_requests(C& comm, std::vector<std::vector<Index>> const& by_rank) {
    auto const ranks = static_cast<std::size_t>(comm.size());
    RowRequests requests;
    std::vector<Index> counts(ranks);
    std::vector<Index> theirs(ranks);
    requests.wanted_begin.push_back(0);
    for (std::size_t r = 0; r < ranks; ++r) {
        requests.wanted.insert(requests.wanted.end(), by_rank[r].begin(), by_rank[r].end());
        requests.wanted_begin.push_back(static_cast<Index>(requests.wanted.size()));
        counts[r] = static_cast<Index>(by_rank[r].size());
    }
    all_to_all(comm, std::as_bytes(std::span(counts)), std::as_writable_bytes(std::span(theirs)));
    requests.asked_begin.push_back(0);
    for (Index count : theirs) requests.asked_begin.push_back(requests.asked_begin.back() + count);
    requests.asked.resize(static_cast<std::size_t>(requests.asked_begin.back()));
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (std::size_t r = 0; r < ranks; ++r) {
        if (counts[r] != 0) {
            sends.push_back({static_cast<int>(r),
                             reinterpret_cast<std::byte const*>(requests.wanted.data() + requests.wanted_begin[r]),
                             byte_box(counts[r] * 8)});
        }
        if (theirs[r] != 0) {
            receives.push_back({static_cast<int>(r),
                                reinterpret_cast<std::byte*>(requests.asked.data() + requests.asked_begin[r]),
                                byte_box(theirs[r] * 8)});
        }
    }
    comm.exchange(sends, receives).wait();
    return requests;
}

}  // namespace detail

/// Collective over `comm`. `rows` is this rank's part of the table's weights, or of an optimizer state: one row per
/// slot of its shard, [z] or [z, ...], dense, of any element type with whole bytes, loaded by position. Row `move.from`
/// of the whole becomes row `move.to`, all at once: what is overwritten has been read. Rows that no move names stay.
///
/// Throws the same error on every rank before anything is written: BufferError for rows that are not the shard's,
/// MismatchError for a move from a row the table does not have, or into another rank's shard; DTypeError.
template <Communicator C>
void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, DynamicView const& rows, C& comm) {
    int const rank = comm.rank();
    Interval range{};
    Index row_bytes = 0;
    std::vector<std::vector<Index>> by_rank(static_cast<std::size_t>(comm.size()));
    std::vector<std::vector<Index>> targets(by_rank.size());
    std::vector<std::byte> arriving;
    std::vector<std::byte> leaving;
    Digest digest;
    reshard::digest(digest, table);
    detail::agree_after(comm, digest.value(), [&] {
        check_table(table);
        range = table.range(rank);
        detail::MchBuffers buffers(table, rank);
        row_bytes = bytes(rows.dtype());
        for (int d = 1; d < rows.rank(); ++d) row_bytes *= rows.extent(d);
        static_cast<void>(buffers.column(rows, "the rows of weights", range.size(), row_bytes));
        SlotRouter const owner(table.slots);
        for (MchRowMove const& move : moves) {
            if (move.from < 0 || move.from >= table.size() || !range.contains(move.to)) {
                detail::refuse_table(
                    ErrorCode::mismatch, table,
                    concat("on rank ", rank, ": a move from row ", move.from, " to row ", move.to,
                           ", but the table has ", table.size(), " rows, this rank those from ", range.begin, " to ",
                           range.end, ". Fix: pass the moves that redistribute() returned on this rank."));
            }
            auto const from = static_cast<std::size_t>(table.slots.mesh().rank_at(owner(move.from)));
            by_rank[from].push_back(move.from);
            targets[from].push_back(move.to);
        }
        arriving.resize(moves.size() * static_cast<std::size_t>(row_bytes));
    });
    std::byte* const own = rows.data();
    if (comm.size() == 1) {
        for (std::size_t i = 0; i < moves.size(); ++i) {
            std::memcpy(arriving.data() + static_cast<Index>(i) * row_bytes, own + moves[i].from * row_bytes,
                        static_cast<std::size_t>(row_bytes));
        }
    } else {
        auto const requests = detail::exchange_requests(comm, by_rank);
        detail::agree_after(comm, digest.value(), [&] {
            leaving.resize(requests.asked.size() * static_cast<std::size_t>(row_bytes));
            for (std::size_t i = 0; i < requests.asked.size(); ++i) {
                std::memcpy(leaving.data() + static_cast<Index>(i) * row_bytes,
                            own + (requests.asked[i] - range.begin) * row_bytes, static_cast<std::size_t>(row_bytes));
            }
        });
        std::vector<Send> sends;
        std::vector<Receive> receives;
        for (std::size_t r = 0; r < by_rank.size(); ++r) {
            Index const out = requests.asked_begin[r + 1] - requests.asked_begin[r];
            Index const in = requests.wanted_begin[r + 1] - requests.wanted_begin[r];
            if (out * row_bytes != 0) {
                sends.push_back({static_cast<int>(r), leaving.data() + requests.asked_begin[r] * row_bytes,
                                 detail::byte_box(out * row_bytes)});
            }
            if (in * row_bytes != 0) {
                receives.push_back({static_cast<int>(r), arriving.data() + requests.wanted_begin[r] * row_bytes,
                                    detail::byte_box(in * row_bytes)});
            }
        }
        comm.exchange(sends, receives).wait();
    }
    std::byte const* row = arriving.data();
    for (std::vector<Index> const& list : targets) {
        for (Index to : list) {
            std::memcpy(own + (to - range.begin) * row_bytes, row, static_cast<std::size_t>(row_bytes));
            row += row_bytes;
        }
    }
}

}  // namespace reshard::inline v0
