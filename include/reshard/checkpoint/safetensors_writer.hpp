// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors_writer.hpp
/// \brief  Writes safetensors files as a stream: one file, or a folder of files with their index.
/// \depends checkpoint/safetensors_layout.hpp, POSIX. Memory does not grow with the tensors.
///
/// Files are written under temporary names, made durable, renamed. Until all bytes are there nothing visible changes;
/// a call that fails removes what it wrote, and what was there before is intact.
#pragma once

#include <reshard/checkpoint/safetensors_layout.hpp>

#include <functional>  // function
#include <span>        // span
#include <vector>      // vector

namespace reshard::inline v0_1 {

inline constexpr Index default_chunk_bytes = Index{8} << 20;

/// Supplies bytes [byte_begin, byte_begin + out.size()) of a tensor: file by file, inside a file widest dtype first,
/// then by name; in pieces of whole elements, of at most chunk_bytes, or 192 where that is less. What it throws ends
/// the call.
using FillTensor = std::function<void(CheckpointTensor const& tensor, Index byte_begin, std::span<std::byte> out)>;

/// Writes one file. Throws FormatError as safetensors_layout does, IoError.
void write_safetensors(std::string path, std::vector<TensorSpec> tensors, FillTensor const& fill,
                       Metadata const& metadata = default_metadata(), Index chunk_bytes = default_chunk_bytes);

/// Writes a folder in Hugging Face form: `model.safetensors`, or `model-0000k-of-0000n.safetensors` with
/// `model.safetensors.index.json`, which appears first: whoever reads misses the files that it names until all are
/// there. Creates the folder if need be, and those that it lies in. A lone `model.safetensors` is replaced in one step
/// by another; any other checkpoint in the way is an error, since several files cannot be replaced in one step; so is
/// a save into the folder that is under way. With an error a folder that it has made goes. Throws as above.
void write_checkpoint(std::string const& folder, std::vector<TensorSpec> tensors, FillTensor const& fill,
                      Index max_file_bytes = default_max_file_bytes, Metadata const& metadata = default_metadata(),
                      Index chunk_bytes = default_chunk_bytes);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/safetensors_writer.ipp>
#endif
