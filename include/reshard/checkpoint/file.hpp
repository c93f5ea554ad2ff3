// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/file.hpp
/// \brief  POSIX files: owned descriptors and maps, reads and writes that finish or say why not.
/// \depends core/error.hpp, POSIX.
#pragma once

#include <reshard/core/detail/file_number.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>    // errno
#include <cstring>   // strerror_r
#include <memory>    // unique_ptr
#include <optional>  // optional
#include <span>      // span
#include <vector>    // vector

namespace reshard::inline v0_1::detail {

static_assert(sizeof(off_t) == 8, "reshard::checkpoint: file offsets need 64 bits. Fix: define _FILE_OFFSET_BITS=64.");

// glibc and POSIX disagree on what strerror_r returns.
inline char const* error_text(int, char const* buffer) noexcept { return buffer; }
inline char const* error_text(char const* text, char const*) noexcept { return text; }

[[noreturn]] inline void raise_io(std::string_view path, std::string_view what, int error, std::string_view fix) {
    char buffer[256] = "unknown error";
    std::string_view const text = error_text(::strerror_r(error, buffer, sizeof buffer), buffer);
    raise(ErrorCode::io, "IoError: ", path, ": ", what, ": ", text, " (errno ", error, "). Fix: ", fix);
}

/// What helps where bytes do not get into a file.
[[nodiscard]] inline std::string_view fix_of_write(int error) noexcept {
    bool const is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return is_full ? "free space or write elsewhere; nothing was replaced."
                   : "see that the disk, or its server, is well, or write elsewhere; nothing was replaced.";
}

/// What closing a file that was written has returned: a file system over a network may say only now that bytes have
/// not arrived. Throws IoError.
inline void refuse_lost(int error, std::string_view path) {
    if (error == 0) return;
    raise_io(path, "cannot close it, bytes may be lost", error, fix_of_write(error));
}

/// One open file; closed with its owner.
class FileDescriptor {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int fd) noexcept : fd_(above_standard_streams(fd)) {}
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        FileDescriptor old(std::move(other));
        std::swap(fd_, old.fd_);
        return *this;
    }
    ~FileDescriptor() { close(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    /// Returns 0 or errno. Not retried after EINTR: Linux has closed the descriptor by then.
    int close() noexcept {
        if (fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0) return 0;
        return errno;
    }
    /// For who has written to it. Throws IoError.
    void close_written(std::string_view path) { refuse_lost(close(), path); }

private:
    int fd_ = -1;
};

/// What a file was when it was opened: writing to it or cutting it short shows, and when it is opened again, that it
/// was replaced. What we have open stays as it was.
struct FileStamp {
    dev_t device = 0;
    ino_t number = 0;
    Index bytes = 0;
    Index seconds = 0;
    Index nanoseconds = 0;
    friend bool operator==(FileStamp const&, FileStamp const&) = default;
};
[[nodiscard]] inline FileStamp stamp_from(struct stat const& status) noexcept {
    return {status.st_dev, status.st_ino, as_index(status.st_size), as_index(status.st_mtim.tv_sec),
            as_index(status.st_mtim.tv_nsec)};
}
[[nodiscard]] inline struct stat status_of(FileDescriptor const& file, std::string_view path) {
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) raise_io(path, "cannot stat", errno, "check the file system.");
    return status;
}
/// Of what is at a path, if anything.
[[nodiscard]] inline std::optional<struct stat> status_at(std::string const& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return status;
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    raise_io(path, "cannot stat", errno, "check the path and its permissions.");
}
[[nodiscard]] inline FileStamp stamp_of(FileDescriptor const& file, std::string_view path) {
    return stamp_from(status_of(file, path));
}
[[nodiscard]] inline std::optional<FileStamp> stamp_at(std::string const& path) {
    auto const status = status_at(path);
    return status ? std::optional(stamp_from(*status)) : std::nullopt;
}

