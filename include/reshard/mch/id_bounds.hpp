// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/id_bounds.hpp
/// \brief  How small and how large the ids of a shard are: enough to tell who may need it, in four numbers.
/// \depends mch/state.
#pragma once

#include <reshard/mch/state.hpp>

#include <span>  // span

namespace reshard::inline v0 {

/// What is known of the ids of one shard. Negative ids are 2^63 and above where they are routed, so they are counted
/// apart.
struct MchIdBounds {
    Index live = 0;      ///< ids
    Index lowest = 0;    ///< of those of 0 or more
    Index highest = -1;  ///< of those of 0 or more; -1: there are none
    Index negative = 0;  ///< ids below 0

    friend constexpr bool operator==(MchIdBounds const&, MchIdBounds const&) = default;
};

/// The bounds of two runs of ids taken together.
[[nodiscard]] constexpr MchIdBounds operator+(MchIdBounds const& a, MchIdBounds const& b) noexcept {
    MchIdBounds sum{a.live + b.live, a.lowest, larger(a.highest, b.highest), a.negative + b.negative};
    if (a.highest < 0 || (b.highest >= 0 && b.lowest < a.lowest)) sum.lowest = b.lowest;
    return sum;
}

/// The bounds of ids in any order; empty places are none.
[[nodiscard]] inline MchIdBounds id_bounds(MchLayout layout, std::span<Index const> ids) noexcept {
    MchIdBounds bounds;
    for (Index const id : ids) {
        if (id == empty_id(layout)) continue;
        ++bounds.live;
        if (id < 0) {
            ++bounds.negative;
            continue;
        }
        bounds.lowest = bounds.highest < 0 ? id : smaller(bounds.lowest, id);
        bounds.highest = larger(bounds.highest, id);
    }
    return bounds;
}
/// The bounds of a shard, whose memory the host can read.
[[nodiscard]] inline MchIdBounds id_bounds(MchTable const& table, MchShard const& shard) noexcept {
    return id_bounds(table.layout, {shard.ids, static_cast<std::size_t>(shard.entries)});
}

namespace detail {

/// Whether all of `count` numbers are 0.
[[nodiscard]] inline bool all_zero(Index const* numbers, Index count) noexcept {
    for (Index i = 0; i < count; ++i)
        if (numbers[i] != 0) return false;
    return true;
}

/// Ids, and slots where there are any, that were never filled in: no two ids and no two slots are equal.
[[nodiscard]] inline bool never_loaded(Index const* ids, Index const* slots, Index count) noexcept {
    return count >= 2 && all_zero(ids, count) && (slots == nullptr || all_zero(slots, count));
}

}  // namespace detail

}  // namespace reshard::inline v0
