// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/weight_map_text.hpp
/// \brief  Writes `model.safetensors.index.json`: which tensor lies in which file.
/// \depends checkpoint/detail/json_text, checkpoint/tensor_info. No I/O.
#pragma once

#include <reshard/checkpoint/detail/json_text.hpp>
#include <reshard/checkpoint/tensor_info.hpp>

#include <span>     // span
#include <utility>  // pair

namespace reshard::inline v0::detail {

/// As transformers writes it: two spaces, sorted keys, a final newline. `map` is (tensor, file), sorted. Throws
/// FormatError for more text than readers take.
[[nodiscard]] inline std::string weight_map_text(std::span<std::pair<std::string, std::string> const> map,
                                                 Index total_bytes, Index most_bytes = max_safetensors_header_bytes) {
    std::string text = concat("{\n  \"metadata\": {\n    \"total_size\": ", total_bytes, "\n  },\n  \"weight_map\": {");
    char const* separator = "\n    ";
    for (auto const& [tensor, file] : map) {
        text += separator;
        append_json_string(text, tensor);
        text += ": ";
        append_json_string(text, file);
        separator = ",\n    ";
    }
    text += "\n  }\n}\n";
    if (static_cast<Index>(text.size()) > most_bytes) {
        raise_rule(
            SafetensorsRule::invalid_index,
            concat("the index of ", map.size(), " tensors takes ", text.size(), " bytes, more than the ", most_bytes,
                   " that readers take. Fix: shorten names of tensors and files, or write several folders."));
    }
    return text;
}

}  // namespace reshard::inline v0::detail
