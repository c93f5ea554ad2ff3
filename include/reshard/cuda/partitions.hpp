// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/partitions.hpp
/// \brief  The entries of many tables sorted by destination rank: each kernel is launched once for all of them.
/// \depends core, cuda/{report,work}, cuda/detail/sorted. Compiles without CUDA.
#pragma once

#include <reshard/cuda/detail/sorted.hpp>
#include <reshard/cuda/report.hpp>
#include <reshard/cuda/work.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Blocks are those of DevicePartition (cuda/partition_by_rank.cuh), bit for bit.
template <class Work, class Rule>
class Partitions {
    template <class T>
    using List = WorkList<T, Work>;

public:
    /// One more table: returns its number. `told` runs before count(). Throws OutOfMemory, and ShapeError for more
    /// entries than a sort by more than 256 destinations takes.
    std::size_t add(Work& work, Index entries, Index destinations, Rule const& rule, ByteColumns const& columns,
                    Uploads<Work>& told) {
        bool const sorts = destinations > tile_destinations;
        if (sorts && entries > UINT32_MAX) {
            raise(ErrorCode::shape, "reshard: ", entries, " entries of one device for ", destinations,
                  " ranks are more than it can sort. Fix: at most ", UINT32_MAX, ".");
        }
        TilePlan plan(entries, destinations, Index{items} * block_threads);
        List<Index> report(work, PartitionReport::words(destinations));
        plan.report_to(report.data());
        static constexpr PartitionFaults none;
        told.add(plan.faults, &none, sizeof(none) / 8);
        list_.push_back({plan, rule, columns, words_of(columns), std::move(report)});
        return list_.size() - 1;
    }
    void count(Work& work) {
        Together<Work, CountTile<items, Rule>, CountState, CountShared<Rule>> count("count");
        Together<Work, LayOutBlocks<BeginOfTable>, LayoutState> lay_out("layout");
        for (One& one : list_) one.rows_at = sums_.add(one.sorts() ? 0 : one.plan.table_size());
        sums_.allocate(work);
        for (One& one : list_) {
            TilePlan& plan = one.plan;
            if (one.sorts()) {
                sort(work, one);
                continue;
            }
            plan.table = sums_.numbers(one.rows_at);
            plan.rows = sums_.sums(one.rows_at);
            one.bins = List<std::uint16_t>(work, plan.entries);
            plan.bins = one.bins.data();
            count.add(plan.tiles, {plan, one.rule});
            lay_out.add(1, {plan, column_widths(one.columns), {plan.rows, plan.tiles}});
        }
        count.run(work);
        sums_.run(work);
        lay_out.run(work);
    }
    /// Where a table's report lies on the device, once it has been counted: PartitionReport::words() of them.
    [[nodiscard]] Index const* report_words(std::size_t table) const noexcept { return list_[table].report.data(); }
    /// Where its blocks go: room for as many bytes as it reports.
    void pack(std::size_t table, std::byte* packed) { list_[table].packed = packed; }
    /// Packs those that pack() was called for. No table is left.
    void scatter(Work& work) {
        Scatter<WordColumns> words("scatter");
        Scatter<ByteColumns> bytes("scatter");
        for (One const& one : list_) {
            if (one.packed == nullptr) continue;
            if (one.sorts()) {
                for_each_index(work, "place", one.plan.entries,
                               PlaceSorted<ByteColumns, Index>{one.plan, one.columns, one.packed, one.sorted.data(),
                                                               one.from.data()});
            } else if (one.words.count() != 0) {
                words.add(one.plan.tiles, {one.plan, one.words, one.packed});
            } else {
                bytes.add(one.plan.tiles, {one.plan, one.columns, one.packed});
            }
        }
        words.run(work);
        bytes.run(work);
        *this = {};
    }

private:
    struct One {
        TilePlan plan;
        Rule rule;
        ByteColumns columns;
        WordColumns words;  ///< or none, where not all columns are words
        List<Index> report;
        Index rows_at = 0;  ///< among the sums of all tables
        List<std::uint16_t> bins{};
        List<Index> sorted{};  ///< where it sorts: destinations in order, and their entries
        List<std::uint32_t> from{};
        std::byte* packed = nullptr;
        [[nodiscard]] bool sorts() const noexcept { return plan.destinations > tile_destinations; }
    };
    /// A thread has as many entries whatever the ranks: twice as many want more registers than there are, where a rule
    /// takes as many as those of shards.
    static constexpr int items = 8;
    template <class Columns>
    using Scatter = Together<Work, ScatterTile<items, Columns>, ScatterState<items>, ScatterShared<items>>;

    [[nodiscard]] static WordColumns words_of(ByteColumns const& columns) {
        WordColumns words;
        for (ByteColumns::Column const& column : columns.list) {
            if (column.width != 8 || column.piece != 8) return {};
            words.data.push_back(reinterpret_cast<Index const*>(column.data));
        }
        return words;
    }
    static void sort(Work& work, One& one) {
        Index const entries = one.plan.entries;
        one.sorted = List<Index>(work, entries);
        one.from = List<std::uint32_t>(work, entries);
        if (entries != 0) {
            List<Index> const keys(work, entries);
            List<std::uint32_t> const places(work, entries);
            for_each_index(work, "destinations", entries,
                           ListDestinations<Rule, Index>{one.plan, one.rule, keys.data(), places.data()});
            work.sort(keys.data(), one.sorted.data(), places.data(), one.from.data(), entries);
        }
        work.template tiles<LayoutState, NoShared>(
            "layout", 1,
            LayOutBlocks<BeginOfSorted<Index>>{one.plan, column_widths(one.columns), {one.sorted.data(), entries}});
    }

    std::vector<One> list_;
    Sums<Work> sums_;
};

}  // namespace reshard::inline v0_1::detail
