// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/process.hpp
/// \brief  What a process can know of another one of its machine: whether its number means anything, and how it is;
///         memory that processes share, and reading a process's ordinary memory.
/// \depends core, comm/detail/available_memory, the system calls of Linux.
///
/// Shared memory is a nameless file (memfd) that others open through /proc/PID/fd. Unlike an MPI window it needs no
/// collective call to go away, so that a rank which fails can free it without waiting for anybody; unlike a named file
/// nothing stays behind when a process is killed; unlike /dev/shm of a container its size has no limit of its own.
#pragma once

#include <reshard/comm/detail/available_memory.hpp>
#include <reshard/core/detail/file_number.hpp>
#include <reshard/core/detail/own_process.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <fcntl.h>  // open
#include <sys/mman.h>
#include <sys/random.h>    // getrandom
#include <sys/resource.h>  // getrlimit
#include <sys/stat.h>      // fstat, stat
#include <sys/uio.h>       // process_vm_readv
#include <unistd.h>

#include <cerrno>
#include <chrono>   // steady_clock
#include <csignal>  // kill

namespace reshard::inline v0_1::detail {

/// A number nobody else has.
[[nodiscard]] inline std::uint64_t unique_number() noexcept {
    std::uint64_t value = 0;
    if (::getrandom(&value, sizeof(value), 0) == static_cast<ssize_t>(sizeof(value))) return value;
    auto const now = std::chrono::steady_clock::now().time_since_epoch().count();
    return Digest{}.add(static_cast<std::uint64_t>(now)).add(static_cast<std::uint64_t>(own_pid())).value();
}

/// Processes of a machine know each other by number only where this is equal: containers number theirs anew, and a
/// number from another one is a stranger's. 0: not even the numbers in this process's /proc are its own.
[[nodiscard]] inline std::uint64_t process_space() noexcept {
    char self[24] = {};
    auto const length = ::readlink("/proc/self", self, sizeof(self) - 1);
    int pid = 0;
    for (auto i = decltype(length){0}; i < length; ++i) pid = 10 * pid + (self[i] - '0');
    struct stat space {};
    if (pid != own_pid() || ::stat("/proc/self/ns/pid", &space) != 0) return 0;
    return space.st_ino ^ space.st_dev << 48U;
}

/// The letter by which Linux tells how a process is: Z, X ended, T, t stopped. 0: there is none; '?': it does not say.
[[nodiscard]] inline char process_state(int pid) noexcept {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return 0;
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int const file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {  // gone since, or hidden: /proc shows nobody a process that may not be dumped (proc(5), hidepid)
        return errno == ENOENT && ::kill(pid, 0) != 0 && errno == ESRCH ? '\0' : '?';
    }
    char text[128];
    auto const length = ::read(file, text, sizeof(text));
    ::close(file);
    for (auto i = length - 3; i >= 0; --i) {  // "PID (name) STATE ...": the name may hold anything, a ')' too
        if (text[i] == ')') return text[i + 2];
    }
    return length >= 0 ? '?' : '\0';
}
/// Whether the process can still do anything; one that has ended but was not waited for cannot.
[[nodiscard]] inline bool process_lives(int pid) noexcept {
    char const state = process_state(pid);
    return state != '\0' && state != 'Z' && state != 'X' && state != 'x';
}
[[nodiscard]] inline bool process_is_stopped(int pid) noexcept {
    char const state = process_state(pid);
    return state == 'T' || state == 't';
}

/// A mapping of a shared file. The process that made it keeps the file open, so that others can still come.
class SharedMemory {
public:
    SharedMemory() = default;
    SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
    SharedMemory& operator=(SharedMemory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(file_, other.file_);
        return *this;
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] Index bytes() const noexcept { return bytes_; }
    [[nodiscard]] int file() const noexcept { return file_; }
    [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

    ~SharedMemory() {
        if (data_ != nullptr) ::munmap(data_, as_size(bytes_));
        close_file();
    }
    /// New memory, all zero. Empty on failure, also when the system does not have as much; errno says why.
    [[nodiscard]] static SharedMemory create(Index bytes) noexcept {
        return of_file(::memfd_create("reshard", MFD_CLOEXEC), bytes);
    }
    /// The same where there is nobody to share it with: ordinary memory, which takes no file.
    [[nodiscard]] static SharedMemory create_unshared(Index bytes) noexcept {
        SharedMemory made;
        if (bytes > available_memory()) {
            errno = ENOMEM;
        } else {
            static_cast<void>(made.map(bytes, Access::write));
        }
        return made;
    }
    /// Of a file that becomes this object's; below 0: there is none. Empty on failure.
    [[nodiscard]] static SharedMemory of_file(int file, Index bytes) noexcept {
        SharedMemory made;
        made.file_ = above_standard_streams(file);
        if (file < 0 || !made.grow(bytes)) return {};
        return made;
    }
    /// What others do with memory that a process shares.
    enum class Access : bool { read, write };
    /// Memory that process `pid` shares under the number `file`. Empty on failure, and where that is something else:
    /// a file with a name, or one that is too short, which would end this process when it is read.
    [[nodiscard]] static SharedMemory open(int pid, int file, Index bytes, Access access = Access::read) noexcept {
        SharedMemory found;
        char path[40];
        std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, file);
        found.file_ = above_standard_streams(::open(path, (access == Access::write ? O_RDWR : O_RDONLY) | O_CLOEXEC));
        struct stat status {};
        if (found.file_ < 0 || ::fstat(found.file_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 0 ||
            status.st_size < bytes || !found.map(bytes, access)) {
            return {};
        }
        found.close_file();
        return found;
    }
    /// More of it, at another address perhaps. The contents stay; \pre this process made it.
    [[nodiscard]] bool grow(Index bytes) noexcept {
        if (bytes <= bytes_) return true;
        rlimit most{};  // of files, these as well: beyond it ftruncate would end the process
        bool const fits = ::getrlimit(RLIMIT_FSIZE, &most) == 0 && static_cast<rlim_t>(bytes) <= most.rlim_cur;
        // Not fallocate: it would take pages until the system starts to kill processes.
        if (fits && bytes - bytes_ <= available_memory()) {
            return ::ftruncate(file_, bytes) == 0 && map(bytes, Access::write);
        }
        errno = fits ? ENOMEM : EFBIG;
        return false;
    }
    void close_file() noexcept {
        if (file_ >= 0) ::close(file_);
        file_ = -1;
    }

private:
    [[nodiscard]] bool map(Index bytes, Access access) noexcept {
        int const protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
        int const kind = file_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        void* const at = ::mmap(nullptr, as_size(bytes), protection, kind, file_, 0);
        if (at == MAP_FAILED) return false;
        if (data_ != nullptr) ::munmap(data_, as_size(bytes_));
        data_ = static_cast<std::byte*>(at);
        bytes_ = bytes;
        return true;
    }

    std::byte* data_ = nullptr;
    Index bytes_ = 0;
    int file_ = -1;
};

/// Reads runs of another process's memory, many at a time. Runs that touch on this side become one.
class AttachReader {
public:
    explicit AttachReader(int pid) noexcept : pid_(pid) {}

