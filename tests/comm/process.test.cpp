// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/detail/process.hpp, and what NCCL makes of it, without its library: seats
// (nccl_board.hpp).
#include <reshard/comm/detail/process.hpp>

#include <reshard/comm/detail/nccl_board.hpp>

#include <doctest/doctest.h>

#include "support/standard_streams.hpp"

#include <grp.h>           // setgroups
#include <sched.h>         // unshare
#include <sys/mount.h>     // mount
#include <sys/prctl.h>     // prctl
#include <sys/resource.h>  // setrlimit
#include <sys/wait.h>      // waitpid

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace {
using namespace reshard;
using namespace reshard::detail;

/// A child that runs body() and then sleeps until it is killed.
template <class Body>
pid_t child(Body const& body) {
    pid_t const pid = ::fork();
    if (pid != 0) return pid;
    body();
    for (;;) ::pause();
}
void wait_for_state(pid_t pid, char state) {
    for (int turn = 0; turn < 2000 && process_state(pid) != state; ++turn) ::usleep(1000);
}
}  // namespace

TEST_SUITE("comm/process") {
    TEST_CASE("process_state: lives, is stopped, has ended but was not asked for, is gone") {
        CHECK(process_lives(own_pid()));
        CHECK(!process_is_stopped(own_pid()));
        pid_t const pid = child([] { ::raise(SIGSTOP); });
        wait_for_state(pid, 'T');
        CHECK(process_lives(pid));
        CHECK(process_is_stopped(pid));
        ::kill(pid, SIGKILL);
        wait_for_state(pid, 'Z');
        CHECK(!process_lives(pid));
        ::waitpid(pid, nullptr, 0);
        CHECK(process_state(pid) == 0);
    }

    TEST_CASE("process_state: a process that /proc does not show lives, until it has ended") {
        pid_t const asking = ::fork();
        if (asking == 0) {
            bool const hides = ::unshare(CLONE_NEWNS) == 0 &&
                               ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                               ::mount("proc", "/proc", "proc", 0, "hidepid=2") == 0 && ::setgroups(0, nullptr) == 0 &&
                               ::setgid(65534) == 0 && ::setuid(65534) == 0;
            if (!hides) ::_exit(2);  // not allowed here
            pid_t const hidden = child([] { ::prctl(PR_SET_DUMPABLE, 0); });
            std::string const path = errors::concat("/proc/", hidden);
            for (int turn = 0; turn < 2000 && ::access(path.c_str(), F_OK) == 0; ++turn) ::usleep(1000);
            bool const lived = ::access(path.c_str(), F_OK) != 0 && process_lives(hidden);
            ::kill(hidden, SIGKILL);
            ::waitpid(hidden, nullptr, 0);
            ::_exit(lived && !process_lives(hidden) ? 0 : 1);
        }
        int status = 0;
        REQUIRE(::waitpid(asking, &status, 0) == asking);
        CHECK((status == 0 || WEXITSTATUS(status) == 2));
    }

    TEST_CASE("memory that processes share has no number of a standard stream") {
        test::WithoutStandardStreams const closed;
        SharedMemory const made = SharedMemory::create(4096);
        REQUIRE(made);
        CHECK(made.file() > STDERR_FILENO);
    }

    TEST_CASE("process_space: the same for processes that know each other by number, another one in a container") {
        CHECK(process_space() != 0);
        int pipes[2] = {};
        REQUIRE(::pipe(pipes) == 0);
        pid_t const pid = child([&] {
            std::uint64_t spaces[2] = {process_space(), 0};
            if (::unshare(CLONE_NEWPID) != 0) spaces[1] = 1;  // not allowed here
            if (spaces[1] == 0) {
                pid_t const inside = child([&] {
                    // Its own number is 1, but /proc is still that of the outer world, where 1 is somebody else.
                    std::uint64_t const inner[2] = {process_space(), 2};
                    static_cast<void>(!::write(pipes[1], inner, sizeof(inner)));
                });
                ::usleep(200000);
                ::kill(inside, SIGKILL);
                ::waitpid(inside, nullptr, 0);
            }
            static_cast<void>(!::write(pipes[1], spaces, sizeof(spaces)));
        });
        std::uint64_t got[2] = {};
        REQUIRE(::read(pipes[0], got, sizeof(got)) == static_cast<ssize_t>(sizeof(got)));
        if (got[1] == 2) {
            CHECK(got[0] == 0);  // nobody is to be believed by number
            REQUIRE(::read(pipes[0], got, sizeof(got)) == static_cast<ssize_t>(sizeof(got)));
        }
        CHECK(got[0] == process_space());
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        ::close(pipes[0]);
        ::close(pipes[1]);
    }

    TEST_CASE("SharedMemory: opens what another process shares, and nothing that only has its number") {
        auto const mine = SharedMemory::create(8192);
        REQUIRE(mine);
        CHECK(SharedMemory::open(own_pid(), mine.file(), 8192));
        CHECK(!SharedMemory::open(own_pid(), mine.file(), 8193));  // reading beyond the end is SIGBUS
        std::FILE* const stranger = std::fopen("/proc/self/exe", "rb");
        REQUIRE(stranger != nullptr);
        CHECK(!SharedMemory::open(own_pid(), ::fileno(stranger), 64));
        std::fclose(stranger);
        char name[] = "/tmp/reshard_process_test_XXXXXX";
        int const named = ::mkstemp(name);
        REQUIRE(named >= 0);
        REQUIRE(::ftruncate(named, 8192) == 0);
        CHECK(!SharedMemory::open(own_pid(), named, 64));  // could be mapped, but is a stranger's
        ::close(named);
        ::unlink(name);
    }

    TEST_CASE("SharedMemory: whoever opens what another process shares reads it, and cannot write to it") {
        auto const shared = SharedMemory::create(4096);
        REQUIRE(shared);
        shared.data()[0] = std::byte{7};
        pid_t const pid = ::fork();
        if (pid == 0) {
            rlimit const no_core{0, 0};
            ::setrlimit(RLIMIT_CORE, &no_core);
            std::signal(SIGSEGV, SIG_DFL);
            auto const opened = SharedMemory::open(own_pid(), shared.file(), 4096);
            if (!opened || opened.data()[0] != std::byte{7}) ::_exit(1);
            *static_cast<std::byte volatile*>(opened.data()) = std::byte{8};
            ::_exit(2);
        }
        int status = 0;
        REQUIRE(::waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGSEGV);
        CHECK(shared.data()[0] == std::byte{7});
    }

    TEST_CASE("SharedMemory: none beyond the limit of files, and nobody dies of it") {
        pid_t const pid = ::fork();
        if (pid == 0) {
            rlimit const most{1 << 20, 1 << 20};
            ::setrlimit(RLIMIT_FSIZE, &most);
            bool const right = SharedMemory::create(1 << 20) && !SharedMemory::create((1 << 20) + 1);
            bool const says_why = errno == EFBIG;
            bool const unshared = bool(SharedMemory::create_unshared((1 << 20) + 1));
            ::_exit(right && says_why && unshared ? 0 : 1);
        }
        int status = -1;
        REQUIRE(::waitpid(pid, &status, 0) == pid);
        CHECK(status == 0);
    }

    TEST_CASE("NcclSeat: whose process it is; who is numbered otherwise may be a stranger") {
        NcclSeat seat;
        CHECK(nccl_process(seat) == 0);  // nobody sits there
        nccl_sit_down(seat);
        CHECK(nccl_process(seat) == own_pid());
        pid_t const pid = child([] { ::_exit(0); });
        wait_for_state(pid, 'Z');
        seat.pid.store(pid);
        CHECK(nccl_process(seat) == pid);
        CHECK(!process_lives(nccl_process(seat)));
        seat.space.store(process_space() + 1);
        CHECK(nccl_process(seat) == 0);
        seat.space.store(0);
        CHECK(nccl_process(seat) == 0);
        ::waitpid(pid, nullptr, 0);
    }
}
