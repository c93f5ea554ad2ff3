// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_files.hpp
/// \brief  Files that several ranks write together: made by one under temporary names, opened by all, renamed by one.
/// \depends checkpoint/detail/{cached_file,temporary_file}. POSIX.
#pragma once

#include <reshard/checkpoint/detail/cached_file.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>

#include <sys/statvfs.h>

namespace reshard::inline v0::detail {

/// Throws IoError, naming both numbers, where a file system has less room for this user than that.
inline void check_space(std::string const& folder, Index bytes) {
    struct statvfs status {};
    if (::statvfs(folder.c_str(), &status) != 0)
        raise_io(folder, "cannot ask for free space", errno, "check the path.");
    auto const room = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
    if (static_cast<double>(bytes) <= room) return;
    raise(ErrorCode::io, concat("IoError: ", folder, ": ", bytes, " bytes will be written, there is room for ",
                                static_cast<Index>(room), ". Fix: free space, or write elsewhere."));
}

/// On the rank that makes them: files of their final sizes, removed with this object unless they are kept.
class MadeFiles {
public:
    /// One more: its first bytes, and its size.
    void make(std::string path, std::string_view start, Index bytes, bool durable) {
        TemporaryFile file(std::move(path));
        file.append(std::as_bytes(std::span<char const>(start.data(), start.size())));
        if (::truncate(file.temporary_path().c_str(), static_cast<off_t>(bytes)) != 0) {
            raise_io(file.path(), concat("cannot make it ", bytes, " bytes long"), errno,
                     "write smaller files, or elsewhere.");
        }
        file.finish(durable);  // others may never write to it
        files_.push_back(std::move(file));
    }
    [[nodiscard]] std::string const& temporary_path(std::size_t file) const { return files_[file].temporary_path(); }
    /// All of them get their names. \pre what they hold is durable
    void publish() {
        for (TemporaryFile& file : files_) names_.add(file);
    }
    [[nodiscard]] PublishedNames& names() noexcept { return names_; }

private:
    std::vector<TemporaryFile> files_;
    PublishedNames names_;
};

/// On every rank: those that it writes to.
class SharedFiles {
public:
    SharedFiles() = default;
    /// `paths`: temporary ones. `starts`: bytes in front of the data.
    SharedFiles(std::vector<std::string> paths, std::vector<Index> starts)
        : paths_(std::move(paths)), starts_(std::move(starts)) {
        for (std::string const& path : paths_)
            files_.push_back(std::make_unique<CachedFile>([path] { return open_for_writing(path); }));
    }

    void open(int file) {
        if (!at(file).is_used()) ++count_;
        static_cast<void>(at(file).use());
    }
    [[nodiscard]] Index count() const noexcept { return count_; }
    /// Bytes of the data section; from several threads at once.
    void write(int file, Index begin, std::span<std::byte const> bytes) const {
        auto const i = static_cast<std::size_t>(file);
        write_fully(*files_[i]->use(), paths_[i], starts_[i] + begin, bytes);
    }
    [[nodiscard]] CachedFile& at(int file) const noexcept { return *files_[static_cast<std::size_t>(file)]; }
    [[nodiscard]] Index start(int file) const noexcept { return starts_[static_cast<std::size_t>(file)]; }
    /// What this rank has written so far is durable.
    void sync() const {
        for (std::size_t i = 0; i < files_.size(); ++i) {
            if (files_[i]->is_used()) sync_file(*files_[i]->use(), paths_[i]);
        }
    }
    void close() {
        for (std::size_t i = 0; i < files_.size(); ++i) files_[i]->close_written(paths_[i]);
    }

private:
    [[nodiscard]] static FileDescriptor open_for_writing(std::string const& path) {
        int fd = -1;
        do {
            fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        } while (fd < 0 && errno == EINTR);
        if (fd >= 0) return FileDescriptor(fd);
        raise_io(path, "cannot open for writing", errno,
                 errno == EMFILE ? "raise the limit on open files (ulimit -n)."
                                 : "write to a folder that all ranks share, and may write to.");
    }

    std::vector<std::string> paths_;
    std::vector<Index> starts_;
    std::vector<std::unique_ptr<CachedFile>> files_;
    Index count_ = 0;
};

}  // namespace reshard::inline v0::detail
