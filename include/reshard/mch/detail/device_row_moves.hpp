// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_row_moves.hpp
/// \brief  apply_row_moves() for rows that lie on a device, over any Work.
/// \depends mch/row_moves, mch/detail/{device_kernels,row_move_lists}, cuda/partitions.
#pragma once

#include <reshard/cuda/partitions.hpp>
#include <reshard/mch/detail/device_kernels.hpp>
#include <reshard/mch/detail/row_move_lists.hpp>
#include <reshard/mch/row_moves.hpp>

namespace reshard::inline v0_1::detail {

/// The part that holds the row a move begins at.
struct MchMoveRule {
    MchRowMove const* moves = nullptr;
    SlotRouter owner;
    Index size = 0;
    Index first = 0;  ///< rows of this rank
    Index end = 0;
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index i) const noexcept {
        MchRowMove const& move = moves[i];
        if (move.from < 0 || move.from >= size || move.to < first || move.to >= end) return out_of_range;
        return owner(move.from);
    }
};
/// Lists the rows that moves begin at, and counts those that end where another does.
struct MchListWanted {
    MchRowMove const* moves;
    Index* wanted;
    Index first;           ///< row of this rank
    std::uint32_t* taken;  ///< a bit per row
    unsigned long long* twice;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, Index i) const {
        wanted[i] = moves[i].from;
        if (set_bit(block, taken, moves[i].to - first)) block.add(twice, 1ULL);
    }
};
/// Rows of one view to records, or back, in pieces of T.
template <class T>
struct MchCopyRows {
    std::byte* rows = nullptr;
    Index first = 0;  ///< the number of row 0
    Index const* numbers = nullptr;
    Index step = 1;  ///< words from one number to the next
    std::byte* records = nullptr;
    Index record_bytes = 0;
    Index pieces = 1;  ///< of a row
    bool to_records = true;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        Index const record = pieces == 1 ? i : i / pieces;
        Index const offset = (i - record * pieces) * as_index(sizeof(T));
        Index const row_bytes = pieces * as_index(sizeof(T));
        std::byte* const row = rows + (numbers[record * step] - first) * row_bytes + offset;
        std::byte* const there = records + record * record_bytes + offset;
        to_records ? store_as<T>(there, load_as<T>(row)) : store_as<T>(row, load_as<T>(there));
    }
};

/// Rows of several views to records, or back. `numbers`: of the rows, `step` words from each other.
template <class Work>
void copy_rows(Work& work, MchRowViews const& views, Index first, Index const* numbers, Index step, Index count,
               std::byte* records, bool to_records) {
    Index offset = 0;
    for (std::size_t v = 0; v < views.data.size(); offset += views.widths[v++]) {
        auto const address = reinterpret_cast<std::uintptr_t>(views.data[v]) | static_cast<std::uintptr_t>(offset);
        auto const run = [&]<class T>(T) {
            Index const pieces = views.widths[v] / as_index(sizeof(T));
            for_each_index(work, "rows", count * pieces,
                           MchCopyRows<T>{views.data[v], first, numbers, step, records + offset, views.record_bytes,
                                          pieces, to_records});
        };
        switch (ByteColumns::piece_of(address | static_cast<std::uintptr_t>(views.record_bytes), views.widths[v])) {
            case 8: run(std::uint64_t{}); break;
            case 4: run(std::uint32_t{}); break;
            case 2: run(std::uint16_t{}); break;
            default: run(std::uint8_t{}); break;
        }
    }
}

