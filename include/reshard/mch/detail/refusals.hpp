// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/refusals.hpp
/// \brief  What redistribute() refuses, in the same words wherever the columns lie, and what it checks of tables.
/// \depends mch/transition, exec/agree_tensors.
#pragma once

#include <reshard/exec/agree_tensors.hpp>
#include <reshard/mch/transition.hpp>

#include <span>  // span

namespace reshard::inline v0_1::detail {

/// Throws MeshError for a table on ranks that the communicator does not have.
inline void check_ranks(MchTable const& table, int ranks) {
    check_mesh(table.slots.mesh(), ranks, "reshard::mch: table '", table.name, "': ");
}

/// Throws MismatchError for two tables of a list that have one name.
inline void check_names_differ(MchTable const& other, MchTable const& table) {
    if (other.name != table.name) return;
    refuse_table(ErrorCode::mismatch, table, "is in the list twice. Fix: give each table a name of its own.");
}
/// Throws MismatchError for the current iteration of a rank that cannot be.
inline void check_iteration(MchTable const& table, int rank, Index iteration) {
    if (iteration >= 0) return;
    refuse_table(ErrorCode::mismatch, table, "rank ", rank, " is at iteration ", iteration,
                 ", but they count from 0. Fix: load the iteration with the columns; it is corrupt or was never set.");
}

/// What ranks can know of table t of a list without looking at columns.
inline void check_transition(std::span<MchTransition const> tables, std::size_t t, int ranks) {
    MchTable const& current = tables[t].current;
    check_table(tables[t].saved);
    check_table(current);
    check_same_content(tables[t].saved, current);
    check_ranks(current, ranks);
    for (std::size_t other = 0; other < t; ++other) check_names_differ(tables[other].current, current);
}

/// Throws BufferError for tables that share columns on this rank: each would move its entries inside of what the other
/// has written.
inline void check_apart(std::span<MchTransition const> tables, int rank) {
    std::vector<ViewUse> columns;
    for (std::size_t t = 0; t < tables.size(); ++t) {
        auto const add = [&](DynamicView const& view) {
            if (view.data() != nullptr) columns.push_back({view, t, true});
        };
        add(tables[t].state.ids);
        add(tables[t].state.slots);
        for (MchColumnView const& column : tables[t].state.metadata) add(column.view);
    }
    Clash const clash = find_clash(columns);
    if (clash.writer == clash.other) return;
    refuse_table(ErrorCode::buffer, tables[larger(clash.writer, clash.other)].current, "on rank ", rank,
                 ": a column overlaps one of table '", tables[smaller(clash.writer, clash.other)].current.name,
                 "'. Fix: give each table buffers of its own, or list a table that others share once.");
}

/// Throws MismatchError for a shard that was never filled in.
inline void refuse_zeros(MchTable const& table, MchShard const& shard) {
    if (!never_loaded(shard.ids, shard.slots, shard.entries)) return;
    refuse_table(ErrorCode::mismatch, table, "all ", shard.entries,
                 table.layout == MchLayout::sorted ? " ids and slots" : " ids", " from position ", shard.offset,
                 " on are zero: the state was never loaded. Fix: load it first.");
}
[[noreturn]] inline void refuse_slot_twice(MchTable const& table, Index slot) {
    refuse_table(ErrorCode::mismatch, table, "two ids hold slot ", slot,
                 ". Fix: the saved state is corrupt; validate() says where.");
}

}  // namespace reshard::inline v0_1::detail
