// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/threads.hpp.
#include <reshard/comm/staged.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>
#include <reshard/memory/convert.hpp>

#include "alike.hpp"
#include "forked.hpp"
#include "support/allocations.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>  // waitpid
#include <unistd.h>    // _exit, dup2, fork, pipe

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>     // fflush
#include <new>        // bad_alloc
#include <random>     // mt19937
#include <stdexcept>  // runtime_error
#include <string>
#include <thread>
#include <vector>

namespace {
using namespace reshard;
using namespace std::chrono_literals;
using test::box_of;
using test::sends_one_value_to_each_peer;

static_assert(ThreadCommunicator::name == "threads");

/// Runs `body`, keeps what each rank threw, and rethrows, so that the run ends as it would without the test.
template <class Body>
std::vector<std::string> what_ranks_threw(int ranks, ThreadOptions const& options, Body const& body) {
    std::vector<std::string> thrown(static_cast<std::size_t>(ranks));
    try {
        run_on_threads(ranks, options, [&](ThreadCommunicator& comm) {
            auto& mine = thrown[static_cast<std::size_t>(comm.rank())];
            try {
                body(comm);
            } catch (PeerFailed const& error) {
                mine = errors::concat("PeerFailed ", error.message());
                throw;
            } catch (MismatchError const& error) {
                mine = errors::concat("MismatchError ", error.message());
                throw;
            } catch (DeadlineExceeded const& error) {
                mine = errors::concat("DeadlineExceeded ", error.message());
                throw;
            } catch (std::exception const& error) {
                mine = errors::concat("exception ", error.what());
                throw;
            }
        });
    } catch (std::exception const& error) {
        thrown.push_back(error.what());
    }
    return thrown;
}

bool begins(std::string const& text, std::string const& start) { return text.rfind(start, 0) == 0; }
bool holds(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// The ways ranks can be waiting for one another.
enum class Wait { exchange, agree, split, child_agree };
constexpr Wait all_waits[] = {Wait::exchange, Wait::agree, Wait::split, Wait::child_agree};

void wait_for_others(ThreadCommunicator& comm, ThreadCommunicator& child, Wait how) {
    switch (how) {
        case Wait::exchange: return comm.exchange({}, {}).wait();
        case Wait::agree: return barrier(comm);
        case Wait::split: return static_cast<void>(comm.split(0, 0));
        case Wait::child_agree: return barrier(child);
    }
}
}  // namespace

TEST_SUITE("comm/threads") {
    TEST_CASE("ThreadCommunicator: keeps the contract on 1, 2, 3, 4 and 8 ranks") {
        for (int ranks : {1, 2, 3, 4, 8}) {
            CAPTURE(ranks);
            run_on_threads(ranks, [](ThreadCommunicator& comm) {
                test::conforms(comm);
                test::refuses_a_second_start(comm);
            });
        }
    }

    TEST_CASE("ThreadCommunicator: exchanges that are alike are not mixed up, also below a policy that packs") {
        for (bool again : {false, true}) {
            CAPTURE(again);
            run_on_threads(3, [&](ThreadCommunicator& comm) { test::notices_another_order(comm, again); });
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                Staged packed(std::move(comm));
                test::notices_another_order(packed, again);
            });
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                Trace trace(64);
                Staged packed(Traced(std::move(comm), trace));
                test::notices_another_order(packed, again);
            });
        }
    }

    TEST_CASE("ThreadCommunicator: ranks that convert to different types both learn of it") {
        auto const thrown = what_ranks_threw(3, {}, [](ThreadCommunicator& comm) {
            double value = 1;
            DType const wire = comm.rank() == 0 ? DType::i64 : DType::u64;
            transport::Conversion const conversion{DType::f64, wire, 1.0, transport::convert};
            transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), box_of(8, {}), conversion};
            transport::Receive const receive{0, reinterpret_cast<std::byte*>(&value), box_of(8, {}), conversion};
            if (comm.rank() == 0) return comm.exchange({&send, 1}, {}).wait();
            if (comm.rank() == 1) return comm.exchange({}, {&receive, 1}).wait();
            comm.exchange({}, {}).wait();
        });
        for (std::size_t r : {0U, 1U}) {
            CAPTURE(thrown[r]);
            CHECK(begins(thrown[r], "MismatchError"));
            CHECK(holds(thrown[r], "rank 0 sends I64, rank 1 expects U64"));
        }
        CHECK(begins(thrown[2], "PeerFailed"));
    }

    TEST_CASE("ThreadCommunicator: keeps the contract when every exchange is streamed") {
        ThreadOptions options;
        options.streaming_threshold_bytes = 0;
        for (int ranks : {1, 3, 4}) {
            CAPTURE(ranks);
            run_on_threads(ranks, options, [](auto& comm) { test::conforms(comm); });
        }
    }

    TEST_CASE("ThreadCommunicator: random exchanges deliver every byte, one after another") {
        auto const seed = 991U;
        CAPTURE(seed);
        for (int ranks : {2, 5}) {
            run_on_threads(ranks, [&](ThreadCommunicator& comm) { test::moves_at_random(comm, seed, 100); });
        }
    }

    TEST_CASE("ThreadCommunicator: agreements that end early and late, exchanges and splits follow each other") {
        auto const seed = 733U;
        CAPTURE(seed);
        for (int ranks : {2, 3, 5}) {
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                std::mt19937 same(seed);  // what all ranks call, and with what
                std::mt19937 own(seed + 1 + static_cast<unsigned>(comm.rank()));
                for (int round = 0; round < 300; ++round) {
                    if (own() % 4 == 0) std::this_thread::yield();
                    auto const what = same() % 6;
                    int const odd = static_cast<int>(same() % static_cast<unsigned>(ranks));
                    bool const it_is_me = comm.rank() == odd;
                    if (what == 0) sends_one_value_to_each_peer(comm);
                    if (what == 1) RESHARD_CHECK(comm.split(0, 0).size() == ranks);
                    if (what < 2) continue;
                    transport::Verdict mine{ErrorCode::none, -1, {}, 100U + static_cast<unsigned>(round)};
                    if (what == 3 && it_is_me) mine.code = ErrorCode::shape;
                    if (what == 4 && it_is_me) ++mine.digest;
                    if (what == 5 && comm.rank() == 0) mine.reason = errors::concat("round ", round);
                    transport::Verdict const all = comm.agree(mine);
                    ErrorCode const expected = what == 3   ? ErrorCode::shape
                                               : what == 4 ? ErrorCode::mismatch
                                                           : ErrorCode::none;
                    RESHARD_CHECK(all.code == expected);
                    RESHARD_CHECK(all.rank == (what == 3   ? odd
                                               : what == 4 ? detail::larger(odd, odd == 0 ? 1 : 0)
                                                           : 0));
                    if (what == 5) RESHARD_CHECK(all.reason == errors::concat("round ", round));
                }
            });
        }
    }

    TEST_CASE("ThreadCommunicator: what all have agreed on holds, though one fails right behind it") {
        for (int round = 0; round < 200; ++round) {
            std::atomic<int> agreed{0};
            CHECK_THROWS_AS(run_on_threads(3,
                                           [&](ThreadCommunicator& comm) {
                                               if (comm.rank() == round % 3) std::this_thread::yield();
                                               if (comm.agree({}).ok()) ++agreed;
                                               if (comm.rank() == 1) throw std::runtime_error("behind it");
                                               barrier(comm);
                                           }),
                            std::runtime_error);
            CHECK(agreed == 3);
        }
    }

    TEST_CASE("run_on_threads: starts each rank once, and refuses to start none") {
        std::array<std::atomic<int>, 8> seen{};
        run_on_threads(8, [&](ThreadCommunicator& comm) {
            CHECK(comm.size() == 8);
            ++seen[static_cast<std::size_t>(comm.rank())];
        });
        for (auto const& count : seen) CHECK(count == 1);
        CHECK_THROWS_AS(run_on_threads(0, [](auto&) {}), MeshError);
    }

    TEST_CASE("run_on_threads: a rank whose thread cannot be had is an error that says so; the others end") {
        test::AllocationCounter& counter = test::allocation_counter();
        std::vector<std::string> said;
        for (int granted = 0; granted < 1000; ++granted) {  // std::thread allocates, too
            counter.granted = granted;
            counter.once = true;
            counter.refused = 0;
            counter.refused_from = 0;
            try {
                run_on_threads(3, [](ThreadCommunicator& comm) { barrier(comm); });
            } catch (OutOfMemory const& error) {
                said.emplace_back(error.message());
            } catch (std::bad_alloc const&) {  // before there is any thread
            }
            counter.refused_from = SIZE_MAX;
            if (counter.refused == 0) break;
        }
        CHECK(counter.refused == 0);
        REQUIRE(said.size() >= 3);
        CHECK(said.size() % 3 == 0);  // libstdc++ allocates once for a thread, libc++ thrice
        for (std::string const& text : said) {
            CAPTURE(text);
            CHECK(begins(text, "reshard::run_on_threads: the system gives no thread"));
            CHECK(holds(text, "Fix: raise the limit on processes and threads (ulimit -u"));
        }
    }

    TEST_CASE("run_on_threads: a deadline that has passed before anything began is refused") {
        for (std::chrono::milliseconds const deadline : {-1000ms, 0ms}) {
            CAPTURE(deadline.count());
            CHECK_THROWS_WITH_AS(run_on_threads(1, {.deadline = deadline}, [](auto&) { FAIL("a rank was started"); }),
                                 doctest::Contains(errors::concat("reshard::ThreadOptions: deadline is ",
                                                                  deadline.count(), " ms. Fix: 1 ms or more; ")
                                                       .c_str()),
                                 BufferError);
        }
    }

    TEST_CASE("run_on_threads: throws the original exception, and the others learn who and why") {
        for (Wait how : all_waits) {
            for (int culprit : {0, 1, 3}) {
                CAPTURE(static_cast<int>(how));
                CAPTURE(culprit);
                auto const thrown = what_ranks_threw(4, {}, [&](ThreadCommunicator& comm) {
                    ThreadCommunicator child = comm.split(0, 0);
                    sends_one_value_to_each_peer(comm);
                    if (comm.rank() == culprit) throw std::runtime_error("the disk is full");
                    wait_for_others(comm, child, how);
                });
                REQUIRE(thrown.size() == 5);
                CHECK(thrown[4] == "the disk is full");
                for (int r = 0; r != 4; ++r) {
                    auto const& text = thrown[static_cast<std::size_t>(r)];
                    CAPTURE(text);
                    if (r == culprit) continue;
                    CHECK(begins(text, "PeerFailed"));
                    CHECK(holds(text, errors::concat("rank ", culprit, " failed: the disk is full")));
                }
            }
        }
        CHECK_THROWS_AS(run_on_threads(3,
                                       [](ThreadCommunicator& comm) {
                                           if (comm.rank() == 2) throw IoError("no file");
                                           barrier(comm);
                                       }),
                        IoError);
        CHECK_THROWS_AS(run_on_threads(3,
                                       [](ThreadCommunicator& comm) {
                                           if (comm.rank() == 1) throw 7;
                                           barrier(comm);
                                       }),
                        int);
    }

    TEST_CASE("a rank that throws between exchange and wait still serves the others first") {
        auto const thrown = what_ranks_threw(3, {}, [](ThreadCommunicator& comm) {
            std::vector<std::byte> mine(5000, std::byte{static_cast<unsigned char>(comm.rank() + 1)});
            std::vector<std::byte> got(5000);
            int const next = (comm.rank() + 1) % 3;
            int const previous = (comm.rank() + 2) % 3;
            transport::Send const send{next, mine.data(), box_of(1, {{5000, 1}})};
            transport::Receive const receive{previous, got.data(), box_of(1, {{5000, 1}})};
            auto request = comm.exchange({&send, 1}, {&receive, 1});
            if (comm.rank() == 1) throw std::runtime_error("changed my mind");
            request.wait();
            CHECK(got == std::vector<std::byte>(5000, std::byte{static_cast<unsigned char>(previous + 1)}));
            barrier(comm);
        });
        CHECK(thrown.back() == "changed my mind");
        CHECK(holds(thrown[0], "rank 1 failed: changed my mind"));
        CHECK(holds(thrown[2], "rank 1 failed: changed my mind"));
    }

    TEST_CASE("a rank that returns early fails those that wait for it, at once") {
        for (Wait how : all_waits) {
            CAPTURE(static_cast<int>(how));
            auto const thrown = what_ranks_threw(4, {}, [&](ThreadCommunicator& comm) {
                ThreadCommunicator child = comm.split(0, 0);
                if (comm.rank() == 2) return;
                wait_for_others(comm, child, how);
            });
            REQUIRE(thrown.size() == 5);
            for (std::size_t r : {0U, 1U, 3U}) {
                CAPTURE(thrown[r]);
                CHECK(begins(thrown[r], "PeerFailed"));
                CHECK(holds(thrown[r], "rank 2 returned"));
            }
            CHECK(thrown[2].empty());
        }
    }

    TEST_CASE("a rank that is lost has one number, in groups that number ranks anew as well") {
        auto const thrown = what_ranks_threw(3, {}, [&](ThreadCommunicator& comm) {
            ThreadCommunicator child = comm.split(0, -comm.rank());
            if (comm.rank() != 0) barrier(child);
        });
        for (std::size_t r : {1U, 2U}) CHECK(holds(thrown[r], "rank 0 failed: rank 0 returned"));
    }

    TEST_CASE("ranks may return while others still work together in a group without them") {
        run_on_threads(4, [](ThreadCommunicator& comm) {
            ThreadCommunicator half = comm.split(comm.rank() / 2, 0);
            if (comm.rank() < 2) return;
            for (int i = 0; i != 200; ++i) sends_one_value_to_each_peer(half);
        });
    }

    TEST_CASE("a rank that never comes is named when the deadline has passed, to all who waited") {
        for (Wait how : all_waits) {
            CAPTURE(static_cast<int>(how));
            std::atomic<int> gave_up = 0;
            ThreadOptions options;
            options.deadline = 500ms;
            auto const thrown = what_ranks_threw(4, options, [&](ThreadCommunicator& comm) {
                ThreadCommunicator child = comm.split(0, 0);
                if (comm.rank() == 1 || comm.rank() == 3) {
                    while (gave_up != 2) std::this_thread::sleep_for(1ms);
                    barrier(comm);  // too late
                    return;
                }
                try {
                    wait_for_others(comm, child, how);
                } catch (...) {
                    ++gave_up;
                    throw;
                }
            });
            REQUIRE(thrown.size() == 5);
            for (std::size_t r : {0U, 2U}) {
                CAPTURE(thrown[r]);
                CHECK(begins(thrown[r], "DeadlineExceeded"));
                CHECK(holds(thrown[r], "for rank 1, 3"));
            }
            for (std::size_t r : {1U, 3U}) {
                CAPTURE(thrown[r]);
                CHECK(begins(thrown[r], "PeerFailed"));
            }
        }
    }

    TEST_CASE("a rank that is named and waits itself, in another communicator, is told so; the others are not") {
        std::atomic<int> started = 0;
        auto const thrown = what_ranks_threw(4, {.deadline = 200ms}, [&](ThreadCommunicator& comm) {
            ThreadCommunicator line = comm.split(comm.rank() / 2, 0);
            auto request = (comm.rank() == 1 ? line : comm).exchange({}, {});
            ++started;
            while (started != 4) std::this_thread::sleep_for(1ms);
            request.wait();
        });
        std::size_t const named = holds(thrown[2], "for rank 1") ? 1 : 0;
        for (std::size_t r = 0; r != 4; ++r) {
            CAPTURE(thrown[r]);
            CHECK(holds(thrown[r], errors::concat("waited 200 ms in exchange for rank ", named, " (waiting, too).")));
            CHECK(holds(thrown[r],
                        "(This is that rank, and it waits itself, in exchange. Where it came late, see what "
                        "kept it; where the others are in another call, make all ranks call the same things in the "
                        "same order.)") == (r == named));
        }
    }

    TEST_CASE("of those that have not come one is named that does not wait itself, in whichever communicator") {
        static thread_local bool is_second = false;
        static std::atomic<bool> second_waits = false;
        std::atomic<int> gave_up = 0;
        ThreadOptions options;
        options.deadline = 500ms;
        options.interrupted = [] {  // asked by who waits
            if (is_second) second_waits = true;
            return false;
        };
        auto const thrown = what_ranks_threw(4, options, [&](ThreadCommunicator& comm) {
            ThreadCommunicator line = comm.split(comm.rank() / 2, 0);
            barrier(comm);
            is_second = comm.rank() == 2;
            if (comm.rank() == 3) {
                while (gave_up != 3) std::this_thread::sleep_for(1ms);
                return;
            }
            while (comm.rank() < 2 && !second_waits) std::this_thread::sleep_for(1ms);
            try {
                barrier(comm.rank() == 2 ? line : comm);
            } catch (...) {
                ++gave_up;
                throw;
            }
        });
        for (std::size_t r : {0U, 1U, 2U}) {
            CAPTURE(thrown[r]);
            CHECK(holds(thrown[r], "waited 500 ms in agree for rank 3. Fix"));
        }
    }

    TEST_CASE("a copy may take longer than the deadline; who is late beside it is found all the same") {
        float const sent = 3;
        double got = 0;
        transport::Conversion const as_it_is{DType::f32, DType::f32, 1.0, transport::convert};
        transport::Conversion slow{DType::f64, DType::f32, 1.0, transport::convert};
        slow.convert = [](auto... how) noexcept {
            std::this_thread::sleep_for(1200ms);
            transport::convert(how...);
        };
        transport::Send const send{1, reinterpret_cast<std::byte const*>(&sent), box_of(4, {}), as_it_is};
        transport::Receive const receive{0, reinterpret_cast<std::byte*>(&got), box_of(8, {}), slow};
        for (bool everybody_comes : {true, false}) {
            CAPTURE(everybody_comes);
            got = 0;
            std::atomic<bool> gave_up = false;
            auto const thrown = what_ranks_threw(3, {.deadline = 500ms}, [&](ThreadCommunicator& comm) {
                auto request =
                    comm.exchange({&send, comm.rank() == 0 ? 1U : 0U}, {&receive, comm.rank() == 1 ? 1U : 0U});
                while (comm.rank() == 2 && !everybody_comes && !gave_up) std::this_thread::sleep_for(1ms);
                try {
                    request.wait();
                } catch (...) {
                    gave_up = true;
                    throw;
                }
            });
            CHECK(got == 3.0);
            for (std::size_t r : {0U, 1U}) {
                CAPTURE(thrown[r]);
                CHECK(holds(thrown[r], "waited 500 ms in exchange for rank 2. Fix") == !everybody_comes);
                CHECK(thrown[r].empty() == everybody_comes);
            }
        }
    }

    TEST_CASE("a rank whose program says so leaves its wait, and the others are told") {
        static thread_local bool enough = false;
        for (Wait how : all_waits) {
            CAPTURE(static_cast<int>(how));
            std::atomic<int> gave_up = 0;
            ThreadOptions options;
            options.deadline = 1h;
            options.interrupted = [] { return enough; };
            auto const thrown = what_ranks_threw(3, options, [&](ThreadCommunicator& comm) {
                ThreadCommunicator child = comm.split(0, 0);
                if (comm.rank() == 0) {
                    while (gave_up != 2) std::this_thread::sleep_for(1ms);
                    return barrier(comm);
                }
                enough = comm.rank() == 1;
                try {
                    wait_for_others(comm, child, how);
                } catch (...) {
                    ++gave_up;
                    throw;
                }
            });
            CHECK(holds(thrown[1], "reshard::ThreadCommunicator: interrupted() of its options has ended a wait in "));
            CHECK(holds(thrown[1], ". Fix: to go on, let all ranks make a new communicator."));
            CHECK(holds(thrown[1], thrown[3]));  // what run_on_threads() throws
            for (std::size_t r : {0U, 2U}) {
                CHECK(begins(thrown[r], "PeerFailed"));
                CHECK(holds(thrown[r], "rank 1 failed: reshard::ThreadCommunicator: interrupted() "));
            }
        }
    }

    TEST_CASE("a child that a rank forks is told that it is no rank, and its parent goes on") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            auto request = comm.exchange({}, {});
            if (comm.rank() == 1) {
                pid_t const child = ::fork();
                if (child == 0) {
                    bool const refused = test::refuses([&] { request.wait(); }) && test::refuses_a_child(comm);
                    comm.abort(ErrorCode::user, "nobody hears this");
                    ::_exit(refused ? 0 : 1);
                }
                int status = -1;
                ::waitpid(child, &status, 0);
                CHECK(status == 0);
            }
            request.wait();
            barrier(comm);
        });
    }

    TEST_CASE(
        "a child that a rank forks ends where it leaves the rank's part: by what it throws, with a status and a word") {
        for (bool throws : {false, true}) {
            CAPTURE(throws);
            int ends[2] = {};
            REQUIRE(::pipe(ends) == 0);
            pid_t child = -1;
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                if (comm.rank() != 1) return;
                std::fflush(nullptr);  // else the child says it again
                child = ::fork();
                if (child != 0) return;
                ::dup2(ends[1], STDERR_FILENO);
                if (throws) barrier(comm);
            });
            ::close(ends[1]);
            int status = -1;
            ::waitpid(child, &status, 0);
            CHECK(status == (throws ? 1 << 8 : 0));
            char said[200] = {};
            CHECK((::read(ends[0], said, sizeof(said) - 1) > 0) == throws);
            CHECK(begins(said, "reshard: rank 1: reshard::ThreadCommunicator: ") == throws);
            ::close(ends[0]);
        }
    }

    TEST_CASE("a request's destructor gives up at the deadline and does not throw") {
        ThreadOptions options;
        options.deadline = 40ms;
        std::atomic<bool> given_up = false;
        run_on_threads(2, options, [&](ThreadCommunicator& comm) {
            if (comm.rank() == 0) {
                { auto request = comm.exchange({}, {}); }
                given_up = true;
                CHECK_THROWS_AS(barrier(comm), PeerFailed);  // poisoned from then on
            } else {
                while (!given_up) std::this_thread::sleep_for(1ms);
            }
        });
    }

    TEST_CASE("a request of a poisoned communicator does not wait in its destructor") {
        // Rank 1 never comes to the exchange, and stays until rank 0 is out of it. With this deadline a destructor that
        // waits outlasts the time limit of the test.
        ThreadOptions options;
        options.deadline = 1h;
        std::atomic<bool> started = false;  // a poisoned communicator starts nothing
        std::atomic<bool> aborted = false;
        std::atomic<bool> out = false;
        run_on_threads(2, options, [&](ThreadCommunicator& comm) {
            if (comm.rank() == 0) {
                {
                    std::byte byte{};
                    transport::Send const send{1, &byte, box_of(1, {})};
                    auto request = comm.exchange({&send, 1}, {});
                    started = true;
                    while (!aborted) std::this_thread::yield();
                }
                out = true;
                CHECK_THROWS_AS(barrier(comm), PeerFailed);
            } else {
                while (!started) std::this_thread::yield();
                comm.abort(ErrorCode::user, "enough");
                aborted = true;
                while (!out) std::this_thread::yield();
            }
        });
    }

    TEST_CASE("payloads of different size are a mismatch on both ranks and PeerFailed on the others") {
        for (test::Mismatch const& one : test::mismatches) {
            for (bool by_test : {false, true}) {
                CAPTURE(one.story);
                CAPTURE(by_test);
                std::vector<std::byte> untouched(64, std::byte{0x77});
                auto const thrown = what_ranks_threw(4, {}, [&](ThreadCommunicator& comm) {
                    test::exchange_mismatched(comm, one, by_test, untouched.data());
                });
                REQUIRE(thrown.size() == 5);
                for (std::size_t r = 0; r != 4; ++r) {
                    CAPTURE(thrown[r]);
                    CHECK(begins(thrown[r], r % 2 == 1 ? "MismatchError" : "PeerFailed"));
                    CHECK(holds(thrown[r], one.story));
                }
                CHECK(untouched == std::vector<std::byte>(64, std::byte{0x77}));
                CHECK(holds(thrown[4], one.story));
            }
        }
    }

    TEST_CASE("different calls at the same time are a mismatch for everybody, not a hang") {
        auto const thrown = what_ranks_threw(3, {}, [](ThreadCommunicator& comm) {
            if (comm.rank() == 1)
                barrier(comm);
            else
                comm.exchange({}, {}).wait();
        });
        for (std::size_t r = 0; r != 3; ++r) {
            CAPTURE(thrown[r]);
            CHECK(begins(thrown[r], "MismatchError"));
            CHECK(holds(thrown[r], "agree"));
            CHECK(holds(thrown[r], "exchange"));
        }
    }

    TEST_CASE("abort in a split child poisons the whole family, wherever the others wait") {
        auto const thrown = what_ranks_threw(5, {}, [](ThreadCommunicator& comm) {
            ThreadCommunicator child = comm.split(comm.rank() % 2, 0);
            ThreadCommunicator grandchild = child.split(0, 0);
            if (comm.rank() == 4) {
                grandchild.abort(ErrorCode::format, "bad header");
                comm.exchange({}, {}).wait();  // its own later calls end as well
            } else if (comm.rank() == 0) {
                barrier(grandchild);
            } else if (comm.rank() == 1) {
                barrier(child);
            } else {
                barrier(comm);
            }
        });
        for (std::size_t r = 0; r != 5; ++r) {
            CAPTURE(thrown[r]);
            CHECK(begins(thrown[r], "PeerFailed"));
            CHECK(holds(thrown[r], "rank 4 failed: bad header"));
        }
    }

    TEST_CASE("a poisoned communicator refuses every later call") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            ThreadCommunicator child = comm.split(0, 0);
            if (comm.rank() == 0) child.abort(ErrorCode::user, "enough");
            CHECK_THROWS_AS(barrier(comm), PeerFailed);
            CHECK_THROWS_AS(barrier(comm), PeerFailed);
            CHECK_THROWS_AS(comm.exchange({}, {}).wait(), PeerFailed);
            CHECK_THROWS_AS(static_cast<void>(comm.split(0, 0)), PeerFailed);
            CHECK_THROWS_AS(barrier(child), PeerFailed);
        });
    }

    TEST_CASE("nobody frees memory that a peer still reads, whoever fails when") {
        // Under AddressSanitizer and ThreadSanitizer a violation is an error; without them this only must not hang.
        auto const seed = 17U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (int trial = 0; trial != 60; ++trial) {
            CAPTURE(trial);
            int const culprit = static_cast<int>(rng() % 4U);
            auto const pause = std::chrono::microseconds(rng() % 400U);
            CHECK_THROWS(run_on_threads(4, [&](ThreadCommunicator& comm) {
                test::exchange_until_spoilt(comm, culprit, Index{1} << 18, [&](auto&) {
                    std::this_thread::sleep_for(pause);
                    comm.abort(ErrorCode::user, "now");
                });
            }));
        }
    }

    TEST_CASE("an exchange that is under way is not started again; one out of order is refused") {
        CHECK_THROWS_WITH_AS(run_on_threads(2,
                                            [](ThreadCommunicator& comm) {
                                                auto exchange = comm.exchange({}, {});
                                                exchange.start();
                                            }),
                             doctest::Contains("under way"), TransportError);
        CHECK_THROWS_WITH_AS(
            run_on_threads(2,
                           [](ThreadCommunicator& comm) {
                               std::byte byte{};
                               transport::Send const sends[2] = {{1, &byte, box_of(1, {})}, {0, &byte, box_of(1, {})}};
                               comm.exchange(sends, {}).wait();
                           }),
            doctest::Contains("sort transfers by peer"), TransportError);
    }

    TEST_CASE("a communicator may be moved while its exchange is under way") {
        run_on_threads(3, [](ThreadCommunicator& comm) {
            ThreadCommunicator child = comm.split(0, 0);
            auto request = child.exchange({}, {});
            ThreadCommunicator moved = std::move(child);
            request.wait();
            sends_one_value_to_each_peer(moved);
        });
    }
}
