// SPDX-License-Identifier: Apache-2.0
// How mch/reach.hpp is done.
#pragma once

#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/reach.hpp>

#include <algorithm>  // all_of, binary_search

namespace reshard::inline v0_1 {

RESHARD_INLINE Reach reach(MchTable const& table, MchState const& state, Index rank) {
    MchShard const shard = detail::MchBuffers(table, rank).shard(state);
    Router const router(table);
    Index const part = table.slots.mesh().ordinal(rank);
    Reach result;
    for (Index i = 0; i < shard.entries; ++i) {
        if (shard.ids[i] == empty_id(table.layout)) continue;
        ++result.live;
        result.unreachable += router.finds(shard.ids[i], shard.offset + i, part) ? 0 : 1;
    }
    return result;
}

RESHARD_INLINE bool position_ok(MchTable const& saved, MchTable const& current) {
    check_table(saved);
    check_table(current);
    check_same_content(saved, current);
    std::vector<Index> const has = saved.offsets();
    std::vector<Index> const wanted = current.offsets();
    return std::ranges::all_of(wanted, [&](Index offset) { return std::ranges::binary_search(has, offset); });
}

RESHARD_INLINE bool reach_ok(MchTable const& table, MchState const& state, Index rank) {
    return reach(table, state, rank).unreachable == 0;
}

namespace detail {

/// Whether a shard within these bounds may hold ids that part `part` looks up.
[[nodiscard]] inline bool may_hold(MchIdBounds const& bounds, Router const& router, Index part) {
    if (bounds.live == 0) return false;
    if (bounds.negative != 0) return true;
    if (bounds.highest < 0) return false;
    if (static_cast<std::uint64_t>(bounds.highest) >= router.counted_off()) return true;
    return router.part_of_id(bounds.lowest) <= part && part <= router.part_of_id(bounds.highest);
}

}  // namespace detail

RESHARD_INLINE std::vector<MchRead> detail::overlaps_of(MchTable const& saved, Interval slots) {
    std::vector<MchRead> list;
    for (Index part = 0; part < saved.parts(); ++part) {
        Interval const range = saved.part_range(part);
        Interval const both = intersect(range, slots);
        if (!both.empty()) list.push_back({part, both.begin - range.begin, both.end - range.begin});
    }
    return list;
}

RESHARD_INLINE std::vector<MchRead> plan_reads(MchTable const& saved, MchTable const& current, Index rank, MchMode mode,
                                               std::span<MchIdBounds const> ids) {
    check_table(saved);
    check_table(current);
    bool const by_id = mode == MchMode::route && current.layout == MchLayout::sorted;
    by_id ? detail::check_same_ids(saved, current) : check_same_content(saved, current);
    if (detail::as_index(ids.size()) != saved.parts()) {
        detail::refuse_table(ErrorCode::mismatch, current, ids.size(), " bounds of ids for ", saved.parts(),
                             " saved shards. Fix: one each, as MchCheckpoint::ids() has them.");
    }
    Interval const mine = current.range(rank);
    if (current.layout == MchLayout::buckets) return detail::overlaps_of(saved, mine);
    std::vector<MchRead> reads;
    Index const here = current.slots.mesh().ordinal(rank);
    if (here < 0) return reads;
    Router const router(current);
    for (Index part = 0; part < saved.parts(); ++part) {
        Interval const range = saved.part_range(part);
        MchIdBounds const& bounds = ids[detail::as_size(part)];
        if (range.empty()) continue;
        bool const wanted = mode == MchMode::slot_owner ? !intersect(range, mine).empty() && bounds.live != 0
                                                        : detail::may_hold(bounds, router, here);
        if (wanted) reads.push_back({part, 0, range.size()});
    }
    return reads;
}

}  // namespace reshard::inline v0_1
