// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/verify_checkpoint.hpp
/// \brief  Reads a whole checkpoint once, on all ranks together, and says everything that is wrong with it.
/// \depends checkpoint/{load_strategy,manifest}, comm/any_communicator. Link reshard::checkpoint.
///
///     VerifyReport const report = verify_checkpoint("checkpoints/step-1000", comm);  // or throws, naming all faults
///
/// Nothing is loaded and nothing but sums and messages crosses ranks.
#pragma once

#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/comm/any_communicator.hpp>

#include <compare>     // <=>
#include <functional>  // function

namespace reshard::inline v0_1 {

/// Something that is wrong, or that could not be read: that says nothing of what it is.
struct VerifyFault {
    std::string text;
    bool unread = false;
    std::string file{};  ///< where it is about one: its name in the checkpoint
    friend auto operator<=>(VerifyFault const&, VerifyFault const&) = default;
    friend bool operator==(VerifyFault const&, VerifyFault const&) = default;  // else nvcc's files lack it
};

/// What was found in order.
struct VerifyReport {
    CheckpointKind kind = CheckpointKind::file;
    Index files = 0;
    Index tensors = 0;
    Index extents = 0;
    Index extents_without_checksum = 0;  ///< read, but nobody knows what they should be
    Index bytes = 0;                     ///< of all extents
    Index bytes_read = 0;                ///< by this rank
    /// Files with tensors that the index does not name, which are no part of the checkpoint, and were not read.
    std::vector<CheckpointFile> unlisted{};
    bool full = false;  ///< no file is one of save(): where there is a manifest, consolidate() has left it
};

/// Collective over `comm`. Reads every extent of the checkpoint once, in spans over the ranks, windows of
/// `window_bytes` at a time. Checks each file's size and header, what the manifest says of each entry, and the CRC-32C
/// of each extent that has one, and that no file changes meanwhile; opening checks that the boxes cover their tensors.
///
/// Throws the same error on every rank: what Checkpoint::open() throws for a checkpoint that cannot be listed, else
/// FormatError that names all faults (the first 20 in full), IoError where nothing that could be read is wrong, and of
/// files that are there and as large as they should be something could not (permissions, too many open files, a disk),
/// BufferError for options that mean nothing, OutOfMemory.
/// When a save into the folder has removed files meanwhile, all ranks start again, as load() does.
/// `progress` is called with the bytes that this rank has gone through, and all that it goes through. `faults` receives
/// all that an error is about, on every rank, before it is thrown; none for what open() throws.
VerifyReport verify_checkpoint(std::string const& path, CommunicatorRef comm, ReadOptions const& reads = {},
                               Index window_bytes = default_window_bytes,
                               std::function<void(Index done, Index total)> const& progress = {},
                               std::vector<VerifyFault>* faults = nullptr);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/verify_checkpoint.ipp>
#endif
