// SPDX-License-Identifier: Apache-2.0
// How mch/row_moves.hpp is done.
#pragma once

#include <reshard/mch/detail/row_move_lists.hpp>
#include <reshard/mch/row_moves.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0_1 {

RESHARD_INLINE void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table,
                                    std::span<DynamicView const> rows, CommunicatorRef comm) {
    int const rank = comm.rank();
    Index first = 0;
    detail::MchRowViews views;
    detail::MchRowMoves mine;
    detail::MchRowExchange exchange;
    std::uint64_t const digest = detail::agree_on_rows(comm, table, rows.size(), "on hosts", [&] {
        check_table(table);
        detail::check_ranks(table, comm.size());
        Interval const range = table.range(rank);
        first = range.begin;
        views.take(rows, range.size(), moves.size(), {table, rank, comm.memory()});
        exchange.resize(detail::as_size(comm.size()), views);
        mine.sort(moves, table, rank, exchange);
        exchange.theirs = exchange.counts;
        exchange.list_counts(exchange.counts, exchange.theirs);
    });
    if (comm.size() != 1) exchange.lists.deliver(comm);

    std::vector<Index> asked;
    std::vector<std::byte> arriving;
    std::vector<std::byte> leaving;
    detail::agree_after(comm, digest, [&] {
        auto const record_bytes = detail::as_size(views.record_bytes);
        asked.resize(detail::as_size(exchange.count_asked(table, rank)));
        arriving.resize(mine.wanted.size() * record_bytes);
        leaving.resize(asked.size() * record_bytes);
        exchange.list_numbers(mine.wanted.data(), asked.data());
    });
    exchange.deliver(comm, mine.wanted, asked);

    auto const for_each_record = [&](std::vector<Index> const& numbers, std::vector<std::byte>& records, auto&& copy) {
        std::byte* record = records.data();
        for (Index row : numbers) {
            for (std::size_t v = 0; v < views.data.size(); record += views.widths[v++]) {
                copy(views.data[v] + (row - first) * views.widths[v], record, detail::as_size(views.widths[v]));
            }
        }
    };
    for_each_record(asked, leaving, [](std::byte* row, std::byte* at, std::size_t n) { std::memcpy(at, row, n); });
    exchange.list_records(leaving.data(), arriving.data());
    exchange.deliver(comm, leaving, arriving);
    for_each_record(mine.targets, arriving,
                    [](std::byte* row, std::byte* at, std::size_t n) { std::memcpy(row, at, n); });
}

RESHARD_INLINE void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, DynamicView const& rows,
                                    CommunicatorRef comm) {
    apply_row_moves(moves, table, std::span<DynamicView const>(&rows, 1), comm);
}

}  // namespace reshard::inline v0_1
