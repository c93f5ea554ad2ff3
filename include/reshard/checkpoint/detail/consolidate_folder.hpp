// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_folder.hpp
/// \brief  Folders before and after: whether files may be read and written there, whether all ranks see them, and
///         what a run that was killed while it gave files their names has left there.
/// \depends checkpoint/{manifest,replica_report},
/// checkpoint/detail/{consolidate_output,file_list,folder_lock,folder_note,save_commit}, comm/collectives. POSIX.
#pragma once

#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/detail/folder_note.hpp>
#include <reshard/checkpoint/detail/save_commit.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/replica_report.hpp>
#include <reshard/comm/collectives.hpp>

#include <chrono>  // milliseconds
#include <thread>  // sleep_for

namespace reshard::inline v0_1::detail {

/// The folder that a path of a checkpoint lies in, never empty.
[[nodiscard]] inline std::string input_folder(std::string const& path) {
    return path_kind(path) == PathKind::folder ? path : folder_of(path);
}

[[nodiscard]] inline bool is_same_place(std::string const& a, std::string const& b) {
    auto const first = stamp_at(a);
    auto const second = stamp_at(b);
    return first && second && first->device == second->device && first->number == second->number;
}

/// Throws IoError when somebody is writing a checkpoint into the folder: what is there may go at any moment.
inline void refuse_save_under_way(std::string const& folder) {
    for (std::string_view const index : {manifest_name, index_name}) {
        std::string const leaf = lock_name(index);
        std::string const path = join_path(folder, leaf);
        FileDescriptor const file = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
        if (!file.is_open() || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) continue;
        raise(ErrorCode::io, "IoError: ", folder, ": a save into this folder is under way: it holds ", leaf,
              held_by(file),
              ". Fix: wait for it (SaveRequest::wait, where this program saves), or read another checkpoint.");
    }
}

/// Throws IoError where files would be written among those that are read.
inline void refuse_input(std::string const& folder, std::string const& input) {
    if (!is_same_place(folder, input)) return;
    raise(ErrorCode::io, "IoError: ", folder, ": it is the folder that is read. Fix: write to another.");
}
/// Throws IoError for anything in the folder but locks, what makes room, and the folder that is read: PyTorch keeps
/// shards in a sub-folder of where the full files go.
template <class MakesRoom>
void refuse_other_files(std::string const& folder, std::string const& input, MakesRoom const& makes_room) {
    refuse_input(folder, input);
    for (std::string const& leaf : leaves_of(folder)) {
        bool const is_lock = leaf == lock_name(manifest_name) || leaf == lock_name(index_name);
        if (is_lock || makes_room(leaf) || is_same_place(join_path(folder, leaf), input)) continue;
        raise(ErrorCode::io, "IoError: ", folder, ": it is not empty: there is ", quote_name(leaf),
              ". Fix: write to an empty folder.");
    }
}

/// A file that only who sees this folder can know of; it goes with what is returned.
inline constexpr std::string_view nonce_prefix = ".reshard.nonce.";
[[nodiscard]] inline PassingPath make_nonce(std::string path) {
    if (!open_file(path, O_WRONLY | O_CREAT | O_EXCL).is_open())
        raise_io(path, "cannot create", errno, fix_of_create(errno));
    return PassingPath(std::move(path));
}
[[nodiscard]] inline bool is_nonce(std::string_view leaf) noexcept {
    NameReader in(leaf);
    return in.word(nonce_prefix) && in.run("0123456789abcdef", 16, 16) && in.at_end();
}

/// Whether a file is there, or turns up within a second: network file systems may take a moment.
[[nodiscard]] inline bool turns_up(std::string const& path) {
    struct stat status {};
    for (int look = 0;; ++look) {
        if (::stat(path.c_str(), &status) == 0) return true;
        if (look == 10) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

/// Collective. Throws IoError, on all ranks, naming every rank that does not see a file of rank 0. `seen` has a byte
/// for each rank: nothing is allocated before all have said what they see.
inline void check_shared(CommunicatorRef comm, std::string const& folder, std::string const& file,
                         std::span<std::byte> seen, TransferLists& lists) {
    auto const mine = static_cast<std::byte>(turns_up(file) ? 1 : 0);
    all_gather(comm, std::span(&mine, 1), seen, lists);
    std::vector<int> blind;
    for (int rank = 0; rank < comm.size(); ++rank)
        if (seen[as_size(rank)] == std::byte{0}) blind.push_back(rank);
    if (blind.empty()) return;
    raise(ErrorCode::io, "IoError: ", folder, ": ", counted_ranks(blind), " of ", comm.size(),
          blind.size() == 1 ? " does" : " do",
          " not see what rank 0 writes there. Fix: write to a folder that all ranks share.");
}

/// What lies in a folder while files are written there.
[[nodiscard]] inline SaveNames output_names(std::string_view index) noexcept {
    return {index, [](std::string const&) { return std::vector<std::string>(); },
            [](std::string_view) { return false; },
            [](std::string_view leaf) {
                return is_nonce(leaf) || is_temporary_of(leaf, [](std::string_view name) {
                           return name.ends_with(".safetensors") || name == index_name || name == manifest_name;
                       });
            }};
}

/// Under the lock of a folder: the files that a dead holder has noted are added to `left`, backwards. Those alone: by
/// now somebody else's file may have such a name. Where all of them have their names, that run was complete, and what
/// it has written stays: its note is void, as one that names nothing.
inline void add_left_over(FolderLock& lock, std::string const& folder, std::vector<std::string>& left) {
    std::vector<NotedFile> const noted = files_of_note(lock.read_note());
    std::size_t const before = left.size();
    for (std::size_t i = noted.size(); i-- > 0;)
        if (noted_stamp_at(join_path(folder, noted[i].leaf)) == noted[i].stamp) left.push_back(noted[i].leaf);
    if (left.size() - before < noted.size()) return;
    left.resize(before);
    lock.note({}, false);
}
/// Removes them in that order, so that no reader takes the rest for a checkpoint at any time.
inline void remove_left_over(std::string const& folder, std::span<std::string const> left) {
    for (std::string const& leaf : left) {
        std::string const path = join_path(folder, leaf);
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
            raise_io(path, "a run that was killed has left it, and it cannot be removed", errno, "remove it.");
        }
        sync_folder(folder, "what a run that was killed has left is removed, but a power cut may undo that");
    }
}

}  // namespace reshard::inline v0_1::detail
