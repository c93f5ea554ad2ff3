// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/checkpoint_save.hpp
/// \brief  save_mch(): the shards of managed-collision tables into one folder, all of them or none.
/// \depends mch/{checkpoint_types,state}, comm/any_communicator.
///
/// Each rank writes one safetensors file; rank 0 then writes `mch.index.json`, which names them. Until that name is
/// there the folder holds the save that it held before. docs/mch-format.md describes both.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/state.hpp>

#include <cstdint>  // uint64_t
#include <span>     // span
#include <string>   // string
#include <vector>   // vector

namespace reshard::inline v0 {

/// One table to save: this rank's shard of it and, if they are to be saved as well, its rows.
struct MchSaving {
    MchTable table;
    MchState state;
    std::vector<MchRows> rows{};  ///< the same names, types and shapes of a row on all ranks, also where z is 0
};

struct MchSaveOptions {
    std::uint64_t id = 0;  ///< of the save, part of the files' names; it must be new to the folder. 0: a random one
};

/// Collective over `comm`; all ranks list the same tables in the same order. Creates the folder if need be, not its
/// parents; all ranks must see the same one. Returns the id of the save.
///
/// All or nothing: files get their names when all are written and durable, the index gets its name when all files have
/// theirs, and files of the save before go after that. When a rank fails, all throw the same error, the save before it
/// still loads, and what was written is removed again (where a rank is lost half way, a file may stay that no index
/// names, until the next save). With one rank, no collective call.
///
/// Throws what shard_of() throws; BufferError also for rows that are not [z, ...] and for device memory; MeshError for
/// ranks the communicator does not have; MismatchError for ranks that list different tables or are at different
/// iterations, names given twice, and a state that is all zeros or that no load would take (ids that do not ascend,
/// slots of another shard); FormatError for names that are not UTF-8 and for an index that is too long; IoError.
std::string save_mch(std::string folder, std::span<MchSaving const> tables, CommunicatorRef comm,
                     MchSaveOptions const& options = {});
/// The same for one table.
std::string save_mch(std::string folder, MchSaving const& table, CommunicatorRef comm,
                     MchSaveOptions const& options = {});

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/checkpoint_save.ipp>
#endif
