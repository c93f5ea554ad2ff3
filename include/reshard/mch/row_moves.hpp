// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/row_moves.hpp
/// \brief  Rows of weights and optimizer states that follow their ids to other slots.
/// \depends mch/redistribute.hpp.
#pragma once

#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0_1 {

/// Collective over `comm`. `rows` are this rank's parts of the table's weights and of its optimizer states, all of
/// which follow the ids: one row per slot of its shard, [z] or [z, ...], dense, of any element type with whole bytes,
/// loaded by position. Row `move.from` of each whole becomes row `move.to`, all at once: what is overwritten has been
/// read. Rows that no move names stay, those of slots that no id has any more (MchChange::freed) too. The same number
/// of views in the same order on all ranks; a rank without slots may leave them null.
///
/// One exchange of counts, one of row numbers, one of rows, however many views; with one rank no collective call.
/// Memory beside the rows: those that leave this rank, those that come, their numbers, and a bit per row.
///
/// Throws the same error on every rank before anything is written: BufferError for rows that are not the shard's,
/// MismatchError for moves without any rows, for a move from a row the table does not have, or into another rank's
/// shard, for two into one row, for rows that are of another width on another rank, and for another table or number of
/// views there; MeshError for a table on ranks that the communicator does not have; DTypeError; OutOfMemory.
void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, std::span<DynamicView const> rows,
                     CommunicatorRef comm);

/// The same for one view.
void apply_row_moves(std::span<MchRowMove const> moves, MchTable const& table, DynamicView const& rows,
                     CommunicatorRef comm);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/row_moves.ipp>
#endif
