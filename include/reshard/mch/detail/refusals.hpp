// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/refusals.hpp
/// \brief  What redistribute() refuses, in the same words wherever the columns lie, and what it checks of tables.
/// \depends mch/{slot_bitmap,transition}, memory/scratch.
#pragma once

#include <reshard/mch/slot_bitmap.hpp>
#include <reshard/mch/transition.hpp>
#include <reshard/memory/scratch.hpp>

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
[[noreturn]] inline void refuse_received_entry(MchTable const& table, Index id, int rank, std::string_view what,
                                               Index value, Index iteration) {
    refuse_table(ErrorCode::mismatch, table, "id ", id, " from rank ", rank, " ", what, " ", value, ", at iteration ",
                 iteration, ". Fix: load all columns and the iteration of one checkpoint; validate() says where.");
}
[[noreturn]] inline void refuse_repeated_ids(MchTable const& table, Index count, Interval range, Index first) {
    refuse_table(ErrorCode::mismatch, table, count, " ids arrive at slots ", range.begin, " to ", range.end,
                 " more than once, the first of them ", first,
                 ". Fix: the saved state is corrupt; validate() says where.");
}
[[noreturn]] inline void refuse_slot_twice(MchTable const& table, Index slot) {
    refuse_table(ErrorCode::mismatch, table, "two ids hold slot ", slot,
                 ". Fix: the saved state is corrupt; validate() says where.");
}

/// The slots of a shard, none of which is taken at first.
class MchTakenSlots : public SlotBitmap {
public:
    explicit MchTakenSlots(Interval slots) : SlotBitmap(slots.begin, slots.size()), slots_(slots) {}
    /// Where slots stay: all arrive at their owner, none twice. Throws MismatchError.
    void take_or_refuse(MchTable const& table, Index slot) {
        if (!contains(slot)) {
            refuse_table(ErrorCode::mismatch, table, "slot ", slot, " arrives at the owner of ", slots_.begin, " to ",
                         slots_.end, ". Fix: the saved state is corrupt; validate() says where.");
        }
        if (!take(slot)) refuse_slot_twice(table, slot);
    }
    /// The free ones, ascending, and behind all others the last slot, which is that of misses.
    [[nodiscard]] Scratch list_free() const {
        Scratch list((free() + 1) * 8);
        auto const open = static_cast<std::size_t>(free_slots(list.words()));
        list.words()[open] = slots_.end - 1;
        return list;
    }
    /// Throws MismatchError where two of these entries, which come by their ids, have one slot: names that of the last
    /// that comes too late. The slot of misses is named after all others.
    void refuse_kept_twice(MchTable const& table, std::span<Index const> slots) {
        Index const reserved = slots_.end - 1;
        Index found = -1;
        for (Index const slot : slots) {
            if (!contains(slot) || take(slot)) continue;
            if (slot != reserved || found < 0) found = slot;
        }
        if (found >= 0) refuse_slot_twice(table, found);
    }

private:
    Interval slots_;
};

}  // namespace reshard::inline v0::detail
