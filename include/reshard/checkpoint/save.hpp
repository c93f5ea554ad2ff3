// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/save.hpp
/// \brief  save(): distributed tensors into a folder, each byte once, all of them or none.
/// \depends checkpoint/save_options, comm/any_communicator, exec/local_tensor. Link reshard::save
/// (nlohmann_json, ISA-L, xxHash, threads).
///
///     save("checkpoint", tensors, comm);
///     save("checkpoint", tensors, comm, {.dedup = SaveDedup::shared, .replica_axes = {1}});
///
/// Each rank that has something to write makes one safetensors file, which every tool for them opens; then
/// `reshard.manifest.json` names the files and what lies where, with a checksum for each extent. Until that name is
/// there the folder holds the save that it held before.
#pragma once

#include <reshard/checkpoint/save_options.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// Collective over `comm`, which may be any group: other ranks are not involved. All ranks list the same tensors in the
/// same order, and the same options (see there); a rank outside a tensor's mesh lists it too and writes nothing of it.
/// Rank 0 creates the folder if need be, and those that it lies in; all ranks must see the same one. Nobody writes to
/// the tensors meanwhile. One agreement on the lists, then no talk until this rank's bytes are written.
///
/// All or nothing: files get their names when all are written and durable, the manifest gets its name when all files
/// have theirs, and files of the save before go after that, with what saves that died have left. When a rank fails, all
/// throw the same error, the save before it still loads, and what was written is removed again (where a rank is lost
/// half way, a file may stay until the next save). Only where a rank is lost, or late, about when the manifest gets its
/// name may the save be there although all throw: the error ends with what this rank knows, that the folder holds the
/// save (rank 0 always knows), or this save or what it held before. A second save into the folder meanwhile is refused.
///
/// Copies that the save leaves out are compared first, unless options say otherwise. Tensors may share memory (tied
/// weights): each is written; load() takes one of them.
///
/// Throws, the same on every rank and naming the rank it belongs to: MismatchError for lists that differ and for copies
/// that are not equal, naming tensor and ranks; what plan_save() throws; BufferError for views that do not fit,
/// MeshError, DTypeError for elements smaller than a byte (view them as U8); IoError for what the file system refuses,
/// for a save under way in the same folder, and for one that has replaced the manifest meanwhile; OutOfMemory. Errors
/// of the transport as from any collective.
SaveReport save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                SaveOptions const& options = {});
/// The same for tensors that are const here.
SaveReport save(std::string folder, std::span<ConstLocalTensor const> tensors, CommunicatorRef comm,
                SaveOptions const& options = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/save.ipp>
#endif
