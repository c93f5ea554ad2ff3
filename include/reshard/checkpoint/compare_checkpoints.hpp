// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/compare_checkpoints.hpp
/// \brief  Are two checkpoints equal, however they are cut into files? If not: which tensor, where, and both values.
/// \depends checkpoint/compare_report, comm/any_communicator. Link reshard::checkpoint.
///
///     CompareReport const report = compare_checkpoints("sharded", "full", comm);
///     if (!report.equal()) std::puts(explain(report).c_str());
#pragma once

#include <reshard/checkpoint/compare_report.hpp>
#include <reshard/comm/any_communicator.hpp>

#include <string>  // string

namespace reshard::inline v0 {

/// Collective over `comm`. Both are as in Checkpoint::open(): shards of this library or of PyTorch's DCP, full files.
/// All ranks give the same paths and see the same folders. Each rank compares an equal part of the bytes, of both
/// checkpoints, a window at a time: memory does not grow with tensors or files, and of files only those are open that
/// the part lies in.
///
/// Elements are equal if their bits are: -0 and 0 differ, and a NaN is equal to itself. Of tensors whose copies were
/// saved apart the first copy is compared. Metadata, file names and how tensors are cut do not count. Sums are not
/// compared: verify_checkpoint() does that.
///
/// Throws the same error on every rank: what Checkpoint::open() throws, IoError for files that cannot be read or that
/// change meanwhile, BufferError for options that mean nothing, OutOfMemory.
[[nodiscard]] CompareReport compare_checkpoints(std::string const& first, std::string const& second,
                                                CommunicatorRef comm, CompareOptions const& options = {});

/// A line for each difference, below it the elements that are listed; `equal: ...` where there is none.
[[nodiscard]] std::string explain(CompareReport const& report);

/// `[3,7]`: the index of an element of a difference. For elements smaller than a byte, `byte 7`.
[[nodiscard]] std::string index_text(CheckpointDifference const& difference, Index place);
/// `1.25 (0x3fa00000)`; integers without their bits.
[[nodiscard]] std::string value_text(CheckpointDifference const& difference, std::uint64_t bits);

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/compare_checkpoints.ipp>
#endif
