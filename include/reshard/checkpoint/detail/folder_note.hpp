// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/folder_note.hpp
/// \brief  What a run that gives several files their names notes in the lock of the folder beforehand: which they are.
/// \depends checkpoint/{file,safetensors_layout}, checkpoint/detail/{folder_lock,save_names}. POSIX.
#pragma once

#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/file.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>

#include <algorithm>  // any_of
#include <charconv>   // from_chars

namespace reshard::inline v0::detail {

inline constexpr std::string_view note_head = "reshard gives names\n";
/// Names and sizes of files as a note in the folder's lock: text without a zero byte, and one behind each file.
[[nodiscard]] inline std::string note_of(std::span<CheckpointFile const> files) {
    std::string note(note_head);
    for (CheckpointFile const& file : files) note += concat(file.file_bytes, " ", file.leaf) + '\0';
    return note;
}
/// Whatever a file says: what is not a name that a run gives is left out.
[[nodiscard]] inline std::vector<CheckpointFile> files_of_note(std::string_view note) {
    std::vector<CheckpointFile> files;
    if (!note.starts_with(note_head)) return files;
    note.remove_prefix(note_head.size());
    for (auto end = note.find('\0'); end != std::string_view::npos; end = note.find('\0')) {
        std::string_view const line = note.substr(0, end);
        note.remove_prefix(end + 1);
        Index bytes = -1;
        auto const number = std::from_chars(line.data(), line.data() + line.size(), bytes);
        auto const digits = as_size(number.ptr - line.data());
        if (number.ec != std::errc() || bytes < 0 || line.substr(digits, 1) != " ") continue;
        std::string_view const leaf = line.substr(digits + 1);
        if (leaf == index_name || leaf == manifest_name || is_output_leaf(leaf))
            files.push_back({std::string(leaf), bytes});
    }
    return files;
}

/// Whether a file of that name is what became of none of them: it never got its name.
[[nodiscard]] inline bool is_noted_temporary(std::span<CheckpointFile const> noted, std::string_view leaf) {
    return is_temporary_of(leaf, [&](std::string_view name) {
        return std::ranges::any_of(noted, [&](CheckpointFile const& file) { return file.leaf == name; });
    });
}

}  // namespace reshard::inline v0::detail
