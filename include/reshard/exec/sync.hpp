// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/sync.hpp
/// \brief  One rank's tensors become everybody's: a module's parameters and buffers, in place, in few large messages.
/// \depends exec/local_tensor, comm/any_communicator; <span>. Opt-in: not part of the umbrella.
///
///     sync(module, comm);                                          // what rank 0 holds is the truth
///     sync(module, comm, SyncOptions{.root = 3});
///
/// A tensor that is cut along some mesh axes and copied along others is made equal along the copied ones: the truth for
/// a rank is what the rank with the root's coordinates on those axes, and its own on the others, holds. A tensor
/// without copies has nothing to be made equal.
///
/// Every byte leaves its source once; the other replicas pass it on (plan/relay.hpp), so that each receives the
/// tensor's bytes once and no rank sends much more than that. Ranks that hold the truth write nothing.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// The same on every rank.
struct SyncOptions {
    int root = 0;  ///< whose values count, a rank of the communicator
    /// Tensors travel together while they are at most this many bytes. 0: every tensor alone.
    Index bucket_bytes = Index{1} << 20;
};

/// Collective over `comm`: every rank lists the same tensors in the same order. Checks and agrees first, the same error
/// everywhere, naming rank and tensor; until then nothing is written. A failure later on leaves tensors of ranks other
/// than the root's unspecified.
///
/// Throws MismatchError when names, shapes, element types, distributions, numbers of tensors or options differ between
/// ranks, naming the first tensor that does and both ranks; BufferError for a view that is not what the rank holds, or
/// memory of two tensors that overlaps; PlacementError for Partial; DTypeError for elements smaller than a byte;
/// MeshError for a root or mesh that does not fit; what prepare and RunRequest::wait throw.
void sync(std::span<LocalTensor const> tensors, CommunicatorRef comm, SyncOptions const& options = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/sync.ipp>
#endif
