// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/transition.hpp
/// \brief  MchTransition, MchOptions and MchChange: what redistribute() is given and what it says it did, as values.
/// \depends mch/state.
#pragma once

#include <reshard/mch/state.hpp>

namespace reshard::inline v0_1 {

enum class MchMode : std::uint8_t {
    route,       ///< ids go to where they are looked up; slots are given anew there, and rows follow (MchChange::moves)
    slot_owner,  ///< ids go to the owner of their slot; rows stay, but for one on the slot of misses, and that row
};

struct MchOptions {
    MchMode mode = MchMode::route;
    /// slot_owner: ids that no look-up will find are left out. They are never hit and, with high counts, never evicted.
    bool drop_unreachable = true;
    int threads = 1;  ///< of this rank, that sort and merge; results do not depend on it
    /// Ids that the rank that saved them would not have looked up are carried like others. Unless this is said, the
    /// first of them is refused where its route decides what becomes of it: most likely the hash size is wrong, and
    /// half of the table would be evicted. True strays are what slot_owner leaves that keeps unreachable ids.
    bool accept_strays = false;
};

namespace detail {
inline void check_threads(MchOptions const& options) {
    if (options.threads >= 1) return;
    raise(ErrorCode::buffer, "reshard::MchOptions: ", options.threads,
          " threads. Fix: give at least 1, the calling thread.");
}
}  // namespace detail

/// One table on one rank, as it was saved and as it is to be.
struct MchTransition {
    MchTable saved;
    MchTable current;
    MchState state;  ///< this rank's shard of `current`, loaded by position from the columns of `saved`
};

/// A row of the table's weights that goes with its id, or answers misses: global row numbers, which are slots.
struct MchRowMove {
    Index from = 0;
    Index to = 0;
    friend constexpr bool operator==(MchRowMove const&, MchRowMove const&) = default;
};

/// What became of one rank's shard. Where rows moved, ids point at rows of others until `moves` are applied.
struct [[nodiscard]] MchChange {
    Index live_before = 0;        ///< ids among the entries it was loaded with
    Index live_after = 0;         ///< ids in its shard now
    Index sent = 0;               ///< entries that went to other ranks
    Index received = 0;           ///< entries that came from other ranks
    Index unreachable = 0;        ///< ids that look-ups do not find, of those it has now
    Index unpinned = 0;           ///< ids whose count was INT64_MAX, which nothing could have evicted (redistribute())
    std::vector<Index> left_out;  ///< ids it had and sent nowhere: unreachable ones that were to be dropped
    std::vector<Index> evicted;   ///< ids that found no slot on it, lowest score first
    /// Into its slots, by ascending id. The last may be that of the row of misses: its last slot gets the row that
    /// answered the misses of the saved shard as far along.
    std::vector<MchRowMove> moves;
    /// Its slots without an id but the last, ascending: their rows, once `moves` are applied, may be of ids that left
    /// or of misses, and are to be what new rows are. None where it has the slots and all ids it was saved with.
    std::vector<Index> freed;
    Index bytes_sent = 0;  ///< of entries, to other ranks
};

}  // namespace reshard::inline v0_1
