// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/weight_map.hpp
/// \brief  Reads `model.safetensors.index.json`: which tensor lies in which file.
/// \depends checkpoint/json_tree.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0::detail {

/// (tensor, file), sorted by tensor.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

/// A path of a file that stays in its folder: not empty, not absolute, no "..", no zero byte. Sub-folders are fine.
/// `is_plain`: in the one spelling that no other path has.
[[nodiscard]] inline bool stays_in_folder(std::string_view path, bool is_plain = false) noexcept {
    if (path.starts_with('/') || path.find('\0') != std::string_view::npos) return false;
    for (;;) {
        std::size_t const slash = path.find('/');
        std::string_view const part = path.substr(0, slash);
        if (part == ".." || (is_plain && (part.empty() || part == "."))) return false;
        if (slash == std::string_view::npos) return !part.empty();
        path.remove_prefix(slash + 1);
    }
}

/// How JsonTree refuses an index.
template <SafetensorsRule rule>
[[noreturn]] inline void refuse_index(std::string_view file, std::string_view why) {
    raise_rule(rule, concat(file, ": ", why, ". Fix: fetch or write the index anew."));
}

/// What stands under "weight_map"; "metadata" and whatever else is there is skipped: its total_size is wrong often
/// enough in the wild. Throws FormatError: InvalidIndex, or DuplicateKey for what is given twice.
[[nodiscard]] inline WeightMap parse_weight_map(std::string_view json, std::string_view file) {
    JsonTree const tree(json, file, refuse_index<SafetensorsRule::invalid_index>, {},
                        refuse_index<SafetensorsRule::duplicate_key>);
    WeightMap map;
    JsonReader(tree).at("weight_map").for_each_member([&](std::string tensor, JsonReader const& leaf) {
        if (!stays_in_folder(leaf.text_view()))
            leaf.fail(concat("is ", quote_name(leaf.text_view()), ", which is no file inside the folder"));
        map.emplace_back(std::move(tensor), leaf.text());
    });
    sort_list(map);
    return map;
}

}  // namespace reshard::inline v0::detail
