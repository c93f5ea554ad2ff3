// SPDX-License-Identifier: Apache-2.0
// How mch/row_moves.hpp is done.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/mch/detail/agree_after.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/host_shard.hpp>
#include <reshard/mch/detail/row_move_lists.hpp>
#include <reshard/mch/row_moves.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0 {

RESHARD_INLINE void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table,
                                    std::span<DynamicView const> rows, CommunicatorRef comm) {
    int const rank = comm.rank();
    auto const ranks = static_cast<std::size_t>(comm.size());
    Interval range{};
    detail::MchRowMoves mine;
    std::vector<Index> widths;
    std::vector<std::byte*> own;
    Index row_bytes = 0;
    std::vector<detail::MchRowCount> counts;
    std::vector<detail::MchRowCount> theirs;
    detail::TransferLists lists;
    Digest digest;
    reshard::digest(digest, table);
    digest.add(rows.size());
    detail::agree_after(comm, digest.value(), [&] {
        check_table(table);
        detail::check_rows_given(table, rank, moves.size(), rows.size());
        range = table.range(rank);
        detail::MchBuffers buffers(table, rank);
        widths.resize(rows.size());
        own.resize(rows.size());
        for (std::size_t v = 0; v < rows.size(); ++v) {
            widths[v] = bytes(rows[v].dtype());
            for (int d = 1; d < rows[v].rank(); ++d) widths[v] *= rows[v].extent(d);
            own[v] = buffers.column(rows[v], rows.size() == 1 ? "the rows" : concat("the rows of view ", v),
                                    range.size(), widths[v]);
            detail::refuse_device_buffer(table, rank, own[v]);
            row_bytes += widths[v];
        }
        mine.sort(moves, table, rank, ranks);
        counts.resize(ranks);
        for (std::size_t r = 0; r < ranks; ++r) counts[r] = {mine.count(r), row_bytes};
        theirs = counts;
        detail::list_all_to_all(std::as_bytes(std::span(counts)), std::as_writable_bytes(std::span(theirs)),
                                comm.size(), lists.sends, lists.receives);
    });
    if (ranks != 1) lists.deliver(comm);

    std::vector<Index> asked;
    std::vector<Index> asked_begin;
    std::vector<std::byte> arriving;
    std::vector<std::byte> leaving;
    detail::agree_after(comm, digest.value(), [&] {
        lists.clear();
        asked_begin.reserve(ranks + 1);
        asked_begin.push_back(0);
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
                lists.sends.push_back({static_cast<int>(r),
                                       reinterpret_cast<std::byte const*>(mine.wanted.data() + mine.begin(r)),
                                       detail::byte_box(counts[r].rows * 8)});
            }
            if (theirs[r].rows != 0) {
                lists.receives.push_back({static_cast<int>(r),
                                          reinterpret_cast<std::byte*>(asked.data() + asked_begin[r]),
                                          detail::byte_box(theirs[r].rows * 8)});
            }
        }
    });
    if (ranks != 1) {
        lists.deliver(comm);
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
    lists.clear();
    for (std::size_t r = 0; r < ranks && row_bytes != 0; ++r) {
        if (theirs[r].rows != 0) {
            lists.sends.push_back({static_cast<int>(r), leaving.data() + asked_begin[r] * row_bytes,
                                   detail::byte_box(theirs[r].rows * row_bytes)});
        }
        if (counts[r].rows != 0) {
            lists.receives.push_back({static_cast<int>(r), arriving.data() + mine.begin(r) * row_bytes,
                                      detail::byte_box(counts[r].rows * row_bytes)});
        }
    }
    if (ranks != 1) {
        lists.deliver(comm);
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

RESHARD_INLINE void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, DynamicView const& rows,
                                    CommunicatorRef comm) {
    apply_row_moves(moves, table, std::span<DynamicView const>(&rows, 1), comm);
}

}  // namespace reshard::inline v0