/// apply_row_moves_on_device() (mch/row_moves.cuh) over a Work whose memory the communicator moves.
template <class Work>
void apply_row_moves_with(Work& work, std::span<MchRowMove const> moves, MchTable const& table,
                          std::span<DynamicView const> rows, CommunicatorRef comm) {
    int const rank = comm.rank();
    bool const alone = comm.size() == 1;
    auto const count = as_index(moves.size());
    Interval range{};
    MchRowViews views;
    MchRowExchange exchange;
    WorkList<MchRowCount, Work> to;
    WorkList<MchRowCount, Work> from;
    WorkList<std::byte, Work> sorted;  // moves, by the part that holds the rows
    WorkList<Index, Work> wanted;
    std::uint64_t const digest = agree_on_rows(comm, table, rows.size(), "on devices", [&] {
        check_table(table);
        check_ranks(table, comm.size());
        range = table.range(rank);
        MchOnDevice<Work> const on_device(work, table, rank);
        views.take(rows, range.size(), moves.size(), {table, rank, on_device});
        on_device("the list of moves", std::as_bytes(moves).data(), 16 * count, 8);
        WorkList<Index, Work> const offsets(work, std::span<Index const>(table.offsets()));
        MchMoveRule const rule{moves.data(), SlotRouter(table.slots, offsets.data()), table.size(), range.begin,
                               range.end};
        ByteColumns column;
        column.add(reinterpret_cast<std::byte const*>(moves.data()), 16);
        Partitions<Work, MchMoveRule> partition;
        Uploads<Work> told;
        auto const only = partition.add(work, count, table.parts(), rule, column, told);
        told.run(work);
        partition.count(work);
        auto const words = fetch(work, partition.report_words(only), PartitionReport::words(table.parts()));
        PartitionReport const report(words, table.parts());
        exchange.resize(as_size(comm.size()), views);
        // What is wrong, the host finds in the same moves.
        auto const refuse = [&] { MchRowMoves().sort(fetch(work, moves.data(), count), table, rank, exchange); };
        if (report.out_of_range() != 0) refuse();
        sorted = WorkList<std::byte, Work>(work, report.packed_bytes());
        partition.pack(only, sorted.data());
        partition.scatter(work);
        wanted = WorkList<Index, Work>(work, count);
        if (count != 0) {
            auto const taken = zeros<std::uint32_t>(work, ceil_div(range.size(), 32));
            auto const twice = zeros<unsigned long long>(work, 1);
            for_each_index(work, "moves", count,
                           MchListWanted{reinterpret_cast<MchRowMove const*>(sorted.data()), wanted.data(), range.begin,
                                         taken.data(), twice.data()});
            if (fetch(work, twice.data()) != 0) refuse();
        }
        for (Index part = 0; part < table.parts(); ++part) {
            auto const r = as_size(table.slots.mesh().rank_at(part));
            exchange.counts[r].rows = report.counts()[as_size(part)];
            exchange.begins[r] = report.begins()[as_size(part)];
        }
        exchange.theirs = exchange.counts;
        if (alone) return;
        to = WorkList<MchRowCount, Work>(work, std::span<MchRowCount const>(exchange.counts));
        from = WorkList<MchRowCount, Work>(work, to.size());
        comm.check_memory(to.data());
        exchange.list_counts(to.span(), from.span());
        work.wait();
    });
    if (!alone) exchange.lists.deliver(comm);

    WorkList<Index, Work> asked;
    WorkList<std::byte, Work> arriving;
    WorkList<std::byte, Work> leaving;
    agree_after(comm, digest, [&] {
        if (!alone) exchange.theirs = from.host(work);
        asked = WorkList<Index, Work>(work, exchange.count_asked(table, rank));
        arriving = WorkList<std::byte, Work>(work, count * views.record_bytes);
        leaving = WorkList<std::byte, Work>(work, asked.size() * views.record_bytes);
        exchange.list_numbers(wanted.data(), asked.data());
    });
    exchange.deliver(comm, wanted, asked);

    agree_after(comm, digest, [&] {  // a launch that fails must not leave others waiting
        copy_rows(work, views, range.begin, asked.data(), 1, asked.size(), leaving.data(), true);
        exchange.list_records(leaving.data(), arriving.data());
        work.wait();
    });
    exchange.deliver(comm, leaving, arriving);
    auto const* const targets = &reinterpret_cast<MchRowMove const*>(sorted.data())->to;
    copy_rows(work, views, range.begin, targets, 2, count, arriving.data(), false);
}

}  // namespace reshard::inline v0_1::detail
