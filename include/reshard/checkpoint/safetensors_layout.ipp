// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors_layout.hpp is done.
#pragma once

#include <reshard/checkpoint/read_options.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/checkpoint/text.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE Metadata default_metadata() { return {{"format", "pt"}}; }

RESHARD_INLINE void detail::check_written_text(std::string_view what, std::string_view text) {
    if (!is_utf8(text)) {
        raise_rule(SafetensorsRule::invalid_header, what, " ", quote_name(text),
                   " is not UTF-8. Fix: encode it before writing.");
    }
}

namespace detail {
/// Throws FormatError for two items of one name.
template <class List, class Name>
void refuse_twice(List const& list, Name const& name) {
    std::vector<std::string_view> names;
    for (auto const& item : list) names.push_back(name(item));
    std::string_view const twin = twin_of(names);
    if (twin.data() == nullptr) return;
    raise_rule(SafetensorsRule::duplicate_key, quote_name(twin), " is given twice. Fix: write each name once.");
}
}  // namespace detail

RESHARD_INLINE void detail::sort_metadata(Metadata& metadata) {
    sort_list(metadata);
    refuse_twice(metadata, [](auto const& item) -> std::string_view { return item.first; });
    for (auto const& [key, value] : metadata) {
        check_written_text("the metadata text", key);
        check_written_text("the metadata text", value);
    }
}

RESHARD_INLINE void detail::refuse_duplicate_names(std::vector<TensorSpec> const& tensors) {
    refuse_twice(tensors, [](TensorSpec const& tensor) -> std::string_view { return tensor.name; });
}

RESHARD_INLINE std::string detail::weight_map_text(std::span<std::pair<std::string, std::string> const> map,
                                                   Index total_bytes, Index most_bytes) {
    std::string text = concat("{\n  \"metadata\": {\n    \"total_size\": ", total_bytes, "\n  },\n  \"weight_map\": {");
    for (auto const& [tensor, file] : map) {
        text += text.back() == '{' ? "\n    " : ",\n    ";
        append_json_string(text, tensor);
        text += ": ";
        append_json_string(text, file);
    }
    text += "\n  }\n}\n";
    if (detail::as_index(text.size()) > most_bytes) {
        raise_rule(SafetensorsRule::invalid_index, "the index of ", map.size(), " tensors takes ", text.size(),
                   " bytes, more than the ", most_bytes,
                   " that readers take. Fix: shorten names of tensors and files, or write several folders.");
    }
    return text;
}

RESHARD_INLINE void detail::write_header(Metadata const& metadata, std::size_t tensors,
                                         FunctionRef<TensorInfo const&(std::size_t)> entry,
                                         FunctionRef<void(std::string_view)> take) {
    constexpr std::size_t piece = std::size_t{1} << 18;
    std::string json = "{";
    for (auto const& [key, value] : metadata) {
        json += json.size() == 1 ? "\"__metadata__\":{" : ",";
        append_json_string(json, key);
        json += ':';
        append_json_string(json, value);
    }
    if (!metadata.empty()) json += '}';
    std::size_t size = 0;
    bool is_first = metadata.empty();
    auto const pass_on = [&] {
        size += json.size();
        take(json);
        json.clear();
    };
    for (std::size_t i = 0; i < tensors; ++i) {
        TensorInfo const& tensor = entry(i);
        if (!std::exchange(is_first, false)) json += ',';
        append_json_string(json, tensor.name);
        append(json, {":{\"dtype\":\"", name(tensor.dtype), "\",\"shape\":", to_string(tensor.shape),
                      ",\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}"});
        if (json.size() >= piece) pass_on();
    }
    json += '}';
    json.append((8 - (size + json.size()) % 8) % 8, ' ');
    pass_on();
}

RESHARD_INLINE SafetensorsLayout safetensors_layout(std::vector<TensorSpec> tensors, Metadata metadata) {
    detail::refuse_duplicate_names(tensors);
    detail::sort_list(tensors, [](TensorSpec const& a, TensorSpec const& b) {
        return a.dtype != b.dtype ? b.dtype < a.dtype : a.name < b.name;
    });
    detail::sort_metadata(metadata);

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
            detail::raise_rule(SafetensorsRule::validation_overflow, "the bytes of the file exceed 64 bits at tensor ",
                               detail::quote_name(tensor.name), ". Fix: correct its shape.");
        }
        Index const begin = layout.data_bytes;
        layout.data_bytes += bytes;
        layout.tensors.push_back({std::move(tensor.name), tensor.dtype, tensor.shape, begin, layout.data_bytes});
    }
    layout.start.resize(8);
    detail::write_header(
        metadata, layout.tensors.size(), [&](std::size_t i) -> TensorInfo const& { return layout.tensors[i]; },
        [&](std::string_view piece) { layout.start += piece; });
    std::size_t const size = layout.start.size() - 8;
    if (detail::as_index(size) > max_safetensors_header_bytes) {
        detail::raise_rule(SafetensorsRule::header_too_large, "the header would take ", size, " bytes, more than the ",
                           max_safetensors_header_bytes, " allowed. Fix: spread the tensors over several files.");
    }
    for (std::size_t byte = 0; byte < 8; ++byte) layout.start[byte] = static_cast<char>((size >> (8 * byte)) & 0xffU);
    return layout;
}

RESHARD_INLINE std::vector<FileSpec> split_into_files(std::vector<TensorSpec> tensors, Index max_file_bytes) {
    detail::check_option("write_checkpoint", "max_file_bytes", max_file_bytes, 0, "0 gives each tensor a file.");
    std::vector<FileSpec> files(1);
    Index filled = 0;
    for (TensorSpec& tensor : tensors) {
        Index const bytes = stored_bytes(tensor);
        if (!files.back().tensors.empty() && (filled > max_file_bytes || bytes > max_file_bytes - filled)) {
            files.emplace_back();
            filled = 0;
        }
        filled += bytes;
        files.back().tensors.push_back(std::move(tensor));
    }
    auto const count = static_cast<int>(files.size());
    for (int i = 0; i < count; ++i) files[detail::as_size(i)].leaf = checkpoint_file_name(i, count);
    return files;
}

RESHARD_INLINE std::string checkpoint_file_name(int file, int files) {
    if (files == 1) return std::string(detail::single_name);
    using detail::decimal_text;
    return errors::concat("model-", decimal_text(file + 1, 5), "-of-", decimal_text(files, 5), ".safetensors");
}

}  // namespace reshard::inline v0_1
