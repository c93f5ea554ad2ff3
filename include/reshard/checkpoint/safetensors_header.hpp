// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors_header.hpp
/// \brief  Parses and checks the header of a safetensors file: 8 bytes of length, JSON, then the data section.
/// \depends checkpoint/tensor_info.hpp, nlohmann-json (how it is done). No I/O.
/// Source: github.com/huggingface/safetensors, `read_metadata` in safetensors/src/tensor.rs (rules and their order).
///
/// Stricter than that library: keys given twice, more than 8 dimensions and sizes above 2^63 - 1 bits are refused,
/// and a tensor entry is an object (serde also takes `["F32",[1],[0,4]]`).
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// The checked content of a header.
class SafetensorsHeader {
public:
    SafetensorsHeader() = default;
    /// \pre `tensors` are sorted by position and have distinct names.
    SafetensorsHeader(std::vector<TensorInfo> tensors, Metadata metadata, Index data_offset)
        : tensors_(std::move(tensors)),
          by_name_(detail::places_by_name(tensors_)),
          metadata_(std::move(metadata)),
          data_offset_(data_offset),
          data_bytes_(tensors_.empty() ? 0 : tensors_.back().end) {}

    /// Of a file whose tensors somebody else lists.
    SafetensorsHeader(Index data_offset, Index data_bytes) noexcept
        : data_offset_(data_offset), data_bytes_(data_bytes) {}

    /// In file order: by (begin, end, name).
    [[nodiscard]] std::span<TensorInfo const> tensors() const& noexcept { return tensors_; }
    [[nodiscard]] std::vector<TensorInfo> tensors() && noexcept { return std::move(tensors_); }
    /// The tensor of that name, or null. Logarithmic in the number of tensors.
    [[nodiscard]] TensorInfo const* find(std::string_view tensor) const& noexcept {
        return detail::find_by_name(tensors_, by_name_, tensor);
    }
    TensorInfo const* find(std::string_view tensor) const&& = delete;  // it would point into what is gone
    /// Sorted by key; empty when the file has none.
    [[nodiscard]] Metadata const& metadata() const& noexcept { return metadata_; }
    [[nodiscard]] Metadata metadata() && noexcept { return std::move(metadata_); }
    /// Where the data section begins, in bytes from the start of the file.
    [[nodiscard]] Index data_offset() const noexcept { return data_offset_; }
    [[nodiscard]] Index data_bytes() const noexcept { return data_bytes_; }

private:
    std::vector<TensorInfo> tensors_;
    std::vector<std::size_t> by_name_;
    Metadata metadata_;
    Index data_offset_ = 8;
    Index data_bytes_ = 0;
};

/// The length of the JSON text, from the first 8 bytes of a file of `file_bytes` bytes.
/// Throws FormatError: HeaderTooSmall, HeaderTooLarge, InvalidHeaderLength.
[[nodiscard]] Index safetensors_header_length(std::span<std::byte const> first_bytes, Index file_bytes,
                                              std::string_view file = "safetensors");

/// FNV-1a (64 bits) of a file up to its data section, from the JSON text with its padding: files of different versions
/// almost always differ in it, or in their size. Manifests keep it (docs/manifest.md).
[[nodiscard]] std::uint64_t safetensors_header_digest(std::string_view json) noexcept;

/// Parses the JSON text (without the 8 length bytes) of a file of `file_bytes` bytes.
/// Throws FormatError; `safetensors_rule(error)` says which rule was broken.
[[nodiscard]] SafetensorsHeader parse_safetensors_json(std::string_view json, Index file_bytes,
                                                       std::string_view file = "safetensors");

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/safetensors_header.ipp>
#endif
