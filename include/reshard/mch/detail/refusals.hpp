// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/refusals.hpp
/// \brief  What redistribute() refuses, in the same words wherever the columns lie, and what it checks of tables.
/// \depends mch/transition.
#pragma once

#include <reshard/mch/transition.hpp>

#include <span>  // span

namespace reshard::inline v0::detail {

/// What ranks can know of table t of a list without looking at columns.
inline void check_transition(std::span<MchTransition const> tables, std::size_t t, int ranks) {
    MchTable const& current = tables[t].current;
    check_table(tables[t].saved);
    check_table(current);
    check_same_content(tables[t].saved, current);
    Index const last = current.slots.mesh().last_rank();
    if (last >= ranks) {
        refuse_table(ErrorCode::mesh, current,
                     concat("the mesh ", to_string(current.slots.mesh()), " has rank ", last,
                            ", the communicator only ", ranks, " ranks. Fix: use a mesh of ranks that exist."));
    }
    for (std::size_t other = 0; other < t; ++other) {
        if (tables[other].current.name != current.name) continue;
        refuse_table(ErrorCode::mismatch, current, "is in the list twice. Fix: give each table a name of its own.");
    }
}

[[noreturn]] inline void refuse_never_loaded(MchTable const& table, Index entries, Index offset) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("all ", entries, " ids and slots from position ", offset,
                        " on are zero: the state was never loaded. Fix: load it first."));
}
/// `range`: of the saved shard that the position lies in.
[[noreturn]] inline void refuse_position(MchTable const& table, Index position, Index id, Index slot, Interval range) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("position ", position, " of the saved columns has id ", id, " with slot ", slot,
                        ", outside its saved shard of slots ", range.begin, " to ", range.end,
                        ". Fix: load the columns by position, and give the offsets they were saved with."));
}
[[noreturn]] inline void refuse_iterations(MchTable const& table, int rank, Index iteration, Index other) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("rank ", rank, " is at iteration ", iteration, ", another at ", other,
                        ". Fix: load the states of one checkpoint."));
}
[[noreturn]] inline void refuse_iteration(MchTable const& table, int rank, Index iteration) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("rank ", rank, " is at iteration ", iteration,
                        ", but they count from 0. Fix: load the iteration with the columns; it is corrupt or was never "
                        "set."));
}
[[noreturn]] inline void refuse_received_bytes(MchTable const& table) {
    refuse_table(ErrorCode::shape, table, "more bytes arrive than 64 bits count. Fix: use more ranks.");
}
[[noreturn]] inline void refuse_received_entry(MchTable const& table, Index id, int rank, std::string_view what,
                                               Index value, Index iteration) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("id ", id, " from rank ", rank, " ", what, " ", value, ", at iteration ", iteration,
                        ". Fix: load all columns and the iteration of one checkpoint; validate() says where."));
}
[[noreturn]] inline void refuse_repeated_ids(MchTable const& table, Index count, Interval range, Index first) {
    refuse_table(
        ErrorCode::mismatch, table,
        concat(count, " ids arrive at slots ", range.begin, " to ", range.end, " more than once, the first of them ",
               first, ". Fix: the saved state is corrupt; validate() says where."));
}
[[noreturn]] inline void refuse_foreign_slot(MchTable const& table, Index slot, Interval range) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("slot ", slot, " arrives at the owner of ", range.begin, " to ", range.end,
                        ". Fix: the saved state is corrupt; validate() says where."));
}
[[noreturn]] inline void refuse_slot_twice(MchTable const& table, Index slot) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("two ids hold slot ", slot, ". Fix: the saved state is corrupt; validate() says where."));
}

}  // namespace reshard::inline v0::detail
