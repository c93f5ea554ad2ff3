// SPDX-License-Identifier: Apache-2.0
// How mch/id_bounds.hpp is done.
#pragma once

#include <reshard/mch/id_bounds.hpp>

#include <algorithm>  // all_of

namespace reshard::inline v0 {

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

}  // namespace reshard::inline v0
