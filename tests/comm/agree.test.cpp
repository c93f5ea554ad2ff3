// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/agree.hpp.
#include <reshard/comm/agree.hpp>
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include "support/allocations.hpp"
#include "support/thrown.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reshard;

TEST_SUITE("comm/agree") {
    TEST_CASE("a rank that has no memory for words has the code, and all say the same words") {
        auto const thrown = test::thrown_by(3, [](ThreadCommunicator& comm) {
            transport::Verdict mine;
            if (comm.rank() == 1) {
                test::allocation_counter().refused_from = 0;  // from now on
                mine = detail::verdict_of([] { static_cast<void>(std::vector<int>(100)); });
                test::allocation_counter().refused_from = SIZE_MAX;
                CHECK(mine.reason.empty());
            }
            detail::agree_or_raise(comm, std::move(mine));
        });
        test::check_same(thrown, ErrorCode::out_of_memory, {"rank 1 of 3: reshard: out of memory."});
    }

    TEST_CASE("work that fails on some ranks throws the error of the lowest on all, and all can go on after it") {
        std::vector<int> met(3, 0);
        auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
            agree_on_errors(comm, [&] { met[static_cast<std::size_t>(comm.rank())] = 1; });
            CHECK(met == std::vector<int>{1, 1, 1});  // nobody is past it before all have done their work
            agree_on_errors(comm, [&] {
                if (comm.rank() == 1) errors::raise(ErrorCode::io, "the disk is full. Fix: make room.");
                if (comm.rank() == 2) throw std::runtime_error("the other one");
            });
        });
        test::check_same(thrown, ErrorCode::io, {"rank 1 of 3: the disk is full. Fix: make room."});
        auto const foreign = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            CHECK_THROWS_AS(agree_on_errors(comm, [&] { errors::raise(ErrorCode::buffer, "no. Fix: yes."); }),
                            BufferError);
            agree_on_errors(comm, [&] {  // the communicator is whole
                if (comm.rank() == 1) throw std::runtime_error("not ours. Fix: ask them.");
            });
        });
        test::check_same(foreign, ErrorCode::user, {"rank 1 of 2: not ours. Fix: ask them."});
        auto const unnamed = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            agree_on_errors(comm, [&] {
                if (comm.rank() == 1) throw 42;
            });
        });
        for (auto const& each : unnamed)
            CHECK(each.message == "rank 1 of 2: an exception that is not a std::exception");
    }

    TEST_CASE("an error knows whether all ranks throw it, whatever its words") {
        auto const agreed = [](auto const& body) {
            std::vector<int> seen(2, -1);
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                try {
                    body(comm);
                } catch (Error const& error) {
                    seen[static_cast<std::size_t>(comm.rank())] = error.is_agreed() ? 1 : 0;
                }
            });
            return seen;
        };
        auto const fail = [](int rank) {
            if (rank == 1) errors::raise(ErrorCode::io, "rank 1 of 2: no. Fix: yes.");
        };
        using Seen = std::vector<int>;
        CHECK(agreed([&](ThreadCommunicator& comm) { fail(comm.rank()); }) == Seen{-1, 0});
        CHECK(agreed([&](ThreadCommunicator& comm) { agree_on_errors(comm, [&] { fail(comm.rank()); }); }) ==
              Seen{1, 1});
        CHECK(agreed([&](ThreadCommunicator& comm) {
                  try {
                      agree_on_errors(comm, [&] { fail(comm.rank()); });
                  } catch (Error const& error) {
                      detail::raise_with(error, "More.");
                  }
              }) == Seen{1, 1});
        CHECK(agreed([&](ThreadCommunicator& comm) {  // to the other one it is an end, of which both do not know alike
                  if (comm.rank() == 1) comm.abort(ErrorCode::io, "rank 1 of 2: gone. Fix: come back.");
                  agree_on_errors(comm, [] {});
              }) == Seen{0, 0});
    }

    TEST_CASE(
        "a rank that comes with an error of its own when the others have given it up: that it has, is said behind") {
        ThreadOptions options;
        options.deadline = std::chrono::milliseconds(50);
        std::atomic<bool> given_up = false;
        auto const thrown = test::thrown_by(
            2,
            [&](ThreadCommunicator& comm) {
                try {
                    agree_on_errors(comm, [&] {
                        if (comm.rank() == 1) return;
                        while (!given_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        errors::raise(ErrorCode::io, "the disk did not answer. Fix: look at it.");
                    });
                } catch (...) {
                    given_up = true;
                    throw;
                }
            },
            options);
        CHECK(thrown[0] == test::Thrown{ErrorCode::peer_failed,
                                        "reshard::ThreadCommunicator: rank 0 failed: " + thrown[1].message +
                                            " (This rank's own error: the disk did not answer. Fix: look at it.)"});
        CHECK(thrown[1].code == ErrorCode::deadline);
    }

    TEST_CASE("an error of the communicator in the work of an agreement is told once") {
        ThreadOptions options;
        options.deadline = std::chrono::milliseconds(100);
        auto const thrown = test::thrown_by(
            2,
            [&](ThreadCommunicator& comm) {
                if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
                agree_on_errors(comm, [&] { static_cast<void>(comm.split(0, 0)); });
            },
            options);
        for (test::Thrown const& each : thrown) {
            CAPTURE(each);
            std::size_t const first = each.message.find("waited 100 ms");
            CHECK(first != std::string::npos);
            CHECK(each.message.find("waited 100 ms", first + 1) == std::string::npos);
        }
    }

    TEST_CASE("a rank with an error of its own says so behind the one that others are in another call") {
        struct Elsewhere {
            [[nodiscard]] static int size() { return 2; }
            static transport::Verdict agree(transport::Verdict const&) {
                errors::raise(ErrorCode::mismatch, "rank 1 called agree while rank 0 called exchange");
            }
        } comm;
        CHECK_THROWS_WITH_AS(agree_on_errors(comm, [] { errors::raise(ErrorCode::io, "no such file"); }),
                             "rank 1 called agree while rank 0 called exchange (This rank's own error: no such file)",
                             MismatchError);
        CHECK_THROWS_WITH_AS(agree_on_errors(comm, [] {}), "rank 1 called agree while rank 0 called exchange",
                             MismatchError);
    }

    TEST_CASE("more words behind those of an error are a sentence of their own, or in brackets") {
        auto const with = [](std::string said, std::string_view more) {
            try {
                try {
                    errors::raise(ErrorCode::io, std::move(said));
                } catch (Error const& error) {
                    detail::raise_with(error, more);
                }
            } catch (IoError const& error) {
                return error.message();
            }
            return std::string("another error");
        };
        CHECK(with("gives up", "Load again.") == "gives up. Load again.");
        CHECK(with("failed (errno 5)", "Load again.") == "failed (errno 5). Load again.");
        CHECK(with("gone. Fix: look.", "Load again.") == "gone. Fix: look. Load again.");
        CHECK(with("gives up (It is over.)", "Load again.") == "gives up (It is over.) Load again.");
        CHECK(with("gives up", "(It is over.)") == "gives up (It is over.)");
        CHECK(with("gives up", "") == "gives up");
        CHECK(with("", "(It is over.)") == " (It is over.)");
    }

    TEST_CASE("what fails is pending, what comes after it is left out, and the next agreement tells all") {
        std::vector<int> done(2, 0);
        auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            detail::PendingVerdict pending;
            pending.attempt([&] {
                if (comm.rank() == 1) errors::raise(ErrorCode::io, "the disk is full. Fix: make room.");
            });
            pending.attempt([&] { done[static_cast<std::size_t>(comm.rank())] = 1; });
            CHECK(pending.ok() == (comm.rank() == 0));
            pending.agree(comm);
        });
        test::check_same(thrown, ErrorCode::io, {"rank 1 of 2: the disk is full"});
        CHECK(done == std::vector<int>{1, 0});
    }

    TEST_CASE("what is pending can be thrown once, in the work of another agreement") {
        detail::PendingVerdict pending;
        pending.attempt([] { errors::raise(ErrorCode::buffer, "too small. Fix: more."); });
        CHECK_THROWS_WITH_AS(pending.raise_pending(), "too small. Fix: more.", BufferError);
        CHECK(pending.ok());
        pending.raise_pending();
    }
}
