// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/reach.hpp
/// \brief  Which ids of a shard look-ups never find, when a saved table may be loaded by position alone, and which
///         saved shards a rank has to read when no rank talks to another.
/// \depends mch/{routing,transition}. No I/O, no communicator.
///
/// plan_reads() is the alternative to redistribute(): every rank reads the saved shards that may hold something for it,
/// and keeps what is its own. Nothing can hang, but entries are read by every rank that may need them: from Ws to W
/// ranks about max(W / Ws, 2) times in all. Where W is far above Ws, let ranks exchange instead.
#pragma once

#include <reshard/mch/routing.hpp>
#include <reshard/mch/transition.hpp>

namespace reshard::inline v0_1 {

/// Ids of a shard, and how many of them are looked up elsewhere, on another rank or in another bucket: dead weight that
/// is never hit, while the id is admitted anew where it is looked up, with a fresh row.
struct Reach {
    Index live = 0;
    Index unreachable = 0;

    friend constexpr Reach operator+(Reach const& a, Reach const& b) noexcept {
        return {a.live + b.live, a.unreachable + b.unreachable};
    }
    friend constexpr bool operator==(Reach const&, Reach const&) = default;
};

/// Of the shard of `rank`. Local. Throws what shard_of() throws, and BufferError for memory of a device.
[[nodiscard]] Reach reach(MchTable const& table, MchState const& state, Index rank);

/// Whether slicing the saved buffers by position gives the current shards: every current boundary is a saved one. That
/// one number of ranks divides the other says nothing: 378801 slots on 4 ranks cannot be loaded so on 2
/// (github.com/alibaba/TorchEasyRec issue 360). Throws what check_table() and check_same_content() throw.
[[nodiscard]] bool position_ok(MchTable const& saved, MchTable const& current);
/// Whether every id of a shard is found where it is. A table may keep its positions when position_ok() holds and this
/// does on all ranks after the load.
[[nodiscard]] bool reach_ok(MchTable const& table, MchState const& state, Index rank);

/// The entries of one saved shard that a rank reads, counted from the shard's first.
struct MchRead {
    Index part = 0;  ///< of the saved table
    Index begin = 0;
    Index end = 0;
    friend constexpr bool operator==(MchRead const&, MchRead const&) = default;
};

namespace detail {
/// The entries that lie at these slots.
[[nodiscard]] std::vector<MchRead> overlaps_of(MchTable const& saved, Interval slots);
}  // namespace detail

/// The saved shards that rank `rank` of the current table reads, ascending, when `ids` bounds what each holds:
/// MchCheckpoint::ids().
///
/// mode       | what is read
/// -----------|---------------------------------------------------------------------------------------------------
/// slot_owner | shards whose slots meet the rank's: slots do not follow ids, so each of them whole
/// route      | shards whose ids, counted off in blocks, meet those that the rank looks up; a shard with ids that are
///            | dealt out by remainder (negative ones, and those above the hash size) may hold something for any rank.
///            | Without those, a saved shard is read by at most ceil(W / Ws) + 1 ranks. A rank without slots reads as
///            | well: somebody has to say which ids are lost because they are looked up there
/// bucketed   | the rank's own slots, where they lie, in either mode
///
/// Throws what check_table() and check_same_content() throw, but in mode `route` sorted tables may differ in size;
/// MismatchError for bounds that are not one per shard.
[[nodiscard]] std::vector<MchRead> plan_reads(MchTable const& saved, MchTable const& current, Index rank, MchMode mode,
                                              std::span<MchIdBounds const> ids);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/reach.ipp>
#endif
