// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/refusals.hpp
/// \brief  What redistribute() refuses, in the same words wherever the columns lie, and what it checks of tables.
/// \depends mch/transition.
#pragma once

#include <reshard/mch/transition.hpp>

#include <span>  // span

namespace reshard::inline v0::detail {

/// Throws MeshError for a table on ranks that the communicator does not have.
inline void check_ranks(MchTable const& table, int ranks) {
    DynamicMesh const& mesh = table.slots.mesh();
    if (mesh.last_rank() < ranks) return;
    refuse_table(ErrorCode::mesh, table, "the mesh ", to_string(mesh), " has rank ", mesh.last_rank(),
                 ", the communicator only ", ranks, " ranks. Fix: use a mesh of ranks that exist.");
}

/// What ranks can know of table t of a list without looking at columns.
inline void check_transition(std::span<MchTransition const> tables, std::size_t t, int ranks) {
    MchTable const& current = tables[t].current;
    check_table(tables[t].saved);
    check_table(current);
    check_same_content(tables[t].saved, current);
    check_ranks(current, ranks);
    for (std::size_t other = 0; other < t; ++other) {
        if (tables[other].current.name != current.name) continue;
        refuse_table(ErrorCode::mismatch, current, "is in the list twice. Fix: give each table a name of its own.");
    }
}

[[noreturn]] inline void refuse_never_loaded(MchTable const& table, Index entries, Index offset) {
    refuse_table(ErrorCode::mismatch, table, "all ", entries, " ids and slots from position ", offset,
                 " on are zero: the state was never loaded. Fix: load it first.");
}
[[noreturn]] inline void refuse_slot_twice(MchTable const& table, Index slot) {
    refuse_table(ErrorCode::mismatch, table, "two ids hold slot ", slot,
                 ". Fix: the saved state is corrupt; validate() says where.");
}

}  // namespace reshard::inline v0::detail
