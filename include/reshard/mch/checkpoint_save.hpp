// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/checkpoint_save.hpp
/// \brief  save() with managed-collision tables: dense tensors and tables in one folder, by one commit.
/// \depends mch/{checkpoint_types,state}, checkpoint/{save,save_async}. Link reshard::mch_checkpoint.
///
///     save("checkpoint", tensors, tables, comm);          // MchTableToSave{table, state, rows}
///     auto saving = start_save("checkpoint", tensors, tables, comm);
///
/// A table is saved as tensors that are cut as its slots are (`user.ids`, `user.slots`, `user.metadata.counts`,
/// `user.rows.weights`, ...) and a text in the manifest: docs/mch-format.md. So whatever works on checkpoints works on
/// tables: checksums, verify_checkpoint(), consolidate(), load() of one of those tensors.
#pragma once

#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/state.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// One table to save: this rank's shard of it and, if they are to be saved as well, its rows.
struct MchTableToSave {
    MchTable table;
    MchState state;
    std::vector<MchRows> rows{};  ///< the same names, types and shapes of a row on all ranks, also where z is 0
};

/// save() of tensors and tables together: after a crash both are of one save. Collective over `comm`; all ranks list
/// the same tables in the same order, the state being the rank's own; a rank without slots may pass an empty state. One
/// agreement and one exchange of counts before those of save().
///
/// Throws what save() and shard_of() throw; BufferError also for rows that are not [z, ...], for memory of a device,
/// and for metadata whose keys are the tables' own; MeshError for ranks the communicator does not have; MismatchError
/// for ranks that list different tables, have other types in a column, or are at different iterations, for names given
/// twice, and for a state that is all zeros or that no load would take (ids that do not ascend, slots of another
/// shard); FormatError for names that are not UTF-8.
SaveReport save(std::string folder, std::span<LocalTensor const> tensors, std::span<MchTableToSave const> tables,
                CommunicatorRef comm, SaveOptions const& options = {});
/// The same without other tensors.
SaveReport save(std::string folder, std::span<MchTableToSave const> tables, CommunicatorRef comm,
                SaveOptions const& options = {});
SaveReport save(std::string folder, MchTableToSave const& table, CommunicatorRef comm, SaveOptions const& options = {});

/// start_save() of tensors and tables together. What the tables hold is copied: they may change when this returns.
SaveRequest start_save(std::string folder, std::span<LocalTensor const> tensors, std::span<MchTableToSave const> tables,
                       CommunicatorRef comm, SaveOptions const& options = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/checkpoint_save.ipp>
#endif
