// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/consolidate.hpp
/// \brief  consolidate(): shards to full files; shard_checkpoint(): files of any kind to shards of another mesh.
/// \depends checkpoint/{consolidate_options,placed_tensor,save_async}, comm/any_communicator. Link reshard::save.
///
///     consolidate("sharded", "full");                          // alone
///     consolidate("sharded", "full", comm, options);           // any group of ranks that share the folders
///     consolidate(saving, "sharded", "full", comm);            // a save under way: when it is done
///     shard_checkpoint("full", "sharded", placed_as("(2,2):(S0,R)"), comm);
///
/// All three jobs - shards to files, files to shards, shards to other shards - are one transition between what files
/// hold and what files are to hold. Each rank has an equal share of the bytes that are written, wherever tensors and
/// files begin and end: one file keeps all ranks busy as many do. Nothing is sent from rank to rank but what they agree
/// on; no process group is needed besides `comm`, and no GPU.
#pragma once

#include <reshard/checkpoint/consolidate_options.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/comm/any_communicator.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// Collective over `comm`, any group: ranks outside it are neither needed nor waited for. All ranks give the same paths
/// (each its own spelling of them) and the same options (see there), and see the same folders.
///
/// `from` is as in Checkpoint::open(): shards of this library or of PyTorch's DCP, or full files. `to` is a folder that
/// is not there yet, or empty; rank 0 creates it, and those that it lies in, which stay if the call fails. Afterwards
/// it has `model.safetensors`, or `model-0000k-of-0000n.safetensors` with `model.safetensors.index.json`, or the files
/// of a weight_map with that index: what Hugging Face's tools read; with ConsolidateOptions::manifest checksums, too.
///
/// Coverage, options, folders and free space are checked before anything is written. Then ranks write, each its share,
/// and vote after every vote_bytes; nobody waits for anybody in between. Files are written under temporary names, made
/// durable, renamed; of whole files the index comes first, and the manifest last. When a rank fails, all throw
/// the same error, naming the rank and the reason, and what was written is removed.
///
/// Throws, the same on every rank: IoError (what the file system refuses; a folder that is not empty, is the one that
/// is read, has no room, is not shared, naming the ranks; a save under way in `from`), FormatError (files that break a
/// rule; parts of tensors missing or there twice, naming tensor and box; bytes that are not those that were saved),
/// MismatchError (files of another save than the manifest; copies that differ; ranks that want different things),
/// DTypeError, BufferError (options that mean nothing), OutOfMemory. Errors of the transport as from any collective.
RewriteReport consolidate(std::string from, std::string to, CommunicatorRef comm,
                          ConsolidateOptions const& options = {});
/// By this process alone.
RewriteReport consolidate(std::string from, std::string to, ConsolidateOptions const& options = {});

/// What start_save() is still writing into `from`: waits for it first. Collective also over the ranks that save; those
/// of them that are not in `comm` call SaveRequest::wait(). Throws what that throws: nothing is written to `to` then.
RewriteReport consolidate(SaveRequest& saving, std::string from, std::string to, CommunicatorRef comm,
                          ConsolidateOptions const& options = {});

/// As consolidate(), the other way: `to` becomes what save() would leave if the ranks of a mesh had the tensors as
/// `place` says, with manifest and checksums. The mesh may have any number of ranks, whatever `comm` has. Throws also
/// what plan_save() throws.
RewriteReport shard_checkpoint(std::string from, std::string to, PlaceTensor const& place, CommunicatorRef comm,
                               ShardOptions const& options = {});
/// By this process alone.
RewriteReport shard_checkpoint(std::string from, std::string to, PlaceTensor const& place,
                               ShardOptions const& options = {});

/// A line for each thing that it counts.
[[nodiscard]] std::string explain(RewriteReport const& report);

/// Every tensor by one PlacementRule, such as "(2,2):(S0,R)". Throws NotationError.
[[nodiscard]] PlaceTensor placed_as(std::string_view notation);

/// The weight_map of an index, for ConsolidateOptions::weight_map: (tensor, file). Throws IoError, FormatError.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> read_weight_map(std::string const& index);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/consolidate.ipp>
#endif
