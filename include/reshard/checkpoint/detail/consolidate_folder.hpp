// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_folder.hpp
/// \brief  Folders before and after: whether files may be read and written there, and whether all ranks see them.
/// \depends checkpoint/manifest, checkpoint/detail/{file_list,folder_lock,name_reader,save_commit}, comm/collectives.
/// POSIX.
#pragma once

#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/name_reader.hpp>
#include <reshard/checkpoint/detail/save_commit.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/comm/collectives.hpp>

#include <chrono>  // milliseconds
#include <thread>  // sleep_for

namespace reshard::inline v0::detail {

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
        std::string const leaf = concat(".", index, ".lock");
        FileDescriptor const file(::open(join_path(folder, leaf).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (!file.is_open() || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) continue;
        raise(ErrorCode::io,
              concat("IoError: ", folder, ": a save into this folder is under way: it holds ", leaf,
                     ". Fix: wait for it (SaveHandle::wait, where this program saves), or read another checkpoint."));
    }
}

/// Throws IoError for anything in the folder but the lock, and the folder that is read: PyTorch keeps shards in a
/// sub-folder of where the full files go.
inline void refuse_other_files(std::string const& folder, std::string const& input, std::string_view lock) {
    if (path_kind(folder) == PathKind::missing) return;
    if (path_kind(folder) == PathKind::file) raise_io(folder, "not a folder", ENOTDIR, "name a folder to write to.");
    if (is_same_place(folder, input)) {
        raise(ErrorCode::io, concat("IoError: ", folder, ": it is the folder that is read. Fix: write to another."));
    }
    for (std::string const& leaf : leaves_of(folder)) {
        if (leaf == concat(".", lock, ".lock") || is_same_place(join_path(folder, leaf), input)) continue;
        raise(ErrorCode::io, concat("IoError: ", folder, ": it is not empty: there is ", quote_name(leaf),
                                    ". Fix: write to an empty folder."));
    }
}

/// A file that only who sees this folder can know of; it goes with this object.
class NonceFile {
public:
    static constexpr std::string_view prefix = ".reshard.nonce.";
    NonceFile() = default;
    NonceFile(std::string const& folder, std::string_view leaf) : path_(join_path(folder, leaf)) {
        int const fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0) raise_io(std::exchange(path_, {}), "cannot create", errno, "check that the folder is writable.");
        FileDescriptor const file(fd);
    }
    NonceFile(NonceFile const&) = delete;
    NonceFile& operator=(NonceFile const&) = delete;
    ~NonceFile() { remove(); }
    void remove() noexcept {
        if (!path_.empty()) static_cast<void>(::unlink(path_.c_str()));
        path_.clear();
    }
    [[nodiscard]] static bool is_one(std::string_view leaf) noexcept {
        NameReader in(leaf);
        return in.word(prefix) && in.run("0123456789abcdef", 16, 16) && in.at_end();
    }

private:
    std::string path_;
};

/// Whether a file is there, or turns up within a second: network file systems may take a moment.
[[nodiscard]] inline bool turns_up(std::string const& path) {
    struct stat status {};
    for (int look = 0;; ++look) {
        if (::stat(path.c_str(), &status) == 0) return true;
        if (look == 10) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

/// Whether all ranks see a file. Made where all of them agree next: then there is memory to ask them.
class SharedCheck {
public:
    SharedCheck() = default;
    SharedCheck(int ranks, std::string_view folder, std::string_view leaf)
        : folder_(folder), path_(join_path(folder_, leaf)), seen_(static_cast<std::size_t>(ranks)) {
        lists_.make_room(ranks);
    }
    /// Collective.
    [[nodiscard]] std::span<std::byte const> ask(CommunicatorRef comm) {
        auto const mine = static_cast<std::byte>(turns_up(path_) ? 1 : 0);
        all_gather(comm, std::span(&mine, 1), std::span(seen_), lists_);
        return seen_;
    }
    [[nodiscard]] std::string const& folder() const noexcept { return folder_; }

private:
    std::string folder_;
    std::string path_;
    std::vector<std::byte> seen_;  ///< by which ranks
    TransferLists lists_;
};

/// Collective. Throws IoError, on all ranks, naming every rank that does not see the file of rank 0.
inline void check_shared(CommunicatorRef comm, SharedCheck& check) {
    auto const all = check.ask(comm);
    std::string list;
    int missing = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] != std::byte{0}) continue;
        if (++missing <= 16) list += concat(missing == 1 ? "" : ", ", rank);
    }
    if (missing == 0) return;
    if (missing > 16) list += ", ...";
    raise(ErrorCode::io, concat("IoError: ", check.folder(), ": ", missing == 1 ? "rank " : "ranks ", list, " of ",
                                comm.size(), missing == 1 ? " does" : " do",
                                " not see what rank 0 writes there. Fix: write to a folder that all ranks share."));
}

/// A folder that was made goes again if nothing stays in it.
class MadeFolder {
public:
    MadeFolder() = default;
    MadeFolder(MadeFolder const&) = delete;
    MadeFolder& operator=(MadeFolder const&) = delete;
    ~MadeFolder() {
        if (!path_.empty()) static_cast<void>(::rmdir(path_.c_str()));
    }
    void remember(std::string path) { path_ = std::move(path); }

private:
    std::string path_;
};

/// What lies in a folder while files are written there.
[[nodiscard]] inline SaveNames output_names(std::string_view lock) noexcept {
    return {lock, [](std::string const&) { return std::vector<std::string>(); }, [](std::string_view) { return false; },
            [](std::string_view leaf) {
                return NonceFile::is_one(leaf) || is_temporary_of(leaf, [](std::string_view name) {
                           return name.ends_with(".safetensors") || name == index_name || name == manifest_name;
                       });
            }};
}

}  // namespace reshard::inline v0::detail
