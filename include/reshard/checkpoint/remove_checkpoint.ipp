// SPDX-License-Identifier: Apache-2.0
// How checkpoint/remove_checkpoint.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/old_tables.hpp>
#include <reshard/checkpoint/remove_checkpoint.hpp>

#include <optional>  // optional

namespace reshard::inline v0_1 {

namespace detail {

/// Throws IoError for a manifest of other files, or one that this process may not read, FormatError for one of a later
/// release. A damaged one says nothing.
inline void refuse_others(std::string const& manifest) {
    std::vector<std::string> named;
    try {
        named = files_of_manifest(manifest);
    } catch (FormatError const& error) {
        if (safetensors_rule(error) == SafetensorsRule::later_version) throw;
        return;
    }
    for (std::string const& leaf : named) {
        if (is_shard_file(leaf)) continue;
        raise(ErrorCode::io, "IoError: ", manifest, ": it names ", quote_name(leaf),
              ", which is no file of a save. Fix: remove the manifest yourself, then what it names.");
    }
}

}  // namespace detail

RESHARD_INLINE Index remove_checkpoint(std::string const& folder) {
    if (detail::path_kind(folder) == detail::PathKind::missing) return 0;
    detail::FolderLock lock(folder, detail::lock_name(manifest_name));
    std::optional<detail::FolderLock> of_tables;  // an older release may be saving them
    std::string const its_lock = detail::lock_name(detail::mch_old_index);
    if (detail::path_kind(detail::join_path(folder, its_lock)) != detail::PathKind::missing)
        of_tables.emplace(folder, its_lock);
    std::string const manifest = detail::join_path(folder, manifest_name);
    std::vector<std::string> const leaves = detail::leaves_of(folder);
    Index removed = 0;
    auto const remove = [&](std::string const& path) {
        if (::unlink(path.c_str()) == 0) {
            ++removed;
        } else if (errno != ENOENT) {
            detail::raise_io(path, "cannot remove it", errno, "check the permissions of the folder, and call again.");
        }
    };
    bool const has_manifest = detail::path_kind(manifest) != detail::PathKind::missing;
    if (has_manifest) detail::refuse_others(manifest);
    // Older tables first: without the manifest they would be what the folder holds.
    auto const tables = detail::old_tables_in(folder);
    if (tables && !tables->empty()) {
        remove(detail::join_path(folder, detail::mch_old_index));
        detail::sync_folder(folder, "the index of its tables is removed, but a power cut may undo that");
    }
    if (has_manifest) {
        remove(manifest);
        detail::sync_folder(folder, "the manifest is removed, but a power cut may undo that");
    }
    for (std::string const& leaf : leaves) {
        if (detail::is_shard_file(leaf) || detail::is_temporary_of_save(leaf) ||
            (tables && detail::is_of_old_tables(leaf)))
            remove(detail::join_path(folder, leaf));
    }
    if (of_tables) of_tables->release();
    lock.release();
    static_cast<void>(::rmdir(folder.c_str()));  // not while others have something in it
    return removed;
}

}  // namespace reshard::inline v0_1
