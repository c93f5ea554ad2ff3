// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/verify_replicas.hpp
/// \brief  verify_replicas(): do all ranks that should hold the same bytes hold the same bytes? If not: who, where, and
/// with which values; and, if asked, make it so.
/// \depends checkpoint/replica_report, comm/any_communicator, exec/local_tensor; links xxHash (reshard::verify).
///
/// Which ranks should agree follows from the placements: those that differ along Replicate axes only, whatever the
/// mesh. Ranks along Shard and Partial axes are never compared with each other. In the happy path every rank reads its
/// tensors once and sends 16 bytes per replica group it belongs to.
///
///     ReplicaReport const report = verify_replicas(tensors, comm, {.mode = VerifyMode::report});
///     if (!report.equal() && comm.rank() == 0) std::puts(explain(report).c_str());
#pragma once

#include <reshard/checkpoint/replica_report.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

namespace enums {
/// What becomes of a difference.
enum class VerifyMode : std::uint8_t {
    error,   ///< MismatchError on every rank, with the report's text
    report,  ///< the report is returned
    repair,  ///< the most common contents overwrite the others; the report says what was repaired
};
}  // namespace enums
using enums::VerifyMode;

/// The same on every rank.
struct VerifyReplicasOptions {
    VerifyMode mode = VerifyMode::error;
    /// -0.0 and 0.0 are equal, and so are all NaNs. A repair leaves those bits alone where nothing else in a rank's
    /// part of a tensor differs.
    bool canonicalise = false;
    /// Repairs only, and only where no contents are the most common: the rank that is right. Where a tensor is cut as
    /// well, the shards of its replica are. -1: none.
    int root = -1;
    /// To find the first difference, tensors are hashed in blocks of so many bytes, and one block is sent.
    Index block_bytes = Index{1} << 20;
};

/// Collective over `comm`. Compares every tensor over exactly the ranks that should hold the same bytes of it; all
/// ranks get the same report. Ranks outside a tensor's mesh list it too: what they have of it is not looked at.
///
/// All ranks list the same tensors in the same order; this is agreed before anything is read. Nobody writes to them
/// until it returns. The contents that most ranks of a group hold are taken to be right and the other ranks are odd;
/// where two contents are equally common nobody is. Only VerifyMode::repair writes. Tensors may share memory (tied
/// weights) if they do on all ranks.
///
/// Throws, the same on every rank: MismatchError for differences under VerifyMode::error, for a tie that
/// VerifyReplicasOptions::root does not decide under VerifyMode::repair (nothing has been written then), and when ranks
/// list different tensors or options, naming the first; BufferError, naming tensor and rank, for a view that does not
/// fit; MeshError for ranks that do not exist; DTypeError for elements smaller than a byte. Also what the communicator
/// throws; a repair that was under way then leaves unspecified what it was to overwrite.
ReplicaReport verify_replicas(std::span<LocalTensor const> tensors, CommunicatorRef comm,
                              VerifyReplicasOptions const& options = {});
/// The same for tensors that are const here; VerifyMode::repair, which would write to them, is a BufferError.
ReplicaReport verify_replicas(std::span<ConstLocalTensor const> tensors, CommunicatorRef comm,
                              VerifyReplicasOptions const& options = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/verify_replicas.ipp>
#endif
