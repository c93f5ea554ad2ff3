// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/validate.hpp
/// \brief  validate(): all that is wrong with a table's state, on one rank alone or on all together.
/// \depends mch/{report,state}, comm/any_communicator.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/mch/report.hpp>
#include <reshard/mch/state.hpp>

namespace reshard::inline v0_1 {

/// The faults of one rank's shard (MchFault: all but I6 and I7, which take other ranks). No communicator: for export, a
/// world of one, or a file. Reads the shard once per column; writes nothing.
///
/// Throws what shard_of() throws; BufferError for device memory.
[[nodiscard]] MchReport validate(MchTable const& table, MchState const& state, Index rank);

/// The faults of all shards, I6 and I7 included: the same report on every rank. Collective over `comm`, whose ranks are
/// those of the table's mesh and maybe others; these pass any state. A sound table costs one agreement and one gather
/// of 24 bytes a rank; else ids that are looked up on another rank are sent there, 16 bytes each, to see whether it has
/// them too. On a group of one nothing is communicated.
///
/// Throws, the same on every rank, what validate() of the lowest rank that fails throws, naming that rank; MeshError
/// for a mesh of ranks the communicator does not have; MismatchError, printing both, when ranks describe different
/// tables.
[[nodiscard]] MchReport validate(MchTable const& table, MchState const& state, CommunicatorRef comm);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/validate.ipp>
#endif
