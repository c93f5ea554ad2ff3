// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/old_tables.hpp
/// \brief  Which files of a folder are tables as older releases saved them, beside its checkpoint, and of which save:
///         what takes the place of all that a folder had removes them. Their reader: mch/detail/checkpoint_old.hpp.
/// \depends checkpoint/detail/{file_list,save_names}.
#pragma once

#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>

#include <optional>  // optional

namespace reshard::inline v0_1::detail {

/// The save that the index of such tables is of; empty where there is none. Nothing for what cannot be read, is damaged
/// or another program's: that is no index of ours, and stays.
[[nodiscard]] inline std::optional<std::string> old_tables_in(std::string const& folder) {
    std::string const path = join_path(folder, mch_old_index);
    try {
        std::string const text = read_json_text(path, max_safetensors_header_bytes);
        JsonTree const tree(text, path, refuse_index<SafetensorsRule::invalid_index>);
        JsonReader const json(tree);
        if (json.at("format").text_view() != "reshard-mch") return {};
        static_cast<void>(hex_from(json.at("save"), 16));
        return json.at("save").text();
    } catch (IoError const&) {
        if (path_kind(path) == PathKind::missing) return std::string();
    } catch (FormatError const&) {  // as damaged
    }
    return {};
}

/// Whether such a save has a file of that name, while it writes or later, the index aside.
[[nodiscard]] inline bool is_of_old_tables(std::string_view leaf) {
    auto const is_data = [](std::string_view name) {
        NameReader in(name);
        return in.word("mch-") && in.run("0123456789abcdef", 16, 16) && in.word("-") && in.digits(5, 10) &&
               in.word("-of-") && in.digits(5, 10) && in.word(".safetensors") && in.at_end();
    };
    return is_data(leaf) ||
           is_temporary_of(leaf, [&](std::string_view name) { return name == mch_old_index || is_data(name); });
}

}  // namespace reshard::inline v0_1::detail
