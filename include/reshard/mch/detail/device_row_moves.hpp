// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_row_moves.hpp
/// \brief  apply_row_moves() for rows that lie on a device, over any Work.
/// \depends mch/row_moves, mch/detail/{agree_after,buffers,device_kernels,row_move_lists}, comm/collectives,
/// cuda/report.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/cuda/report.hpp>
#include <reshard/mch/detail/agree_after.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/device_kernels.hpp>
#include <reshard/mch/detail/row_move_lists.hpp>
#include <reshard/mch/row_moves.hpp>

namespace reshard::inline v0::detail {

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
/// Lists the rows that moves begin at, and finds the lowest one that two of them end at.
struct MchListWanted {
    MchRowMove const* moves;
    Index* wanted;
    Index first;           ///< row of this rank
    std::uint32_t* taken;  ///< a bit per row
    unsigned long long* twice;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, Index i) const {
        wanted[i] = moves[i].from;
        Index const at = moves[i].to - first;
        std::uint32_t const bit = std::uint32_t{1} << static_cast<unsigned>(at % 32);
        if ((block.fetch_or(taken + at / 32, bit) & bit) != 0) {
            block.lower(twice, static_cast<unsigned long long>(moves[i].to));
        }
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
        Index const offset = (i - record * pieces) * static_cast<Index>(sizeof(T));
        Index const row_bytes = pieces * static_cast<Index>(sizeof(T));
        std::byte* const row = rows + (numbers[record * step] - first) * row_bytes + offset;
        std::byte* const there = records + record * record_bytes + offset;
        to_records ? store_as<T>(there, load_as<T>(row)) : store_as<T>(row, load_as<T>(there));
    }
};

/// Rows of several views: one record of all of them for each.
struct MchRowViews {
    std::vector<std::byte*> data;
    std::vector<Index> widths;
    Index record_bytes = 0;

    template <class Work>
    void copy(Work& work, Index first, Index const* numbers, Index step, Index count, std::byte* records,
              bool to_records) const {
        Index offset = 0;
        for (std::size_t v = 0; v < data.size(); offset += widths[v++]) {
            auto const address = reinterpret_cast<std::uintptr_t>(data[v]) | static_cast<std::uintptr_t>(offset);
            auto const run = [&]<class T>(T) {
                Index const pieces = widths[v] / static_cast<Index>(sizeof(T));
                for_each_index(
                    work, "rows", count * pieces,
                    MchCopyRows<T>{data[v], first, numbers, step, records + offset, record_bytes, pieces, to_records});
            };
            switch (ByteColumns::piece_of(address | static_cast<std::uintptr_t>(record_bytes), widths[v])) {
                case 8: run(std::uint64_t{}); break;
                case 4: run(std::uint32_t{}); break;
                case 2: run(std::uint16_t{}); break;
                default: run(std::uint8_t{}); break;
            }
        }
    }
};