    /// False when the system refused; errno says why.
    [[nodiscard]] bool add(std::byte const* from, std::byte* to, Index bytes) noexcept {
        while (bytes > 0) {
            Index const part = smaller(bytes, longest - bytes_);
            if (to_count_ > 0 &&
                static_cast<std::byte*>(to_[to_count_ - 1].iov_base) + to_[to_count_ - 1].iov_len == to) {
                to_[to_count_ - 1].iov_len += as_size(part);
            } else {
                to_[to_count_++] = {to, as_size(part)};
            }
            from_[from_count_++] = {const_cast<std::byte*>(from), as_size(part)};
            bytes_ += part;
            from += part;
            to += part;
            bytes -= part;
            if ((from_count_ == most || bytes_ == longest) && !flush()) return false;
        }
        return true;
    }
    [[nodiscard]] bool flush() noexcept {
        if (from_count_ == 0) return true;
        auto const got = ::process_vm_readv(pid_, to_, to_count_, from_, from_count_, 0);
        if (got >= 0 && got != bytes_) errno = EFAULT;
        bool const whole = got == bytes_;
        bytes_ = 0;
        from_count_ = to_count_ = 0;
        return whole;
    }

private:
    static constexpr unsigned long most = 512;         // the system takes 1024 runs
    static constexpr Index longest = Index{16} << 20;  // and 2 GiB; shorter turns notice a failure sooner

    int pid_;
    Index bytes_ = 0;
    unsigned long from_count_ = 0;
    unsigned long to_count_ = 0;
    iovec from_[most];
    iovec to_[most];
};

}  // namespace reshard::inline v0_1::detail
