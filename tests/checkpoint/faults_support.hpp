// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/faults_support.hpp
/// \brief  What becomes of the system calls that the test program is linked with --wrap for (faults_calls.hpp).
#pragma once

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>       // atomic
#include <cstdint>      // SIZE_MAX
#include <functional>   // function
#include <string>       // string
#include <string_view>  // string_view

namespace checkpoint_test {

/// What becomes of the calls that are counted: those of all threads, or of one.
struct Faults {
    std::atomic<long> calls{0};
    std::atomic<long> at{-1};  ///< this one, from 0
    int error = 0;             ///< fails with it; 0: the process ends
    bool all_threads = false;
    bool lasting = false;            ///< those after it fail as well
    std::size_t longest = SIZE_MAX;  ///< no write moves more
    std::string_view only{};         ///< calls of that name alone are counted
    bool done_anyway = false;        ///< a rename that fails was done nevertheless
    std::string failed{};            ///< which call it was
};
inline Faults* faults = nullptr;  // none: calls go on as they are
inline thread_local bool counted = false;
inline std::function<void(std::string_view)> before_open;  ///< called with each path
inline std::function<void(int)> before_sync;               ///< called with each descriptor that fsync() gets
inline std::function<void(int)> before_close;              ///< and close()

/// What a call that was done has changed, or made durable.
struct DiskCall {
    enum class Kind { create, write, sync_file, sync_folder, rename, remove } kind = Kind::write;
    int file = -1;        ///< a descriptor: of create, write and both syncs
    std::string path{};   ///< of create, rename and remove
    std::string to{};     ///< of rename
    off_t at = 0;         ///< of write
    std::string bytes{};  ///< of write
};
inline std::function<void(DiskCall)> after_call;  ///< called from any thread

/// Call number `at` of that name, in whatever thread, fails while `body` runs. What has failed; empty: nothing.
template <class Body>
std::string while_one_fails(std::string_view only, int error, Body const& body, long at = 0) {
    Faults plan;
    plan.at = at;
    plan.error = error;
    plan.only = only;
    plan.all_threads = true;
    faults = &plan;
    body();
    faults = nullptr;
    return plan.failed;
}

/// Starts a process that does this and nothing else; an exception ends it, as a signal that no test expects.
template <class Body>
pid_t start_child(Body const& body) {
    pid_t const child = ::fork();
    if (child == 0) {
        [&]() noexcept { body(); }();
        ::_exit(0);
    }
    return child;
}

/// Whether a process that does this ended at the call that it was to end at; else it has done all of it.
template <class Body>
bool dies_at(long call, Body const& body) {
    pid_t const child = start_child([&] {
        Faults plan;
        plan.all_threads = true;
        plan.at = call;
        faults = &plan;
        body();
    });
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE((WEXITSTATUS(status) == 42 || WEXITSTATUS(status) == 0));
    return WEXITSTATUS(status) == 42;
}

}  // namespace checkpoint_test