/// apply_row_moves_on_device() (mch/row_moves.cuh) over a Work whose memory the communicator moves.
template <class Work>
void apply_row_moves_with(Work& work, std::span<MchRowMove const> moves, MchTable const& table,
                          std::span<DynamicView const> rows, CommunicatorRef comm) {
    int const rank = comm.rank();
    auto const ranks = static_cast<std::size_t>(comm.size());
    auto const count = static_cast<Index>(moves.size());
    Interval range{};
    MchRowViews views;
    std::vector<MchRowCount> counts;
    std::vector<MchRowCount> theirs;
    std::vector<Index> begins;  // of the moves from each rank
    WorkList<MchRowCount, Work> to;
    WorkList<MchRowCount, Work> from;
    WorkList<std::byte, Work> sorted;  // moves, by the part that holds the rows
    WorkList<Index, Work> wanted;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    Digest digest;
    digest.add_text("rows on devices");
    reshard::digest(digest, table);
    digest.add(rows.size());
    agree_after(comm, digest.value(), [&] {
        check_table(table);
        check_rows_given(table, rank, moves.size(), rows.size());
        range = table.range(rank);
        std::string const who = concat("reshard::mch: table '", table.name, "': on rank ", rank);
        MchBuffers buffers(table, rank);
        for (std::size_t v = 0; v < rows.size(); ++v) {
            std::string const what = rows.size() == 1 ? std::string("the rows") : concat("the rows of view ", v);
            Index width = bytes(rows[v].dtype());
            for (int d = 1; d < rows[v].rank(); ++d) width *= rows[v].extent(d);
            views.widths.push_back(width);
            views.data.push_back(buffers.column(rows[v], what, range.size(), width));
            if (views.data.back() != nullptr) {
                work.check(who.c_str(), what.c_str(), views.data.back(), range.size() * width, 1);
            }
            views.record_bytes += width;
        }
        work.check(who.c_str(), "the list of moves", moves.data(), 16 * count, 8);
        WorkList<Index, Work> const offsets(work, std::span<Index const>(table.offsets()));
        auto partition = work.partition(count, table.parts());
        MchMoveRule const rule{moves.data(), SlotRouter(table.slots, offsets.data()), table.size(), range.begin,
                               range.end};
        ByteColumns column;
        column.add(reinterpret_cast<std::byte const*>(moves.data()), 16);
        partition.count(work, rule, column);
        std::vector<Index> const words = partition.report(work);
        PartitionReport const report(words, table.parts());
        if (report.out_of_range() != 0) {
            refuse_move(table, rank, fetch(work, moves.data() + report.first_out_of_range()), range);
        }
        sorted = WorkList<std::byte, Work>(work, report.packed_bytes());
        partition.scatter(work, rule, column, {sorted.data(), static_cast<std::size_t>(sorted.size())}, report);
        wanted = WorkList<Index, Work>(work, count);
        if (count != 0) {
            constexpr unsigned long long none = ~0ULL;
            WorkList<std::uint32_t, Work> const taken(work, ceil_div(range.size(), 32));
            WorkList<unsigned long long, Work> const twice(work, std::span(&none, 1));
            work.fill(taken.data(), 0, taken.bytes());
            for_each_index(work, "moves", count,
                           MchListWanted{reinterpret_cast<MchRowMove const*>(sorted.data()), wanted.data(), range.begin,
                                         taken.data(), twice.data()});
            auto const row = fetch(work, twice.data());
            if (row != none) refuse_target_twice(table, rank, static_cast<Index>(row));
        }
        counts.resize(ranks);
        begins.resize(ranks);
        for (std::size_t r = 0; r < ranks; ++r) counts[r] = {0, views.record_bytes};
        for (Index part = 0; part < table.parts(); ++part) {
            auto const r = static_cast<std::size_t>(table.slots.mesh().rank_at(part));
            counts[r].rows = report.counts()[static_cast<std::size_t>(part)];
            begins[r] = report.begins()[static_cast<std::size_t>(part)];
        }
        theirs = counts;
        if (ranks == 1) return;
        to = WorkList<MchRowCount, Work>(work, std::span<MchRowCount const>(counts));
        from = WorkList<MchRowCount, Work>(work, to.size());
        comm.check_memory(to.data());
        list_all_to_all(std::as_bytes(std::span(to.data(), ranks)),
                        std::as_writable_bytes(std::span(from.data(), ranks)), comm.size(), sends, receives);
        work.wait();
    });
    if (ranks != 1) comm.exchange(sends, receives).wait();

    WorkList<Index, Work> asked;
    std::vector<Index> asked_begin;
    WorkList<std::byte, Work> arriving;
    WorkList<std::byte, Work> leaving;
    agree_after(comm, digest.value(), [&] {
        sends.clear();
        receives.clear();
        if (ranks != 1) theirs = from.host(work);
        asked_begin.reserve(ranks + 1);
        asked_begin.push_back(0);
        for (std::size_t r = 0; r < ranks; ++r) {
            bool const meet = counts[r].rows != 0 || theirs[r].rows != 0;
            if (meet && theirs[r].row_bytes != views.record_bytes) {
                refuse_row_bytes(table, rank, views.record_bytes, static_cast<int>(r), theirs[r].row_bytes);
            }
            asked_begin.push_back(asked_begin.back() + theirs[r].rows);
        }
        asked = WorkList<Index, Work>(work, asked_begin.back());
        arriving = WorkList<std::byte, Work>(work, count * views.record_bytes);
        leaving = WorkList<std::byte, Work>(work, asked.size() * views.record_bytes);
        for (std::size_t r = 0; r < ranks; ++r) {
            auto const peer = static_cast<int>(r);
            if (counts[r].rows != 0) {
                sends.push_back({peer, reinterpret_cast<std::byte const*>(wanted.data() + begins[r]),
                                 byte_box(counts[r].rows * 8)});
            }
            if (theirs[r].rows != 0) {
                receives.push_back(
                    {peer, reinterpret_cast<std::byte*>(asked.data() + asked_begin[r]), byte_box(theirs[r].rows * 8)});
            }
        }
    });
    if (ranks != 1) {
        comm.exchange(sends, receives).wait();
    } else {
        work.copy(asked.data(), wanted.data(), 8 * count);
    }

    agree_after(comm, digest.value(), [&] {  // a launch that fails must not leave others waiting
        views.copy(work, range.begin, asked.data(), 1, asked.size(), leaving.data(), true);
        sends.clear();
        receives.clear();
        for (std::size_t r = 0; r < ranks && views.record_bytes != 0; ++r) {
            auto const peer = static_cast<int>(r);
            if (theirs[r].rows != 0) {
                sends.push_back({peer, leaving.data() + asked_begin[r] * views.record_bytes,
                                 byte_box(theirs[r].rows * views.record_bytes)});
            }
            if (counts[r].rows != 0) {
                receives.push_back({peer, arriving.data() + begins[r] * views.record_bytes,
                                    byte_box(counts[r].rows * views.record_bytes)});
            }
        }
        work.wait();
    });
    if (ranks != 1) {
        comm.exchange(sends, receives).wait();
    } else {
        work.copy(arriving.data(), leaving.data(), leaving.size());
    }
    auto const* const targets = &reinterpret_cast<MchRowMove const*>(sorted.data())->to;
    views.copy(work, range.begin, targets, 2, count, arriving.data(), false);
}

}  // namespace reshard::inline v0::detail
