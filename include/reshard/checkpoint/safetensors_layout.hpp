// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/safetensors_layout.hpp
/// \brief  Where each tensor will lie in a file to be written: a pure function of the list of tensors.
/// \depends checkpoint/tensor_info.hpp. No I/O: every rank computes the same layout.
/// Source: github.com/huggingface/safetensors, `prepare` in safetensors/src/tensor.rs (order and padding);
/// github.com/huggingface/huggingface_hub, `split_state_dict_into_shards_factory` (split into files).
#pragma once

#include <reshard/checkpoint/detail/json_text.hpp>
#include <reshard/checkpoint/tensor_info.hpp>

#include <algorithm>  // sort, adjacent_find, find_if

namespace reshard::inline v0 {

/// A file as it will be: `start` (length, JSON and padding), then the tensors back to back.
struct SafetensorsLayout {
    std::string start;                ///< a multiple of 8 bytes, so the data section is aligned
    std::vector<TensorInfo> tensors;  ///< in file order: widest dtype first, then by name
    Index data_bytes = 0;
};

/// `{"format": "pt"}`: Hugging Face loaders refuse files without it.
[[nodiscard]] inline Metadata default_metadata() { return {{"format", "pt"}}; }

namespace detail {

inline void check_written_text(std::string_view what, std::string_view text) {
    if (!is_utf8(text)) {
        raise_rule(SafetensorsRule::invalid_header,
                   concat(what, " ", quote_name(text), " is not UTF-8. Fix: encode it before writing."));
    }
}

template <class List, class Key>
void refuse_twice(List const& sorted, Key const& key) {
    auto const twin = std::adjacent_find(sorted.begin(), sorted.end(),
                                         [&](auto const& a, auto const& b) { return key(a) == key(b); });
    if (twin != sorted.end()) {
        raise_rule(SafetensorsRule::duplicate_key,
                   concat(quote_name(key(*twin)), " is given twice. Fix: write each name once."));
    }
}

inline void refuse_duplicate_names(std::vector<TensorSpec> const& tensors) {
    std::vector<std::string_view> names(tensors.begin() == tensors.end() ? 0 : tensors.size());
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = tensors[i].name;
    std::sort(names.begin(), names.end());
    refuse_twice(names, [](std::string_view text) { return text; });
}

}  // namespace detail

/// The layout of one file. Throws FormatError: DuplicateKey, InvalidHeader (a text that is not UTF-8),
/// InvalidHeaderDeserialization (a tensor called `__metadata__`), ValidationOverflow, MisalignedSlice, HeaderTooLarge.
[[nodiscard]] inline SafetensorsLayout safetensors_layout(std::vector<TensorSpec> tensors,
                                                          Metadata metadata = default_metadata()) {
    detail::refuse_duplicate_names(tensors);
    std::sort(tensors.begin(), tensors.end(), [](TensorSpec const& a, TensorSpec const& b) {
        return a.dtype != b.dtype ? b.dtype < a.dtype : a.name < b.name;
    });
    std::sort(metadata.begin(), metadata.end());
    detail::refuse_twice(metadata, [](auto const& item) -> std::string const& { return item.first; });

    std::string json = "{";
    if (!metadata.empty()) {
        json += "\"__metadata__\":{";
        for (auto const& [key, value] : metadata) {
            detail::check_written_text("the metadata text", key);
            detail::check_written_text("the metadata text", value);
            if (json.back() != '{') json += ',';
            detail::append_json_string(json, key);
            json += ':';
            detail::append_json_string(json, value);
        }
        json += '}';
    }

    SafetensorsLayout layout;
    layout.tensors.reserve(tensors.size());
    for (TensorSpec& tensor : tensors) {
        detail::check_written_text("the tensor name", tensor.name);
        if (tensor.name == "__metadata__") {
            detail::raise_rule(SafetensorsRule::invalid_header_deserialization,
                               "a tensor cannot be called '__metadata__'. Fix: rename it.");
        }
        Index const bytes = stored_bytes(tensor);
        if (bytes > INT64_MAX - layout.data_bytes) {
            detail::raise_rule(SafetensorsRule::validation_overflow,
                               concat("the bytes of the file exceed 64 bits at tensor ",
                                      detail::quote_name(tensor.name), ". Fix: correct its shape."));
        }
        Index const begin = layout.data_bytes;
        layout.data_bytes += bytes;
        if (json.size() > 1) json += ',';
        detail::append_json_string(json, tensor.name);
        json += concat(":{\"dtype\":\"", name(tensor.dtype), "\",\"shape\":", to_string(tensor.shape),
                       ",\"data_offsets\":[", begin, ",", layout.data_bytes, "]}");
        layout.tensors.push_back({std::move(tensor.name), tensor.dtype, tensor.shape, begin, layout.data_bytes});
    }
    json += '}';
    json.append((8 - json.size() % 8) % 8, ' ');
    if (static_cast<Index>(json.size()) > max_safetensors_header_bytes) {
        detail::raise_rule(
            SafetensorsRule::header_too_large,
            concat("the header would take ", json.size(), " bytes, more than the ", max_safetensors_header_bytes,
                   " allowed. Fix: spread the tensors over several files."));
    }
    for (int byte = 0; byte < 8; ++byte) layout.start += static_cast<char>((json.size() >> (8 * byte)) & 0xffU);
    layout.start += json;
    return layout;
}

/// Which tensors share a file: greedy in the order given, a new file when the next tensor would pass
/// `max_file_bytes` (of data); a tensor larger than that has a file of its own. Throws as stored_bytes does.
[[nodiscard]] inline std::vector<std::vector<TensorSpec>> split_into_files(std::vector<TensorSpec> tensors,
                                                                           Index max_file_bytes) {
    std::vector<std::vector<TensorSpec>> files(1);
    Index filled = 0;
    for (TensorSpec& tensor : tensors) {
        Index const bytes = stored_bytes(tensor);
        if (!files.back().empty() && (filled > max_file_bytes || bytes > max_file_bytes - filled)) {
            files.emplace_back();
            filled = 0;
        }
        filled += bytes;
        files.back().push_back(std::move(tensor));
    }
    return files;
}

/// `model-00002-of-00005.safetensors`; `model.safetensors` when there is one file. `file` counts from 0.
[[nodiscard]] inline std::string checkpoint_file_name(int file, int files) {
    if (files == 1) return "model.safetensors";
    auto const five = [](int number) {
        std::string const digits = std::to_string(number);
        return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
    };
    return concat("model-", five(file + 1), "-of-", five(files), ".safetensors");
}

}  // namespace reshard::inline v0