/// One read-only map; unmapped with its owner.
class FileMap {
public:
    FileMap() = default;
    /// \pre bytes > 0.
    FileMap(FileDescriptor const& file, Index bytes, std::string_view path) {
        auto const size = as_size(bytes);
        void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
        if (address == MAP_FAILED) raise_io(path, "cannot map", errno, "open it with Access::pread.");
        data_ = {static_cast<std::byte const*>(address), Unmap{size}};
    }

    [[nodiscard]] std::byte const* data() const noexcept { return data_.get(); }

private:
    struct Unmap {
        std::size_t bytes;
        void operator()(std::byte const* data) const noexcept {
            static_cast<void>(::munmap(const_cast<std::byte*>(data), bytes));
        }
    };
    std::unique_ptr<std::byte const, Unmap> data_;
};

/// What helps where open() or opendir() finds nothing that it can read.
[[nodiscard]] inline std::string_view fix_of_open(int error) noexcept {
    return error == EMFILE ? "raise the limit on open files (ulimit -n)." : "check the path and its permissions.";
}
/// What helps where open() cannot make a file.
[[nodiscard]] inline std::string_view fix_of_create(int error) noexcept {
    if (error == ENOSPC || error == EDQUOT) return "free space, or remove files where as many are there as may be.";
    if (error == EMFILE) return fix_of_open(error);
    if (error == ENAMETOOLONG) return "give it a shorter name.";
    if (error == ENOENT) return "check that the folder exists, and that all ranks name the same.";
    return "check that the folder exists and is writable.";
}

/// What a system call returns that no signal has interrupted.
template <class Call>
[[nodiscard]] auto uninterrupted(Call const& call) {
    for (;;)
        if (auto const result = call(); result >= 0 || errno != EINTR) return result;
}

/// Opens a file, or makes it. One that is not open then could not be: errno says why.
[[nodiscard]] inline FileDescriptor open_file(std::string const& path, int flags) noexcept {
    return FileDescriptor(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); }));
}

/// Opens a regular file for reading and tells its size in bytes.
inline FileDescriptor open_for_reading(std::string const& path, Index& bytes) {
    FileDescriptor file = open_file(path, O_RDONLY | O_NONBLOCK);  // a pipe must not hang us
    if (!file.is_open()) raise_io(path, "cannot open", errno, fix_of_open(errno));
    struct stat const status = status_of(file, path);
    if (S_ISDIR(status.st_mode)) raise_io(path, "not a file", EISDIR, "name the file in the folder.");
    if (!S_ISREG(status.st_mode)) raise_io(path, "not a regular file", EINVAL, "copy it to a regular file first.");
    bytes = as_index(status.st_size);
    return file;
}

/// One system call moves at most this much: Linux stops at 2 GiB - 4 KiB, others fail above 2^31 - 1.
inline constexpr std::size_t max_io_bytes = std::size_t{1} << 30U;

/// Fills `out` from byte `offset` of the file on.
inline void read_fully(FileDescriptor const& file, std::string_view path, Index offset, std::span<std::byte> out) {
    while (!out.empty()) {
        std::size_t const want = smaller(out.size(), max_io_bytes);
        auto const got = uninterrupted([&] { return ::pread(file.get(), out.data(), want, offset); });
        if (got < 0)
            raise_io(path, concat("cannot read ", want, " bytes at offset ", offset), errno, "check the file system.");
        if (got == 0) {
            raise(ErrorCode::io, "IoError: ", path, ": the file ends at offset ", offset, ", ", out.size(),
                  " bytes early: it was cut short while open. Fix: open it again once it is whole.");
        }
        out = out.subspan(as_size(got));
        offset += as_index(got);
    }
}

/// Writes all of `bytes` from byte `offset` of the file on, wherever its position is: several threads may.
inline void write_fully(FileDescriptor const& file, std::string_view path, Index offset,
                        std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
        std::size_t const want = smaller(bytes.size(), max_io_bytes);
        auto const done = uninterrupted([&] { return ::pwrite(file.get(), bytes.data(), want, offset); });
        if (done <= 0) {  // none for no reason is an error, or this would have no end
            int const error = done < 0 ? errno : EIO;
            raise_io(path, concat("cannot write ", want, " bytes at offset ", offset), error, fix_of_write(error));
        }
        bytes = bytes.subspan(as_size(done));
        offset += as_index(done);
    }
}

