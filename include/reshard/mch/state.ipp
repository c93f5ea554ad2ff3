// SPDX-License-Identifier: Apache-2.0
// How mch/state.hpp is done.
#pragma once

#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/state.hpp>

#include <algorithm>  // all_of

namespace reshard::inline v0_1 {

RESHARD_INLINE MchShard detail::MchBuffers::shard(MchState const& state) {
    check_table(table_);
    Interval const range = table_.range(rank_);
    MchShard shard;
    shard.entries = range.size();
    shard.offset = range.begin;
    shard.ids = integers(state.ids, "the column of ids", shard.entries);
    for (MchColumnView const& one : state.metadata) {
        if (find_column(table_, one.name) == nullptr) {
            refuse(ErrorCode::mismatch, "the table has no column '", one.name, "'. Fix: describe it in the table.");
        }
        if (find_named(state.metadata, one.name) == &one) continue;
        refuse(ErrorCode::mismatch, "the state has two columns '", one.name, "'. Fix: pass one.");
    }
    bool const nothing = shard.entries == 0 && state.metadata.empty();  // says no more than that it has no slots
    for (MchColumn const& column : table_.metadata) {
        MchColumnView const* const found = find_named(state.metadata, column.name);
        if (found == nullptr && !nothing) {
            refuse(ErrorCode::mismatch, "the state has no column '", column.name,
                   "'. Fix: pass every column of the table, or fill what a saved state lacks.");
        }
        std::string const what = concat("column '", column.name, "'");
        bool const scored = column.name == mch_counts || column.name == mch_last_access;
        if (!nothing && scored) check_integers(found->view, what);
        shard.metadata.push_back(
            nothing ? nullptr : this->column(found->view, what, shard.entries, column.bytes, scored ? 8 : 1));
    }
    if (table_.layout == MchLayout::buckets) {
        absent(state.slots, "a column of slots");
        absent(state.segments, "a list of segments");
        absent(state.iteration, "an iteration");
        return shard;
    }
    shard.slots = integers(state.slots, "the column of slots", shard.entries);
    bool const counts = state.iteration.data() != nullptr && state.iteration.shape().size() > 0;
    if (shard.entries == 0 && !counts) return shard;  // a list of segments without an iteration may hold anything
    shard.iteration = integers(state.iteration, "the current iteration", 1);
    shard.segment_count = state.segments.rank() == 0 ? 0 : state.segments.extent(0);
    shard.segments = integers(state.segments, "the list of segments", shard.segment_count);
    check_segments(shard.segment_count, table_, concat("of ", table_.parts(), " shards"));
    return shard;
}

RESHARD_INLINE MchShard shard_of(MchTable const& table, MchState const& state, Index rank) {
    auto const any = [](std::string_view, std::byte const*, Index, Index) {};
    return detail::MchBuffers(table, rank, any).shard(state);
}

RESHARD_INLINE std::vector<Index> detail::widths_of(MchTable const& table) {
    std::vector<Index> widths{8, 8};
    for (MchColumn const& column : table.metadata) widths.push_back(column.bytes);
    return widths;
}

RESHARD_INLINE MchIdBounds id_bounds(MchLayout layout, std::span<Index const> ids) noexcept {
    MchIdBounds bounds;
    for (Index const id : ids) {
        if (id == empty_id(layout)) continue;
        ++bounds.live;
        if (id < 0) {
            ++bounds.negative;
            continue;
        }
        bounds.lowest = bounds.highest < 0 ? id : detail::smaller(bounds.lowest, id);
        bounds.highest = detail::larger(bounds.highest, id);
    }
    return bounds;
}

RESHARD_INLINE MchIdBounds id_bounds(MchTable const& table, MchShard const& shard) noexcept {
    return id_bounds(table.layout, {shard.ids, detail::as_size(shard.entries)});
}

RESHARD_INLINE bool detail::never_loaded(Index const* ids, Index const* slots, Index count) noexcept {
    auto const all_zero = [&](Index const* numbers) {
        return std::all_of(numbers, numbers + count, [](Index one) { return one == 0; });
    };
    return count >= 2 && all_zero(ids) && (slots == nullptr || all_zero(slots));
}

}  // namespace reshard::inline v0_1
