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
#include <optional>   // optional

namespace reshard::inline v0_1::detail {

/// A file, by what renaming it does not change. No device: a folder is on one, whose number may be another after a
/// restart.
struct NotedFile {
    std::string leaf;
    FileStamp stamp;
    friend bool operator==(NotedFile const&, NotedFile const&) = default;
};
/// The stamp of a file that notes name; nothing where no regular file has that path.
[[nodiscard]] inline std::optional<FileStamp> noted_stamp_at(std::string const& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    FileStamp stamp = stamp_from(status);
    stamp.device = 0;
    return stamp;
}

inline constexpr std::string_view note_head = "reshard gives names to\n";  // older notes had another, and sizes alone
/// Files as a note in the folder's lock: text without a zero byte, and one behind each file.
[[nodiscard]] inline std::string note_of(std::span<NotedFile const> files) {
    std::string note(note_head);
    for (auto const& [leaf, stamp] : files)
        note += concat(stamp.bytes, " ", stamp.number, " ", stamp.seconds, " ", stamp.nanoseconds, " ", leaf) + '\0';
    return note;
}
/// Whatever a file says: what is not a name that a run gives is left out.
[[nodiscard]] inline std::vector<NotedFile> files_of_note(std::string_view note) {
    std::vector<NotedFile> files;
    if (!note.starts_with(note_head)) return files;
    note.remove_prefix(note_head.size());
    for (auto end = note.find('\0'); end != std::string_view::npos; end = note.find('\0')) {
        std::string_view line = note.substr(0, end);
        note.remove_prefix(end + 1);
        auto const take = [&](auto& number) {
            auto const read = std::from_chars(line.data(), line.data() + line.size(), number);
            line.remove_prefix(as_size(read.ptr - line.data()));
            bool const taken = read.ec == std::errc() && line.starts_with(' ');
            if (taken) line.remove_prefix(1);
            return taken;
        };
        FileStamp stamp;
        if (!take(stamp.bytes) || stamp.bytes < 0 || !take(stamp.number) || !take(stamp.seconds) ||
            !take(stamp.nanoseconds))
            continue;
        if (line == index_name || line == manifest_name || is_output_leaf(line))
            files.push_back({std::string(line), stamp});
    }
    return files;
}

/// Whether a file is one that was noted and never got its name.
[[nodiscard]] inline bool is_noted_temporary(std::span<NotedFile const> noted, std::string const& folder,
                                             std::string_view leaf) {
    return is_temporary_of(leaf, [&](std::string_view name) {
        return std::ranges::any_of(noted, [&](NotedFile const& file) {
            return file.leaf == name && noted_stamp_at(join_path(folder, leaf)) == file.stamp;
        });
    });
}

}  // namespace reshard::inline v0_1::detail
