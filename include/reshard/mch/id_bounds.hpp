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
    MchIdBounds sum{a.live + b.live, a.lowest, detail::larger(a.highest, b.highest), a.negative + b.negative};
    if (a.highest < 0 || (b.highest >= 0 && b.lowest < a.lowest)) sum.lowest = b.lowest;
    return sum;
}

/// The bounds of ids in any order; empty places are none.
[[nodiscard]] MchIdBounds id_bounds(MchLayout layout, std::span<Index const> ids) noexcept;
/// The bounds of a shard, whose memory the host can read.
[[nodiscard]] MchIdBounds id_bounds(MchTable const& table, MchShard const& shard) noexcept;

namespace detail {

/// Ids, and slots where there are any, that were never filled in: no two ids and no two slots are equal.
[[nodiscard]] bool never_loaded(Index const* ids, Index const* slots, Index count) noexcept;

}  // namespace detail

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/id_bounds.ipp>
#endif
