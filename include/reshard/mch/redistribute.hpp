// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/redistribute.hpp
/// \brief  Carries the ids of a managed-collision table to another number of ranks: all of them, or none.
/// \depends mch/{reach,transition}, comm/any_communicator.
///
///     load the saved columns by position, as a checkpoint gives them: rank p gets entries [o, o + z) of all
///     MchChange change = redistribute(saved, current, state, comm);
///     apply_row_moves(change.moves, current, rows, comm);             // weights and optimizer states
///
/// An id is looked up on the rank that the routing names, in that rank's shard alone, and its row is read there. So an
/// id whose slot stays on another rank is never found again, although nothing crashes: github.com/alibaba/TorchEasyRec
/// pull request 467 moves entries to the owner of their slot, and of ids without a pattern that leaves W1 / W2 findable
/// when a table grows. Mode `route` sends every id where it will be looked up and gives it a slot there.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/mch/reach.hpp>
#include <reshard/mch/transition.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// Collective over `comm`: carries tables, each from the ranks it was saved by to those it is on now. Afterwards every
/// state is a sound shard of its current table: sorted, empties behind, the last slot free for misses, segments and
/// iteration as they should be on every rank. The tables are the same, in the same order, on all ranks; `saved` and
/// `current` differ in their ranks only (and may in their names). Ranks outside a table's mesh pass an empty state. The
/// iteration is that of ranks in the current mesh, where 0 is none: one of them at least has it.
///
/// One exchange of headers (16 bytes a pair of ranks and table) and one of entries, in one message for each pair of
/// ranks that has any, however many tables; agreements before each and before anything is written. With one rank, no
/// collective call. All or nothing: every buffer is as it was when any rank throws, and all throw alike: MismatchError
/// for tables that differ in more than ranks, states that were never loaded, ids or slots held twice, slots outside the
/// shard they were saved in, ids that were not looked up in it (MchOptions::accept_strays), counts below 0, accesses
/// after the iteration; BufferError and DTypeError for buffers, as shard_of(), and for device memory; MeshError for
/// less than one thread and for ranks that do not exist; OutOfMemory. In mode `route` ranks do not tell each other
/// slots: one held twice is noticed by the rank that would keep it for both ids, and elsewhere its row goes with both.
/// Saves and load_redistributed() refuse any, and validate() lists them on the ranks that trained.
///
/// Where a load by position was enough (position_ok(), and reach_ok() on every rank) nothing is sent, and shards are
/// put in order where they are. Bucketed tables keep their places, which are slots: nothing moves or is written.
///
/// Where more ids come than a shard has slots (all small ids are looked up on rank 0), those of the lowest score are
/// evicted, as the policy would; they are listed. An id whose count is INT64_MAX (TorchRec gives it to the last
/// position of a shard, where a full shard has an id) would never be: it gets the largest other count of its new shard.
///
/// Entries that stay on their rank are moved within its columns where they can be: where ids of different ranks do not
/// lie among one another, as those of saved shards do not unless some are negative, and nothing is evicted.
///
/// Memory beside the states: the entries that leave a rank, those that come to it, and 2 bytes for each it had; once
/// the former are sent, 16 to 50 bytes for each it is to have; 8 for each slot of MchChange::freed. Where ids have to
/// be merged, 24 bytes each while they are put in order and a copy of all that is kept; where ids are evicted, 16 more
/// bytes each while they are chosen.
///
/// Returns what became of each table on this rank, in the order of `tables`.
[[nodiscard]] std::vector<MchChange> redistribute(std::span<MchTransition const> tables, CommunicatorRef comm,
                                                  MchOptions const& options = {});

/// The same for one table.
[[nodiscard]] MchChange redistribute(MchTable const& saved, MchTable const& current, MchState const& state,
                                     CommunicatorRef comm, MchOptions const& options = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/redistribute.ipp>
#endif
