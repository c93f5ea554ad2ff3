// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/temporary_file.hpp
/// \brief  A file that appears under its name whole or not at all: temporary name, fdatasync, rename, fsync of the
///         folder.
/// \depends checkpoint/file.hpp.
#pragma once

#include <reshard/checkpoint/file.hpp>

namespace reshard::inline v0_1::detail {

/// A file, or an empty folder, that goes with this object unless it is kept.
class PassingPath {
public:
    PassingPath() = default;
    explicit PassingPath(std::string path) noexcept : path_(std::move(path)) {}
    PassingPath(PassingPath&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    PassingPath& operator=(PassingPath&& other) noexcept {
        PassingPath old(std::move(other));
        path_.swap(old.path_);
        return *this;
    }
    ~PassingPath() {
        if (!path_.empty() && ::rmdir(path_.c_str()) != 0) static_cast<void>(::unlink(path_.c_str()));
    }
    [[nodiscard]] std::string const& get() const noexcept { return path_; }
    void keep() noexcept { path_.clear(); }

private:
    std::string path_;
};

/// Written under `.NAME.tmp.PID.N` in the folder of `path`; removed with this object unless published.
class TemporaryFile {
public:
    explicit TemporaryFile(std::string path) : path_(std::move(path)) {
        std::string const folder = folder_of(path_);
        std::string_view const leaf = std::string_view(path_).substr(path_.rfind('/') + 1);
        for (int attempt = 0;; ++attempt) {
            std::string candidate = join_path(folder, concat(".", leaf, ".tmp.", ::getpid(), ".", attempt));
            file_ = open_file(candidate, O_WRONLY | O_CREAT | O_EXCL);
            if (file_.is_open()) {
                temporary_ = PassingPath(std::move(candidate));  // allocates nothing: the file goes with this
                return;
            }
            if (errno == EEXIST && attempt < 10000) continue;
            int const error = errno;
            raise_io(path_, concat("cannot create ", candidate), error, fix_of_create(error));
        }
    }
    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    /// Where it is until then: for others who write to it, too. Empty once published.
    [[nodiscard]] std::string const& temporary_path() const noexcept { return temporary_.get(); }

    void append(std::span<std::byte const> bytes) {
        write_at(written_, bytes);
        written_ += as_index(bytes.size());
    }

    /// For who knows all places: bytes from `offset` of the file on. Several threads may, at the same time.
    void write_at(Index offset, std::span<std::byte const> bytes) const { write_fully(file_, path_, offset, bytes); }

    /// Makes what was written durable: the size as well, nobody could read the bytes without.
    void sync() const { sync_file(file_, path_); }
    /// The same, unless told not to, and lets the descriptor go.
    void finish(bool durable = true) {
        if (!file_.is_open()) return;
        if (durable) sync();
        file_.close_written(path_);
    }

    /// Replaces `path()` in one step. \pre finish() has returned. Call sync_folder() afterwards.
    void publish(std::string_view fix = {}) {
        if (::rename(temporary_.get().c_str(), path_.c_str()) != 0) {
            int const error = errno;
            if (fix.empty()) {
                fix = error == ENOENT ? "write again, and let nobody remove files or the folder meanwhile."
                                      : "check what is in the way.";
            }
            raise_io(path_, concat("cannot rename ", temporary_.get()), error, fix);
        }
        temporary_.keep();
    }

private:
    std::string path_;
    PassingPath temporary_;  // none once published or moved from
    FileDescriptor file_;
    Index written_ = 0;
};

/// A whole text, durable unless told not to, without its name yet.
[[nodiscard]] inline TemporaryFile text_file(std::string path, std::string_view text, bool durable = true) {
    TemporaryFile file(std::move(path));
    file.append(std::as_bytes(std::span<char const>(text.data(), text.size())));
    file.finish(durable);
    return file;
}

/// Names that several files of one checkpoint get, one after the other: taken away with this object unless kept,
/// backwards: what makes readers refuse the rest goes last.
class PublishedNames {
public:
    PublishedNames& operator=(PublishedNames&&) = delete;
    ~PublishedNames() {
        for (; !paths_.empty(); paths_.pop_back()) static_cast<void>(::unlink(paths_.back().c_str()));
    }
    /// A file gets its name. A rename that failed may have been done nevertheless.
    void add(TemporaryFile& file) {
        paths_.push_back(file.path());
        file.publish();
    }
    void keep() noexcept { paths_.clear(); }

private:
    std::vector<std::string> paths_;
};

/// What it means that a folder cannot be synced before its new files are there to stay.
inline constexpr std::string_view files_go_again = "the new files are taken back, for a power cut may undo their names";

/// Makes renames in the folder durable. Throws IoError, with what it means to the caller.
inline void sync_folder(std::string const& folder,
                        std::string_view meaning = "the new files are in place, but a power cut may undo that") {
    FileDescriptor const handle = open_file(folder, O_RDONLY | O_DIRECTORY);
    // Some file systems cannot sync a folder and say EINVAL: they have nothing better to offer.
    if (!handle.is_open() || (uninterrupted([&] { return ::fsync(handle.get()); }) < 0 && errno != EINVAL)) {
        raise_io(folder, concat(meaning, ": cannot sync the folder"), errno,
                 handle.is_open() ? "check the file system."
                                  : "let this process read it, or write elsewhere, or with durable = false.");
    }
}

/// The folder, and those that it lies in. New ones have their names durably, or the files in them may go with them in a
/// power cut. The one that this has made itself goes with what it gives; those that were there stay. Throws IoError.
[[nodiscard]] inline PassingPath make_folder(std::string const& folder, bool durable) {
    std::string name = folder;  // before the folder is made: without memory for it, nothing is left behind
    std::string const parent = folder_of(folder.substr(0, folder.find_last_not_of('/') + 1));
    bool made = ::mkdir(folder.c_str(), 0777) == 0;
    if (!made && errno == ENOENT) {  // ends at "." or "/", which are there
        make_folder(parent, durable).keep();
        made = ::mkdir(folder.c_str(), 0777) == 0;
    }
    if (made) {
        PassingPath mine(std::move(name));
        if (durable) sync_folder(parent, "a power cut may take the new folder in it");
        return mine;
    }
    int const why = errno;
    std::string_view fix = "check that what it lies in is a folder and is writable, or write elsewhere.";
    if (why == EEXIST) {
        PathKind const kind = path_kind(folder);
        if (kind == PathKind::folder) return {};
        struct stat there {};
        bool const is_link = ::lstat(folder.c_str(), &there) == 0 && S_ISLNK(there.st_mode);
        bool const has_gone = kind == PathKind::missing && !is_link;
        if (has_gone) return make_folder(folder, durable);  // who had made it has failed
        fix = kind == PathKind::file ? "a file has this name: move it away, or write elsewhere."
                                     : "a link has this name, and leads nowhere: make the folder that it leads to.";
    }
    if (folder.empty()) fix = "name a folder.";
    raise_io(folder.empty() ? "''" : folder, "cannot create the folder", why, fix);
}

}  // namespace reshard::inline v0_1::detail