/// What was written to a file is durable. Throws IoError, with what helps.
inline void sync_file(FileDescriptor const& file, std::string_view path, std::string_view fix = {}) {
    if (uninterrupted([&] { return ::fdatasync(file.get()); }) >= 0) return;
    int const error = errno;
    raise_io(path, "cannot make its bytes durable", error, fix.empty() ? fix_of_write(error) : fix);
}

enum class PathKind : int { missing, file, folder };

[[nodiscard]] inline PathKind path_kind(std::string const& path) {
    auto const status = status_at(path);
    if (!status) return PathKind::missing;
    return S_ISDIR(status->st_mode) ? PathKind::folder : PathKind::file;
}

/// How often readers try to see a folder between two saves that each replace what they read.
inline constexpr int most_overtakings = 5;

/// Calls `read()`; again when it fails and the file at `index` was replaced meanwhile: by another save, which then has
/// removed the files that the old one named.
template <class Read>
auto read_saved(std::string const& index, Read&& read) {
    for (int overtaken = 1; overtaken < most_overtakings; ++overtaken) {
        auto const before = stamp_at(index);
        try {
            return read();
        } catch (Error const&) {
            if (stamp_at(index) == before) throw;
        }
    }
    return read();
}

/// What errors say of files that were removed after their names were read.
inline constexpr std::string_view overtaken_words = "a save into this folder has overtaken this reader";

/// Calls `open()`, for a file that an index of a save has named. Throws what that throws; IoError, with those words,
/// when the file is gone, unless `other_reason()` throws another one.
template <class Open, class OtherReason>
auto open_saved(std::string const& path, Open&& open, OtherReason&& other_reason) {
    try {
        return open();
    } catch (Error const& error) {
        if (error.code() != ErrorCode::io || path_kind(path) != PathKind::missing) throw;
        other_reason();
        raise_io(path, concat("it was there when the list of files was read: ", overtaken_words), ENOENT,
                 "load again, and let saves and loads of one folder take turns; or give all ranks one folder.");
    }
}

/// The names of all that is in a folder, in no order, without "." and "..". Throws IoError, with what it means to the
/// caller.
[[nodiscard]] inline std::vector<std::string> leaves_of(std::string const& folder,
                                                        std::string_view meaning = "cannot list the folder") {
    struct Close {
        void operator()(DIR* stream) const noexcept { static_cast<void>(::closedir(stream)); }
    };
    std::unique_ptr<DIR, Close> const stream(::opendir(folder.c_str()));
    if (!stream) raise_io(folder, meaning, errno, fix_of_open(errno));
    std::vector<std::string> leaves;
    for (;;) {
        errno = 0;
        dirent const* const entry = ::readdir(stream.get());  // of a stream that no other thread has
        if (entry == nullptr) break;
        std::string_view const leaf = static_cast<char const*>(entry->d_name);
        if (leaf != "." && leaf != "..") leaves.emplace_back(leaf);
    }
    if (errno != 0) raise_io(folder, meaning, errno, "check the file system.");
    return leaves;
}

/// The folder part of a path, without its last slash: "." when there is none, "/" for the root.
[[nodiscard]] inline std::string folder_of(std::string const& path) {
    auto const slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}
/// The same, but empty when there is none, as join_path() takes it.
[[nodiscard]] inline std::string folder_or_none(std::string const& path) {
    return path.find('/') == std::string::npos ? std::string() : folder_of(path);
}
[[nodiscard]] inline std::string join_path(std::string const& folder, std::string_view leaf) {
    if (folder.empty()) return std::string(leaf);
    return concat(folder, folder.back() == '/' ? "" : "/", leaf);
}

}  // namespace reshard::inline v0_1::detail
