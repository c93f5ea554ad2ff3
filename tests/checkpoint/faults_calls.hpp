// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/faults_calls.hpp
/// \brief  The system calls of a test program that is linked with --wrap: they come here first, and faults_support.hpp
///         says what becomes of them; the library knows nothing of it.
#pragma once

#include <fcntl.h>
#include <sys/file.h>  // flock
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>  // min
#include <cerrno>     // errno
#include <cstdarg>    // va_list
#include <cstdio>     // rename

#include "faults_support.hpp"

namespace checkpoint_test {

/// Whether this call is to fail.
inline bool fails(char const* what) {
    if (faults == nullptr || !(counted || faults->all_threads)) return false;
    if (!faults->only.empty() && faults->only != what) return false;
    long const call = faults->calls.fetch_add(1);
    long const first = faults->at.load();
    if (first < 0 || call < first || (call > first && !faults->lasting)) return false;
    if (faults->error == 0) ::_exit(42);
    faults->failed = what;
    errno = faults->error;
    return true;
}
inline std::size_t allowed(std::size_t bytes) { return faults == nullptr ? bytes : std::min(bytes, faults->longest); }

using DiskKind = DiskCall::Kind;
/// Takes memory only where somebody listens: tests that refuse it are part of the same program.
template <class... Parts>
void tell(DiskKind kind, int file, Parts... parts) {
    if (after_call) after_call({kind, file, parts...});
}
inline void tell_write(int file, void const* bytes, ssize_t done, off_t at) {
    if (after_call && done > 0)
        tell(DiskKind::write, file, "", "", at,
             std::string(static_cast<char const*>(bytes), static_cast<std::size_t>(done)));
}
inline void tell_sync(int file) {
    struct stat status {};
    if (after_call && ::fstat(file, &status) == 0)
        tell(S_ISDIR(status.st_mode) ? DiskKind::sync_folder : DiskKind::sync_file, file);
}

}  // namespace checkpoint_test

extern "C" {  // weak: files that are compiled together have what one of them includes
int __real_open(char const* path, int flags, ...);
ssize_t __real_pwrite(int file, void const* bytes, std::size_t count, off_t offset);
ssize_t __real_write(int file, void const* bytes, std::size_t count);
int __real_fsync(int file);
int __real_fdatasync(int file);
int __real_rename(char const* from, char const* to);
int __real_unlink(char const* path);
int __real_close(int file);
int __real_fstat(int file, struct stat* status);
int __real_flock(int file, int operation);

[[gnu::weak]] int __wrap_open(char const* path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    int const mode = (flags & O_CREAT) != 0 ? va_arg(list, int) : 0;
    va_end(list);
    if (checkpoint_test::before_open) checkpoint_test::before_open(path);
    if (checkpoint_test::fails("open")) return -1;
    int const file = __real_open(path, flags, mode);
    if (file >= 0 && (flags & O_CREAT) != 0) checkpoint_test::tell(checkpoint_test::DiskKind::create, file, path);
    return file;
}
[[gnu::weak]] ssize_t __wrap_pwrite(int file, void const* bytes, std::size_t count, off_t offset) {
    if (checkpoint_test::fails("pwrite")) return -1;
    ssize_t const done = __real_pwrite(file, bytes, checkpoint_test::allowed(count), offset);
    checkpoint_test::tell_write(file, bytes, done, offset);
    return done;
}
[[gnu::weak]] ssize_t __wrap_write(int file, void const* bytes, std::size_t count) {
    if (checkpoint_test::fails("write")) return -1;
    off_t const offset = ::lseek(file, 0, SEEK_CUR);
    ssize_t const done = __real_write(file, bytes, checkpoint_test::allowed(count));
    checkpoint_test::tell_write(file, bytes, done, offset);
    return done;
}
[[gnu::weak]] int __wrap_fsync(int file) {
    if (checkpoint_test::before_sync) checkpoint_test::before_sync(file);
    if (checkpoint_test::fails("fsync")) return -1;
    int const result = __real_fsync(file);
    if (result == 0) checkpoint_test::tell_sync(file);
    return result;
}
[[gnu::weak]] int __wrap_fdatasync(int file) {
    if (checkpoint_test::fails("fdatasync")) return -1;
    int const result = __real_fdatasync(file);
    if (result == 0) checkpoint_test::tell_sync(file);
    return result;
}
[[gnu::weak]] int __wrap_rename(char const* from, char const* to) {
    bool const failed = checkpoint_test::fails("rename");
    int const error = errno;
    int const result = failed && !checkpoint_test::faults->done_anyway ? -1 : __real_rename(from, to);
    if (result == 0) checkpoint_test::tell(checkpoint_test::DiskKind::rename, -1, from, to);
    if (!failed) return result;
    errno = error;
    return -1;
}
[[gnu::weak]] int __wrap_unlink(char const* path) {
    if (checkpoint_test::fails("unlink")) return -1;
    int const result = __real_unlink(path);
    if (result == 0) checkpoint_test::tell(checkpoint_test::DiskKind::remove, -1, path);
    return result;
}
[[gnu::weak]] int __wrap_fstat(int file, struct stat* status) {
    return checkpoint_test::fails("fstat") ? -1 : __real_fstat(file, status);
}
[[gnu::weak]] int __wrap_flock(int file, int operation) {  // fails where it is named
    bool const named = checkpoint_test::faults != nullptr && checkpoint_test::faults->only == "flock";
    return named && checkpoint_test::fails("flock") ? -1 : __real_flock(file, operation);
}
[[gnu::weak]] int __wrap_close(int file) {  // whatever it says, the descriptor is closed
    if (checkpoint_test::before_close) checkpoint_test::before_close(file);
    bool const failed = checkpoint_test::fails("close");
    int const error = errno;
    int const result = __real_close(file);
    if (failed) errno = error;
    return failed ? -1 : result;
}
}
