// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors_layout.hpp
/// \brief  Where each tensor will lie in a file to be written: a pure function of the list of tensors.
/// \depends checkpoint/tensor_info.hpp, core/function_ref.hpp. No I/O: every rank computes the same layout.
/// Source: github.com/huggingface/safetensors, `prepare` in safetensors/src/tensor.rs (order and padding);
/// github.com/huggingface/huggingface_hub, `split_state_dict_into_shards_factory` (split into files).
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/core/function_ref.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// A file as it will be: `start` (length, JSON and padding), then the tensors back to back.
struct SafetensorsLayout {
    std::string start;                ///< a multiple of 8 bytes, so the data section is aligned
    std::vector<TensorInfo> tensors;  ///< in file order: widest dtype first, then by name
    Index data_bytes = 0;
};

/// `{"format": "pt"}`: Hugging Face loaders refuse files without it.
[[nodiscard]] Metadata default_metadata();

namespace detail {

inline constexpr std::string_view index_name = "model.safetensors.index.json";
inline constexpr std::string_view single_name = "model.safetensors";

/// Throws FormatError for text that is not UTF-8. `what` leads the message.
void check_written_text(std::string_view what, std::string_view text);
/// By key. Throws FormatError for a key given twice and for text that is not UTF-8.
void sort_metadata(Metadata& metadata);

/// `model.safetensors.index.json`: which tensor lies in which file. As transformers writes it: two spaces, sorted keys,
/// a final newline. `map` is (tensor, file), sorted. Throws FormatError for more text than readers take.
[[nodiscard]] std::string weight_map_text(std::span<std::pair<std::string, std::string> const> map, Index total_bytes,
                                          Index most_bytes = max_safetensors_header_bytes);

/// The JSON text of a header with its padding: take(piece) for one piece after the other, of a quarter of a MiB or so,
/// and all texts of the metadata in the first. entry(i): the tensors in file order; each is good until the next.
/// \pre the metadata is sorted
void write_header(Metadata const& metadata, std::size_t tensors, FunctionRef<TensorInfo const&(std::size_t)> entry,
                  FunctionRef<void(std::string_view)> take);

/// Throws FormatError for two tensors of one name.
void refuse_duplicate_names(std::vector<TensorSpec> const& tensors);

}  // namespace detail

/// The layout of one file. Throws FormatError: DuplicateKey, InvalidHeader (a text that is not UTF-8),
/// InvalidHeaderDeserialization (a tensor called `__metadata__`), ValidationOverflow, MisalignedSlice, HeaderTooLarge.
[[nodiscard]] SafetensorsLayout safetensors_layout(std::vector<TensorSpec> tensors,
                                                   Metadata metadata = default_metadata());

/// Of data in a file of several tensors. 5 GB, as Hugging Face writes: "5GB" is no power of two there.
inline constexpr Index default_max_file_bytes = 5'000'000'000;

/// A file to be written, and its tensors.
struct FileSpec {
    std::string leaf;
    std::vector<TensorSpec> tensors;
};
/// Which tensors share a file: greedy in the order given, a new file when the next tensor would pass
/// `max_file_bytes` (of data); a tensor larger than that has a file of its own. Files are named by
/// checkpoint_file_name(). Throws as stored_bytes does.
[[nodiscard]] std::vector<FileSpec> split_into_files(std::vector<TensorSpec> tensors, Index max_file_bytes);

/// `model-00002-of-00005.safetensors`; `model.safetensors` when there is one file. `file` counts from 0.
[[nodiscard]] std::string checkpoint_file_name(int file, int files);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/safetensors_layout.ipp>
#endif
