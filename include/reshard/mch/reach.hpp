// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/reach.hpp
/// \brief  Which ids of a shard look-ups never find, and when a saved table may be loaded by position alone.
/// \depends mch/routing, mch/state.
#pragma once

#include <reshard/mch/routing.hpp>
#include <reshard/mch/state.hpp>

namespace reshard::inline v0 {

/// Ids of a shard, and how many of them are looked up elsewhere: dead weight that is never hit, while the id is
/// admitted anew on the rank that looks it up, with a fresh row.
struct Reach {
    Index live = 0;
    Index unreachable = 0;

    friend constexpr Reach operator+(Reach const& a, Reach const& b) noexcept {
        return {a.live + b.live, a.unreachable + b.unreachable};
    }
    friend constexpr bool operator==(Reach const&, Reach const&) = default;
};

/// Of the shard of `rank`, whose memory the host must be able to read. Local. Throws what shard_of() throws.
[[nodiscard]] Reach reach(MchTable const& table, MchState const& state, Index rank);

/// Whether slicing the saved buffers by position gives the current shards: every current boundary is a saved one. That
/// one number of ranks divides the other says nothing: 378801 slots on 4 ranks cannot be loaded so on 2
/// (github.com/alibaba/TorchEasyRec issue 360). Throws what check_table() and check_same_content() throw.
[[nodiscard]] bool position_ok(MchTable const& saved, MchTable const& current);
/// Whether every id of a shard is found where it is. A table may keep its positions when position_ok() holds and this
/// does on all ranks after the load.
[[nodiscard]] bool reach_ok(MchTable const& table, MchState const& state, Index rank);

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/reach.ipp>
#endif
