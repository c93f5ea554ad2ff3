// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/weight_map.hpp
/// \brief  Reads `model.safetensors.index.json`: which tensor lies in which file.
/// \depends checkpoint/json_tree.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0 {
namespace detail {

/// (tensor, file), sorted by tensor.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

/// A path that stays in its folder: not empty, not absolute, no "..", no zero byte. Sub-folders are fine.
[[nodiscard]] inline bool stays_in_folder(std::string_view path) noexcept {
    if (path.empty() || path.front() == '/' || path.find('\0') != std::string_view::npos) return false;
    while (!path.empty()) {
        auto const slash = path.find('/');
        if (path.substr(0, slash) == "..") return false;
        if (slash == std::string_view::npos) return true;
        path.remove_prefix(slash + 1);
    }
    return false;  // ends in a slash: a folder
}

/// What stands under "weight_map"; "metadata" and whatever else is there is skipped: its total_size is wrong often
/// enough in the wild. Throws FormatError: InvalidIndex, or DuplicateKey for a tensor given twice.
[[nodiscard]] inline WeightMap parse_weight_map(std::string_view json, std::string_view file) {
    auto const fail = [&](std::string_view why, SafetensorsRule rule = SafetensorsRule::invalid_index) {
        raise_rule(rule, concat(file, ": ", why, ". Fix: fetch or write the index anew."));
    };
    if (!is_utf8(json)) fail("the index is not UTF-8");
    constexpr RefuseFile refuse = [](std::string_view name, std::string_view why) {
        raise_rule(SafetensorsRule::invalid_index, concat(name, ": ", why, ". Fix: fetch or write the index anew."));
    };
    JsonTree const tree(json, file, refuse, {}, JsonTwins::keep);
    if (tree.kind(0) != JsonTree::Kind::object) fail("the index is not a JSON object");
    std::uint32_t found = 0;
    tree.for_each(0, [&](std::uint32_t member) {
        if (tree.key(member) != "weight_map") return;
        if (found != 0) fail("'weight_map' is given twice", SafetensorsRule::duplicate_key);
        found = member;
    });
    if (found == 0) fail("it has no 'weight_map'");
    if (tree.kind(found) != JsonTree::Kind::object) fail("'weight_map' is not an object");
    WeightMap map;
    tree.for_each(found, [&](std::uint32_t member) {
        if (tree.kind(member) != JsonTree::Kind::text)
            fail(concat("the file of ", quote_name(tree.key(member)), " is not text"));
        map.emplace_back(tree.key(member), tree.text(member));
    });
    sort_list(map);
    for (std::size_t i = 0; i < map.size(); ++i) {
        auto const& [tensor, leaf] = map[i];
        if (i > 0 && map[i - 1].first == tensor)
            fail(concat("tensor ", quote_name(tensor), " is given twice"), SafetensorsRule::duplicate_key);
        if (!stays_in_folder(leaf)) {
            fail(concat("tensor ", quote_name(tensor), " lies in ", quote_name(leaf),
                        ", which is no file inside the folder"));
        }
    }
    return map;
}

}  // namespace detail
}  // namespace reshard::inline v0
