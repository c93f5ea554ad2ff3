// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/weight_map.hpp
/// \brief  Reads `model.safetensors.index.json`: which tensor lies in which file.
/// \depends checkpoint/detail/json.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/detail/json.hpp>
#include <reshard/checkpoint/detail/json_text.hpp>
#include <reshard/checkpoint/tensor_info.hpp>

#include <algorithm>  // sort, adjacent_find

namespace reshard::inline v0 {
namespace detail {

/// (tensor, file), sorted by tensor.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

/// Keeps what stands under "weight_map"; "metadata" and whatever else is there is skipped: its total_size is
/// wrong often enough in the wild.
class WeightMapHandler {
public:
    explicit WeightMapHandler(std::string_view file) noexcept : file_(file) {}

    WeightMap map;

    [[noreturn]] void fail(std::string const& why) const { fail(SafetensorsRule::invalid_index, why); }
    [[noreturn]] void fail(SafetensorsRule rule, std::string_view why) const {
        raise_rule(rule, concat(file_, ": ", why, ". Fix: fetch or write the index anew."));
    }

    void open(bool is_object) {
        ++depth_;
        if (depth_ == 1 && !is_object) fail("the index is not a JSON object");
        if (depth_ == 2 && wanted_ && !is_object) fail("'weight_map' is not an object");
        if (depth_ == 3 && wanted_) fail(concat("the file of ", quote_name(key_), " is not text"));
    }
    void close() { --depth_; }
    void key(std::string& text) {
        if (depth_ == 1) {
            wanted_ = text == "weight_map";
            if (wanted_ && seen_) fail(SafetensorsRule::duplicate_key, "'weight_map' is given twice");
            seen_ = seen_ || wanted_;
        }
        if (depth_ == 2 && wanted_) key_ = std::move(text);
    }
    void value(JsonScalar const& scalar) {
        if (depth_ == 0) fail("the index is not a JSON object");
        if (!wanted_) return;
        if (depth_ == 1) fail("'weight_map' is not an object");
        if (scalar.kind != JsonKind::text) fail(concat("the file of ", quote_name(key_), " is not text"));
        map.emplace_back(std::move(key_), std::move(*scalar.text));
    }

    [[nodiscard]] bool found() const noexcept { return seen_; }

private:
    std::string_view file_;
    std::string key_;
    int depth_ = 0;
    bool wanted_ = false;
    bool seen_ = false;
};

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

/// Throws FormatError: InvalidIndex, or DuplicateKey for a tensor given twice.
[[nodiscard]] inline WeightMap parse_weight_map(std::string_view json, std::string_view file) {
    WeightMapHandler handler(file);
    if (!is_utf8(json)) handler.fail("the index is not UTF-8");
    read_json(json, handler);
    if (!handler.found()) handler.fail("it has no 'weight_map'");
    WeightMap& map = handler.map;
    std::sort(map.begin(), map.end());
    auto const twin =
        std::adjacent_find(map.begin(), map.end(), [](auto const& a, auto const& b) { return a.first == b.first; });
    if (twin != map.end()) {
        handler.fail(SafetensorsRule::duplicate_key, concat("tensor ", quote_name(twin->first), " is given twice"));
    }
    for (auto const& [tensor, leaf] : map) {
        if (!stays_in_folder(leaf)) {
            handler.fail(concat("tensor ", quote_name(tensor), " lies in ", quote_name(leaf),
                                ", which is no file inside the folder"));
        }
    }
    return std::move(map);
}

}  // namespace detail
}  // namespace reshard::inline v0
