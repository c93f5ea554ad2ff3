// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/tensor_info.hpp
/// \brief  What a checkpoint says about a tensor, and the rules a file can break, each with a name.
/// \depends core only. No I/O, no JSON.
#pragma once

#include <reshard/checkpoint/detail/mode.hpp>
#include <reshard/core/dtype.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/shape.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // adjacent_find, lower_bound
#include <vector>     // vector

namespace reshard::inline v0_1 {

/// A tensor that will be written: everything but its bytes.
struct TensorSpec {
    std::string name;
    DType dtype = DType::u8;
    DynamicShape shape;
    friend bool operator==(TensorSpec const&, TensorSpec const&) = default;
};

/// A tensor inside one file. It is packed, row-major and little-endian.
struct TensorInfo {
    std::string name;
    DType dtype = DType::u8;
    DynamicShape shape;
    Index begin = 0;  ///< first byte, relative to the file's data section
    Index end = 0;    ///< one past the last byte, relative to the file's data section

    [[nodiscard]] Index bytes() const noexcept { return end - begin; }
    friend bool operator==(TensorInfo const&, TensorInfo const&) = default;
};

/// A tensor of a checkpoint of one or more files.
struct CheckpointTensor : TensorInfo {
    int file = 0;  ///< index into the checkpoint's list of files
    friend bool operator==(CheckpointTensor const&, CheckpointTensor const&) = default;
};

/// A file's `__metadata__`: text by text, sorted by key.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Headers longer than this (bytes) are refused, on reading and on writing, as safetensors does.
inline constexpr Index max_safetensors_header_bytes = 100'000'000;

namespace enums {
/// The rules of the format. The first group carries the names of the safetensors library's own errors; the
/// second is ours, and refuses what that library lets pass or never sees.
enum class SafetensorsRule : int {
    none = 0,                        ///< the error is not about a rule of the format
    header_too_small,                ///< fewer than 8 bytes
    header_too_large,                ///< the header length is above max_safetensors_header_bytes
    invalid_header_length,           ///< the header length goes past the end of the file
    invalid_header,                  ///< the header is not UTF-8
    invalid_header_deserialization,  ///< not JSON, or JSON of another form
    invalid_offset,                  ///< a hole, an overlap, or an end before its begin
    validation_overflow,             ///< a size that does not fit 64 bits
    misaligned_slice,                ///< a 4- or 6-bit tensor that does not fill its last byte
    tensor_invalid_info,             ///< the byte range differs from shape times dtype
    metadata_incomplete_buffer,      ///< the file ends before or after its last tensor
    tensor_not_found,                ///< no tensor of that name

    duplicate_key,        ///< a key given twice (the safetensors library keeps the last one)
    too_many_dimensions,  ///< more than max_dims
    invalid_index,        ///< `model.safetensors.index.json` is not what it claims to be
    unknown_dtype,        ///< an element type of a name that this library does not know
    later_version,        ///< a manifest of a later release
    missing_files,        ///< an IoError: files that an index or a manifest names are not there
};
}  // namespace enums
using enums::SafetensorsRule;

namespace detail {
inline constexpr std::string_view safetensors_rule_names[] = {
    "none",
    "HeaderTooSmall",
    "HeaderTooLarge",
    "InvalidHeaderLength",
    "InvalidHeader",
    "InvalidHeaderDeserialization",
    "InvalidOffset",
    "ValidationOverflow",
    "MisalignedSlice",
    "TensorInvalidInfo",
    "MetadataIncompleteBuffer",
    "TensorNotFound",
    "DuplicateKey",
    "TooManyDimensions",
    "InvalidIndex",
    "UnknownDType",
    "LaterVersion",
    "MissingFiles",
};
inline constexpr int safetensors_rule_count =
    static_cast<int>(sizeof(safetensors_rule_names) / sizeof(std::string_view));
static_assert(safetensors_rule_count == static_cast<int>(SafetensorsRule::missing_files) + 1);

[[noreturn]] void raise_rule(SafetensorsRule rule, std::initializer_list<Part> words);
template <class... Parts>
[[noreturn]] void raise_rule(SafetensorsRule rule, Parts... words) {
    raise_rule(rule, {words...});
}

/// Names come from files nobody vouches for: printable, and never longer than a line or two.
[[nodiscard]] std::string quote_name(std::string_view text);
/// `['a' to 'b', 'c.*' to 'd.*']`, and what is not quoted in full tells itself apart by a digest.
[[nodiscard]] std::string renames_text(std::vector<std::pair<std::string, std::string>> const& renames);
/// For lists of names, of any length: quoted only where a terminal would not show it as it is.
[[nodiscard]] std::string list_name(std::string_view text);

/// Bytes of a packed tensor into `byte_count`, or the rule they break: ValidationOverflow, MisalignedSlice.
[[nodiscard]] SafetensorsRule count_stored_bytes(DType dtype, Indices const& extents, Index& byte_count) noexcept;

[[noreturn]] void raise_stored_bytes(SafetensorsRule rule, std::string_view who, DType dtype, Indices const& extents);

/// Of names that are looked up: which is there twice, if any.
[[nodiscard]] inline std::string_view twin_of(std::vector<std::string_view>& names) {
    sort_list(names);
    auto const twin = std::ranges::adjacent_find(names);
    return twin == names.end() ? std::string_view{} : *twin;
}

/// The places of tensors in the order of their names.
template <class Tensors>
[[nodiscard]] std::vector<std::size_t> places_by_name(Tensors const& tensors) {
    std::vector<std::size_t> places(tensors.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
    sort_list(places, [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
    return places;
}
/// The tensor of that name, or null. \pre `by_name` are the places of the tensors
template <class Tensors>
[[nodiscard]] auto find_by_name(Tensors const& tensors, std::vector<std::size_t> const& by_name,
                                std::string_view name) noexcept -> decltype(tensors.data()) {
    auto const at = std::ranges::lower_bound(
        by_name, name, {}, [&](auto i) -> auto& { return tensors[i].name; });
    return at == by_name.end() || tensors[*at].name != name ? nullptr : &tensors[*at];
}

}  // namespace detail

namespace enums {
/// "InvalidOffset", "HeaderTooLarge", ...: how every message about the rule begins.
[[nodiscard]] constexpr std::string_view name(SafetensorsRule rule) noexcept {
    return detail::safetensors_rule_names[static_cast<int>(rule)];
}
}  // namespace enums

/// Which rule an error is about, also where a rank told it the others; `none` for one that is about none.
[[nodiscard]] SafetensorsRule safetensors_rule(Error const& error) noexcept;

/// Bytes a tensor takes in a file. Throws FormatError: ValidationOverflow when its bits do not fit 64 bits,
/// MisalignedSlice when a 4- or 6-bit tensor does not fill its last byte. An empty tensor is held to the same
/// limit by its other extents, so that its strides are sound: safetensors would let [0, 2^62, 8] pass.
[[nodiscard]] Index stored_bytes(TensorSpec const& tensor);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/tensor_info.ipp>
#endif
