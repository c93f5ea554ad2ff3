// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/left_over.hpp
/// \brief  What a run that is killed while it gives files their names leaves: told beforehand, removed by the next one.
/// \depends checkpoint/detail/{consolidate_output,file_list,folder_lock}. POSIX.
#pragma once

#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>

#include <charconv>  // from_chars

namespace reshard::inline v0::detail {

/// Names and sizes of files as a note in the folder's lock: text without a zero byte, and one behind each file.
class LeftOver {
public:
    struct File {
        std::string leaf;
        Index bytes = 0;
    };
    LeftOver() = default;
    /// Whatever a file says: what is not a name that a run gives is left out.
    explicit LeftOver(std::string_view note) {
        if (!note.starts_with(head)) return;
        note.remove_prefix(head.size());
        for (auto end = note.find('\0'); end != std::string_view::npos; end = note.find('\0')) {
            std::string_view const line = note.substr(0, end);
            note.remove_prefix(end + 1);
            Index bytes = -1;
            auto const number = std::from_chars(line.data(), line.data() + line.size(), bytes);
            auto const digits = static_cast<std::size_t>(number.ptr - line.data());
            if (number.ec != std::errc() || bytes < 0 || line.substr(digits, 1) != " ") continue;
            std::string_view const leaf = line.substr(digits + 1);
            if (leaf == index_name || leaf == manifest_name || is_output_leaf(leaf)) add(leaf, bytes);
        }
    }
    void add(std::string_view leaf, Index bytes) { files_.push_back({std::string(leaf), bytes}); }
    [[nodiscard]] std::vector<File> const& files() const noexcept { return files_; }
    [[nodiscard]] std::string text() const {
        std::string result(head);
        for (File const& file : files_) result += concat(file.bytes, " ", file.leaf) + '\0';
        return result;
    }

private:
    static constexpr std::string_view head = "reshard gives names\n";
    std::vector<File> files_;
};

/// Under the lock of a folder, before anything is written: files that a dead holder has noted, and whose sizes are
/// those that it noted, go. Backwards, so that no reader takes the rest for a checkpoint at any time. Their names.
[[nodiscard]] inline std::vector<std::string> remove_left_over(FolderLock& lock, std::string const& folder) {
    std::vector<std::string> removed;
    auto const left = LeftOver(lock.read_note()).files();
    for (std::size_t i = left.size(); i-- > 0;) {
        auto const& file = left[i];
        std::string const path = join_path(folder, file.leaf);
        struct stat status {};
        bool const there = ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
        if (!there || static_cast<Index>(status.st_size) != file.bytes) continue;
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
            raise_io(path, "a run that was killed has left it, and it cannot be removed", errno, "remove it.");
        }
        sync_folder(folder);
        removed.push_back(file.leaf);
    }
    lock.note({}, false);
    return removed;
}

}  // namespace reshard::inline v0::detail
