// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/process.hpp
/// \brief  What a process can know of another one of its machine: whether its number means anything, and how it is.
/// \depends core, the system calls of Linux. Elsewhere every process lives and none is known by a number.
#pragma once

#include <reshard/core/index.hpp>

#include <cstdint>

#if defined(__linux__)
#include <fcntl.h>     // open
#include <sys/stat.h>  // stat
#include <unistd.h>

#include <cerrno>
#include <csignal>  // kill
#include <cstdio>   // snprintf
#endif

namespace reshard::inline v0::detail {

#if defined(__linux__)

[[nodiscard]] inline int own_pid() noexcept { return static_cast<int>(::getpid()); }

/// Processes of a machine know each other by number only where this is equal: containers number theirs anew, and a
/// number from another one is a stranger's. 0: not even the numbers in this process's /proc are its own.
[[nodiscard]] inline std::uint64_t process_space() noexcept {
    char self[24] = {};
    auto const length = ::readlink("/proc/self", self, sizeof(self) - 1);
    int pid = 0;
    for (auto i = decltype(length){0}; i < length; ++i) pid = 10 * pid + (self[i] - '0');
    struct stat space {};
    if (pid != own_pid() || ::stat("/proc/self/ns/pid", &space) != 0) return 0;
    return static_cast<std::uint64_t>(space.st_ino) ^ static_cast<std::uint64_t>(space.st_dev) << 48U;
}

/// The letter by which Linux tells how a process is: Z, X ended, T, t stopped. 0: there is none; '?': it does not say.
[[nodiscard]] inline char process_state(int pid) noexcept {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return 0;
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int const file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? '\0' : '?';
    char text[128];
    auto const length = ::read(file, text, sizeof(text));
    ::close(file);
    for (auto i = length - 3; i >= 0; --i) {  // "PID (name) STATE ...": the name may hold anything, a ')' too
        if (text[i] == ')') return text[i + 2];
    }
    return length >= 0 ? '?' : '\0';
}
#else

[[nodiscard]] inline int own_pid() noexcept { return 0; }
[[nodiscard]] inline std::uint64_t process_space() noexcept { return 0; }
[[nodiscard]] inline char process_state(int) noexcept { return '?'; }

#endif

/// Whether the process can still do anything; one that has ended but was not waited for cannot.
[[nodiscard]] inline bool process_lives(int pid) noexcept {
    char const state = process_state(pid);
    return state != '\0' && state != 'Z' && state != 'X' && state != 'x';
}
[[nodiscard]] inline bool process_is_stopped(int pid) noexcept {
    char const state = process_state(pid);
    return state == 'T' || state == 't';
}

}  // namespace reshard::inline v0::detail
