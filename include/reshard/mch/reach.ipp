// SPDX-License-Identifier: Apache-2.0
// How mch/reach.hpp is done.
#pragma once

#include <reshard/mch/reach.hpp>

#include <algorithm>  // all_of, binary_search

namespace reshard::inline v0 {

RESHARD_INLINE Reach reach(MchTable const& table, MchState const& state, Index rank) {
    MchShard const shard = shard_of(table, state, rank);
    Router const router(table);
    Index const part = table.slots.mesh().ordinal(rank);
    Reach result;
    for (Index i = 0; i < shard.entries; ++i) {
        if (shard.ids[i] == empty_id(table.layout)) continue;
        ++result.live;
        result.unreachable += router.part_of_id(shard.ids[i]) != part ? 1 : 0;
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

}  // namespace reshard::inline v0
