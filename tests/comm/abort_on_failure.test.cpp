// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/abort_on_failure.hpp.
#include <reshard/comm/abort_on_failure.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>

#include "conformance.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {
using namespace reshard;
static_assert(Communicator<AbortOnFailure<SelfCommunicator>>);
static_assert(Communicator<AbortOnFailure<ThreadCommunicator>>);

struct Ended {
    int status = 0;
    std::string errors;  ///< what the process wrote to stderr
};

/// Runs body() in a process of its own.
template <class Body>
Ended in_another_process(Body const& body) {
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(pipe_ends[1], STDERR_FILENO);
        ::close(pipe_ends[0]);
        rlimit const none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL);  // doctest has a handler of its own
        try {
            body();
        } catch (std::exception const& error) {
            std::fputs(error.what(), stderr);
            ::_exit(2);
        }
        ::_exit(0);
    }
    ::close(pipe_ends[1]);
    Ended ended;
    char buffer[512];
    for (ssize_t got = 0; (got = ::read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
        ended.errors.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(pipe_ends[0]);
    REQUIRE(::waitpid(child, &ended.status, 0) == child);
    return ended;
}

bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Rank 0 sends four bytes that rank 1 does not expect.
template <class C>
typename C::exchange_type start_mismatch(C& comm) {
    static int const value = 0;
    static transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), test::box_of(4, {})};
    return comm.exchange(comm.rank() == 0 ? std::span(&send, 1) : std::span<transport::Send const>(), {});
}

/// A transport that ends processes in its own way.
class Stub : public SelfCommunicator {
public:
    static constexpr std::string_view name = "stub";
    using SelfCommunicator::split;
    Stub() = default;
    explicit Stub(SelfCommunicator&& base) : SelfCommunicator(std::move(base)) {}
    [[nodiscard]] Stub split(int colour, int key) { return Stub(SelfCommunicator::split(colour, key)); }
    [[nodiscard]] Stub split(DynamicMesh const& mesh, int axis) { return Stub(SelfCommunicator::split(mesh, axis)); }
    [[noreturn]] static void terminate() noexcept { ::_exit(42); }
};
static_assert(Communicator<Stub>);

}  // namespace

TEST_SUITE("comm/abort_on_failure") {
    TEST_CASE("a mismatch found in wait() is printed with its rank and ends the process") {
        auto const ended = in_another_process([] {
            run_on_threads(2, [](ThreadCommunicator& plain) {
                auto comm = compose<AbortOnFailure>(std::move(plain));
                start_mismatch(comm).wait();
            });
        });
        CHECK(WIFSIGNALED(ended.status));
        CHECK(WTERMSIG(ended.status) == SIGABRT);
        CHECK(contains(ended.errors, "of 2 (threads) ends the program: reshard::exchange: transfer 0 from rank 0"));
        CHECK(contains(ended.errors, "rank 0 sends 4 bytes, rank 1 expects nothing"));
        CHECK(ended.errors.back() == '\n');
    }

    TEST_CASE("an error found in test(), in exchange(), agree() and split() ends it as well") {
        using Comm = Composed<ThreadCommunicator, Staged, Traced, AbortOnFailure>;
        static constexpr void (*calls[])(Comm&) = {
            [](Comm& comm) {
                auto request = start_mismatch(comm);
                while (!request.test()) {
                }
            },
            [](Comm& comm) { static_cast<void>(comm.exchange({}, {})); },
            [](Comm& comm) { static_cast<void>(comm.agree({})); },
            [](Comm& comm) { static_cast<void>(comm.split(0, 0)); },
            [](Comm& comm) { static_cast<void>(comm.split(Mesh{2}, 0)); },
        };
        for (int i = 0; i != 5; ++i) {
            CAPTURE(i);
            auto const ended = in_another_process([&] {
                run_on_threads(2, [&](ThreadCommunicator& plain) {
                    Trace trace;
                    auto comm = compose<Staged, Traced, AbortOnFailure>(std::move(plain), trace);
                    if (i != 0 && comm.rank() == 0) errors::raise(ErrorCode::io, "no such file");
                    if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
                    for (;;) calls[i](comm);  // the first one that hears of it
                });
            });
            CHECK(WIFSIGNALED(ended.status));
            CHECK(WTERMSIG(ended.status) == SIGABRT);
            CHECK(contains(ended.errors, i == 0 ? "rank 1 expects nothing"
                                                : "rank 1 of 2 (threads) ends the program: "
                                                  "reshard::ThreadCommunicator: rank 0 failed: no such file"));
        }
    }

    TEST_CASE("the parts of a communicator end the process too, and name their own rank") {
        auto const ended = in_another_process([] {
            run_on_threads(3, [](ThreadCommunicator& plain) {
                auto comm = compose<AbortOnFailure>(std::move(plain));
                auto part = comm.split(comm.rank() == 0 ? -1 : 0, 0);
                if (part.size() == 2) start_mismatch(part).wait();
                barrier(comm);
            });
        });
        CHECK(WIFSIGNALED(ended.status));
        CHECK(contains(ended.errors, "rank 0 sends 4 bytes, rank 1 expects nothing"));
    }

    TEST_CASE("a transport ends the process in its own way, whatever policies are between") {
        auto const ended = in_another_process([] {
            Trace trace;
            auto comm = compose<Staged, Traced, AbortOnFailure>(Stub(), trace);
            comm.abort(ErrorCode::io, "disk full.");
            barrier(comm);
        });
        REQUIRE(WIFEXITED(ended.status));
        CHECK(WEXITSTATUS(ended.status) == 42);
        CHECK(contains(ended.errors, "rank 0 of 1 (stub) ends the program: "));
        CHECK(contains(ended.errors, "disk full."));
    }

    TEST_CASE("a failure hook is called instead of printing") {
        auto const ended = in_another_process([] {
            failure_hook() = [](ErrorCode code, char const* text) {
                std::fprintf(stderr, "hook %d: %s", static_cast<int>(code), text);
            };
            AbortOnFailure comm{SelfCommunicator()};
            comm.abort(ErrorCode::io, "disk full.");
            barrier(comm);
        });
        CHECK(WIFSIGNALED(ended.status));
        CHECK(ended.errors.starts_with("hook 9: reshard: rank 0 of 1 (self) ends the program: "));
    }

    TEST_CASE("arguments that all ranks get wrong are thrown as ever and leave the communicator whole") {
        run_on_threads(2, [](ThreadCommunicator& plain) {
            auto comm = compose<AbortOnFailure>(std::move(plain));
            CHECK_THROWS_AS(static_cast<void>(comm.split(Mesh{3}, 0)), MeshError);
            CHECK_THROWS_AS(broadcast(comm, {}, 2), MeshError);
            test::sends_one_value_to_each_peer(comm);
        });
    }

    TEST_CASE("an exception of the program reaches the caller of run_on_threads, even after the handle moved away") {
        CHECK_THROWS_AS(run_on_threads(2,
                                       [](ThreadCommunicator& plain) {
                                           auto comm = std::move(plain);
                                           if (comm.rank() == 0) errors::raise(ErrorCode::io, "no such file");
                                           barrier(comm);
                                       }),
                        IoError);
    }
}
