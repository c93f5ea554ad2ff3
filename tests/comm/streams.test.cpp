// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/streams.hpp. Ranks are threads here, each with its ends of socket pairs;
// tests/consumer/runtime has the same as processes.
#include <reshard/comm/streams.hpp>

#include <doctest/doctest.h>

#include "alike.hpp"
#include "consumer/runtime/pipes.hpp"
#include "forked.hpp"
#include "policies.hpp"
#include "support/allocations.hpp"

#include <reshard/comm/agree.hpp>

#include <sys/wait.h>  // waitpid
#include <unistd.h>    // _exit, fork

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reshard;

namespace {
static_assert(Communicator<StreamCommunicator>);

struct Thrown {
    ErrorCode code = ErrorCode::none;
    std::string message;
    [[nodiscard]] bool says(std::string const& part) const { return message.find(part) != std::string::npos; }
};

/// Rank 2 dies while it tells the others of its failure: rank 1 is never told by it.
class TellsInPart final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        if (rank() == 2 && peer == 1 && channel == Channel::control) return closed;
        return Pipes::write_some(peer, channel, bytes);
    }
};

/// A read of data throws, once, on rank 0.
class ThrowsOnce final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    static inline std::atomic<bool> from_now;
    Index read_some(int peer, Channel channel, std::span<std::byte> bytes) override {
        if (rank() == 0 && channel == Channel::data && from_now.exchange(false)) {
            throw std::runtime_error("the link broke, once");
        }
        return Pipes::read_some(peer, channel, bytes);
    }
};

/// At most 100 bytes at a time are taken for the control channel, and none every other time.
class TakesLittle final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    bool none = false;
    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        bool const few = channel == Channel::control && bytes.size() > 100;
        if (channel == Channel::control && (none = !none)) return 0;
        return Pipes::write_some(peer, channel, few ? bytes.first(100) : bytes);
    }
};

/// Queues of their own for the control channel: they take `room` bytes each, whether or not somebody reads.
template <Index room>
class TakesOnce final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    ~TakesOnce() override { ++ended; }
    static inline std::atomic<int> ended;
    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        if (channel == Channel::data) return Pipes::write_some(peer, channel, bytes);
        Index& left = left_[static_cast<std::size_t>(peer)];
        Index const n = Pipes::write_some(peer, channel, bytes.first(std::min(bytes.size(), std::size_t(left))));
        if (n > 0) left -= n;
        return n;
    }

private:
    std::vector<Index> left_ = std::vector<Index>(8, room);
};

/// Rank 0 gets what rank 1 sends but for the last byte of its first message, which comes along with the second.
class HeldBack final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    static inline std::atomic<bool> from_now;
    static inline std::atomic<Index> messages, first_bytes, taken;
    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        Index const n = Pipes::write_some(peer, channel, bytes);
        if (from_now && rank() == 1 && channel == Channel::data && n > 0 && messages++ == 0) first_bytes = n;
        return n;
    }
    Index read_some(int peer, Channel channel, std::span<std::byte> bytes) override {
        if (!from_now || rank() != 0 || channel != Channel::data) return Pipes::read_some(peer, channel, bytes);
        Index const most = messages < 2 ? std::max<Index>(first_bytes - 1 - taken, 0) : INT64_MAX;
        if (most == 0) return 0;
        auto const few = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(most)));
        Index const n = Pipes::read_some(peer, channel, few);
        if (n > 0) taken += n;
        return n;
    }
};

/// Of the last part of an agreement, rank 2 gets what rank 1 sends when rank 0 has left it and failed.
class LateVerdict final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    static constexpr std::string_view call = "agree_on_errors";
    static constexpr std::string_view text = "the buffer is wrong. Fix: another.";
    static inline std::atomic<bool> failed;
    Index got = 0;
    Index read_some(int peer, Channel channel, std::span<std::byte> bytes) override {
        bool const watched = rank() == 2 && peer == 1 && channel == Channel::data;
        Index const letters = detail::ceil_div(std::ssize(call) + std::ssize(text), 8);
        Index const three_parts = 3 * Index{sizeof(detail::StreamHead) + 8} + (5 + 4 + letters) * 8;
        if (watched && got >= three_parts && !failed) return 0;
        Index const n = Pipes::read_some(peer, channel, bytes);
        if (watched && n > 0) got += n;
        return n;
    }
};

/// What body(comm) threw on each rank. A rank that returns closes its streams.
template <class Streams = runtime::Pipes, class Body>
std::vector<Thrown> run(int ranks, std::chrono::milliseconds deadline, Body const& body,
                        bool (*interrupted)() = nullptr) {
    auto const ends = runtime::socket_pairs(ranks);
    REQUIRE(!ends.empty());
    std::vector<Thrown> thrown(ends.size());
    std::vector<std::thread> threads;
    for (int r = 0; r != ranks; ++r) {
        threads.emplace_back([&, r] {
            auto const i = static_cast<std::size_t>(r);
            try {
                StreamCommunicator comm(std::make_unique<Streams>(r, ends[i]), deadline, interrupted);
                body(comm);
            } catch (Error const& error) {
                thrown[i] = {error.code(), std::string(error.message())};
            }
        });
    }
    for (auto& thread : threads) thread.join();
    return thrown;
}
void check_none(std::vector<Thrown> const& thrown) {
    for (Thrown const& one : thrown) CHECK(one.message == "");
}
constexpr std::chrono::seconds patient{20};
}  // namespace

TEST_SUITE("comm/streams") {
    TEST_CASE("keeps the promises of a communicator") {
        for (int ranks : {1, 2, 3}) {
            CAPTURE(ranks);
            check_none(run(ranks, patient, [](StreamCommunicator& comm) {
                test::conforms(comm);
                test::refuses_a_second_start(comm);
                test::moves_at_random(comm, 5, 20);
            }));
        }
        for (auto const& one : test::different_payloads)
            check_none(run(3, patient, [&](StreamCommunicator& comm) { test::notices_different_payloads(comm, one); }));
        for (bool again : {false, true})
            check_none(run(3, patient, [&](StreamCommunicator& comm) { test::notices_another_order(comm, again); }));
    }

    TEST_CASE("a rank that leaves fails those that wait for it, and they fail the others") {
        auto const thrown = run(3, patient, [](StreamCommunicator& comm) {
            static_cast<void>(comm.agree({}));
            if (comm.rank() != 1) static_cast<void>(comm.agree({}));
        });
        CHECK(thrown[1].code == ErrorCode::none);
        for (std::size_t r : {std::size_t{0}, std::size_t{2}}) {
            CHECK(thrown[r].code == ErrorCode::peer_failed);
            CHECK(thrown[r].says("rank 1 has ended and closed its streams"));
            CHECK_FALSE(thrown[r].says("where the transport is new"));
            CHECK_FALSE(thrown[r].says("rank 0 failed"));  // who noticed is not who failed
            CHECK_FALSE(thrown[r].says("rank 2 failed"));
            CHECK(thrown[r].says("in agree(). Fix: "));
        }
    }

    TEST_CASE(
        "who has never sent anything and closes its streams is not taken for a fault of the transport at length") {
        auto const thrown = run(2, patient, [](StreamCommunicator& comm) {
            if (comm.rank() == 0) static_cast<void>(comm.agree({}));
        });
        CHECK(thrown[0].says("Fix: see why it ended. Where the transport is new, see also that its rank() is right."));
        CHECK_FALSE(thrown[0].says("write_some()"));
    }

    TEST_CASE("a failure reaches also those whom the failing rank did not live to tell") {
        auto const& one = test::different_payloads.front();
        std::atomic<int> over{0};
        check_none(run<TellsInPart>(3, patient, [&](StreamCommunicator& comm) {
            test::notices_different_payloads(comm, one);
            if (comm.rank() != 2) ++over;
            while (comm.rank() == 2 && over != 2) std::this_thread::yield();
        }));
    }

    TEST_CASE("a rank that never comes is late, by name, and late for all") {
        auto const thrown = run(3, std::chrono::milliseconds(400), [](StreamCommunicator& comm) {
            if (comm.rank() != 2) return static_cast<void>(comm.split(0, 0));
            std::this_thread::sleep_for(std::chrono::milliseconds(900));
            static_cast<void>(comm.split(0, 0));
        });
        for (std::size_t r : {0U, 1U}) CHECK(thrown[r].code == ErrorCode::deadline);
        for (Thrown const& one : thrown) {
            CHECK(one.says("rank 2 is late"));
            CHECK_FALSE(one.says("rank 0 failed"));
            CHECK_FALSE(one.says("rank 1 failed"));
        }
        CHECK(thrown[2].code == ErrorCode::peer_failed);
    }

    TEST_CASE("a rank that others have waited for in vain while it waits in another part is told where it waits") {
        auto const thrown = run(3, std::chrono::milliseconds(1000), [](StreamCommunicator& comm) {
            StreamCommunicator part = comm.split(0, comm.rank());
            if (comm.rank() != 2) return static_cast<void>(comm.agree({}));
            auto elsewhere = part.bind({}, {});
            elsewhere.start();
            while (!elsewhere.test()) std::this_thread::yield();  // which knows no deadline
        });
        for (Thrown const& one : thrown) CHECK(one.says("rank 2 is late"));
        for (std::size_t r : {0U, 1U}) CHECK_FALSE(thrown[r].says("This is that rank"));
        CHECK(thrown[2].code == ErrorCode::peer_failed);
        CHECK(thrown[2].says("(This is that rank, and it waits itself, in an exchange for rank "));
        CHECK(
            thrown[2].says(". Where it came late, see what kept it; where the others are in another call, make all "
                           "ranks call the same things in the same "));
    }

    TEST_CASE("an agreement has one outcome: who hears it last does not hear of what failed since") {
        LateVerdict::failed = false;
        auto const thrown = run<LateVerdict>(3, patient, [](StreamCommunicator& comm) {
            try {
                agree_on_errors(comm, [&] {
                    if (comm.rank() == 0) errors::raise(ErrorCode::buffer, std::string(LateVerdict::text));
                });
            } catch (Error const& error) {
                if (comm.rank() == 0) comm.abort(error.code(), "rank 0 ends");
                if (comm.rank() == 0) LateVerdict::failed = true;
                throw;
            }
        });
        for (Thrown const& one : thrown) {
            CHECK(one.code == ErrorCode::buffer);
            CHECK(one.message == thrown[0].message);
        }
    }

    TEST_CASE("ranks that are alone share no errors: what one did is PeerFailed on the other") {
        auto const thrown = run(2, patient, [](StreamCommunicator& comm) {
            StreamCommunicator alone = comm.split(-1, 0);
            std::byte const byte{};
            transport::Send const send{0, &byte, test::box_of(1, {{1, 1}})};
            if (comm.rank() == 0) return alone.exchange({&send, 1}, {}).wait();
            while (true) alone.exchange({}, {}).wait();
        });
        CHECK(thrown[0].code == ErrorCode::mismatch);
        CHECK(thrown[1].code == ErrorCode::peer_failed);
        for (Thrown const& one : thrown) CHECK(one.says("rank 0 sends 1 bytes, rank 0 expects nothing"));
    }

    TEST_CASE("a rank without memory to split tells the others, wherever in split() that is") {
        int failures = 0;
        bool refused = true;
        for (int granted = 0; refused; ++granted) {
            CAPTURE(granted);
            bool failed = false;  // sorting gets by without what it is refused
            auto const thrown = run(3, patient, [&](StreamCommunicator& comm) {
                test::AllocationCounter& counter = test::allocation_counter();
                counter.granted = granted;
                counter.once = true;
                counter.refused = 0;
                counter.refused_from = comm.rank() == 1 ? 0 : SIZE_MAX;
                try {
                    StreamCommunicator child = comm.split(0, 0);
                    counter.refused_from = SIZE_MAX;
                    static_cast<void>(child.agree({}));
                } catch (OutOfMemory const&) {
                    failed = true;
                }
                counter.refused_from = SIZE_MAX;
                if (comm.rank() == 1) refused = counter.refused != 0;
            });
            failures += failed ? 1 : 0;
            CHECK(thrown[1].code == ErrorCode::none);
            for (std::size_t r : {0U, 2U}) {
                CHECK(thrown[r].code == (failed ? ErrorCode::peer_failed : ErrorCode::none));
                if (failed) CHECK(thrown[r].says("rank 1 failed: "));
            }
        }
        CHECK(failures > 3);
    }

    TEST_CASE("ranks in different calls are told which") {
        auto const thrown = run(2, patient, [](StreamCommunicator& comm) {
            if (comm.rank() == 0) static_cast<void>(comm.agree({}));
            if (comm.rank() == 1) comm.exchange({}, {}).wait();
            static_cast<void>(comm.agree({}));
        });
        for (Thrown const& one : thrown) {
            CHECK(one.code == ErrorCode::mismatch);
            CHECK(one.says("agree()"));
            CHECK(one.says("an exchange"));
            CHECK(one.says("Fix: make all ranks call the same things"));
        }
    }

    TEST_CASE("groups of the same ranks may be used in different orders") {
        check_none(run(3, patient, [](StreamCommunicator& comm) {
            StreamCommunicator a = comm.split(0, 0);
            StreamCommunicator b = comm.split(0, 0);
            std::vector<std::byte> const mine(1 << 20, std::byte{static_cast<unsigned char>(comm.rank())});
            std::vector<std::byte> got_a(3 << 20);
            std::vector<std::byte> got_b(3 << 20);
            std::vector<transport::Send> sends;
            std::vector<transport::Receive> to_a;
            std::vector<transport::Receive> to_b;
            for (int r = 0; r != 3; ++r) {
                transport::StridedBox const box = test::box_of(1, {{1 << 20, 1}});
                sends.push_back({r, mine.data(), box});
                to_a.push_back({r, got_a.data() + (r << 20), box});
                to_b.push_back({r, got_b.data() + (r << 20), box});
            }
            for (int round = 0; round != 3; ++round) {
                if (comm.rank() == round) {
                    auto second = b.exchange(sends, to_b);
                    second.wait();
                    a.exchange(sends, to_a).wait();
                } else {
                    auto first = a.exchange(sends, to_a);
                    b.exchange(sends, to_b).wait();
                    first.wait();
                }
            }
            CHECK(got_a == got_b);
            for (int r = 0; r != 3; ++r) CHECK(static_cast<int>(got_a[static_cast<std::size_t>((r << 20) + 5)]) == r);
        }));
    }

    TEST_CASE("a message that came in part before its call keeps its place") {
        check_none(run<HeldBack>(2, patient, [](StreamCommunicator& comm) {
            StreamCommunicator a = comm.split(0, 0);
            StreamCommunicator b = comm.split(0, 0);
            auto const mine = static_cast<std::byte>(comm.rank() + 1);
            std::byte got{};
            transport::Send const send{1 - comm.rank(), &mine, test::box_of(1, {{1, 1}})};
            transport::Receive const receive{1 - comm.rank(), &got, send.box};
            auto other = a.bind({}, {});
            if (comm.rank() == 1) HeldBack::from_now = true;
            if (comm.rank() == 0) {
                while (!HeldBack::from_now) std::this_thread::yield();
                other.start();
                while (HeldBack::first_bytes == 0 || HeldBack::taken + 1 < HeldBack::first_bytes)
                    static_cast<void>(other.test());
            }
            static_cast<void>(b.agree({}));
            b.exchange(std::span(&send, 1), std::span(&receive, 1)).wait();
            if (comm.rank() == 1) other.start();
            other.wait();
            CHECK(static_cast<int>(got) == 2 - comm.rank());
        }));
    }

    TEST_CASE("a read that throws ends the group: what it left is not taken for what comes next") {
        auto const thrown = run<ThrowsOnce>(2, patient, [](StreamCommunicator& comm) {
            int mine = 0;
            int got = -1;
            transport::StridedBox const box{{}, sizeof(int)};
            std::vector<transport::Send> const sends{{1 - comm.rank(), reinterpret_cast<std::byte const*>(&mine), box}};
            std::vector<transport::Receive> const receives{{1 - comm.rank(), reinterpret_cast<std::byte*>(&got), box}};
            auto bound = comm.bind(sends, receives);
            int failed = 0;
            for (int step = 1; step < 5; ++step) {
                mine = step;
                if (step == 2) ThrowsOnce::from_now = true;
                try {
                    bound.start();
                    bound.wait();
                    CHECK(got == step);
                } catch (std::exception const&) {
                    ++failed;
                }
            }
            CHECK(failed >= 2);
            static_cast<void>(comm.agree({}));
        });
        for (Thrown const& one : thrown) CHECK(one.says("the link broke, once"));
    }

    TEST_CASE("what fails is told whole by streams that take a little at a time; no deadline is too long to be one") {
        auto const thrown = run<TakesLittle>(2, std::chrono::milliseconds::max(), [](StreamCommunicator& comm) {
            if (comm.rank() == 0) return comm.abort(ErrorCode::user, "enough. Fix: less.");
            while (true) static_cast<void>(comm.agree({}));
        });
        CHECK(thrown[1].says("rank 0 failed: enough. Fix: less."));
    }

    TEST_CASE("a rank that reads late hears why, from control channels that take control_bytes") {
        auto const late = [](std::atomic<int> const& ended) {
            return [&ended](StreamCommunicator& comm) {
                while (comm.rank() == 2 && ended < 2) std::this_thread::yield();
                static_cast<void>(comm.agree({}));
            };
        };
        constexpr std::chrono::milliseconds soon(300);
        using Enough = TakesOnce<transport::control_bytes>;
        auto const told = run<Enough>(3, soon, late(Enough::ended));
        CHECK(told[2].says("rank 2 is late"));
        using Less = TakesOnce<transport::control_bytes - 1>;
        auto const cut = run<Less>(3, soon, late(Less::ended));
        CHECK(cut[2].code == ErrorCode::peer_failed);
        CHECK_FALSE(cut[2].says("rank 2 is late"));
    }

    TEST_CASE("a deadline that has passed before anything began is refused") {
        for (Thrown const& one :
             run(2, std::chrono::milliseconds(0), [](StreamCommunicator&) { FAIL("it was made"); })) {
            CHECK(one.code == ErrorCode::buffer);
            CHECK(one.says("reshard::StreamCommunicator: deadline is 0 ms. Fix: "));
        }
    }

    TEST_CASE("a rank whose program says so leaves its wait, and the others are told") {
        static thread_local bool enough = false;
        std::atomic<int> gave_up = 0;
        auto const thrown = run(
            3, std::chrono::hours(1),
            [&](StreamCommunicator& comm) {
                enough = comm.rank() == 1;
                while (comm.rank() == 0 && gave_up != 2) std::this_thread::yield();
                auto const leave = [&](ErrorCode, std::string_view) noexcept { ++gave_up; };
                detail::watched([&] { static_cast<void>(comm.agree({})); }, leave);
            },
            [] { return enough; });
        CHECK(thrown[1].code == ErrorCode::user);
        CHECK(thrown[1].says("reshard::streams: interrupted() of its options has ended a wait in agree(). Fix: "));
        for (std::size_t r : {0U, 2U}) {
            CHECK(thrown[r].code == ErrorCode::peer_failed);
            CHECK(thrown[r].says("rank 1 failed: reshard::streams: interrupted() "));
        }
    }

    TEST_CASE("a child that a rank forks is told that it is no rank, and its parent goes on") {
        check_none(run(2, patient, [](StreamCommunicator& comm) {
            static_cast<void>(comm.agree({}));
            if (comm.rank() == 1) {
                pid_t const child = ::fork();
                if (child == 0) {
                    bool const refused = test::refuses_a_child(comm);
                    comm.abort(ErrorCode::user, "nobody hears this");
                    ::_exit(refused ? 0 : 1);
                }
                int status = -1;
                ::waitpid(child, &status, 0);
                CHECK(status == 0);
            }
            static_cast<void>(comm.agree({}));
        }));
    }

    TEST_CASE("abort reaches all that were split from it") {
        auto const thrown = run(3, patient, [](StreamCommunicator& comm) {
            StreamCommunicator part = comm.split(comm.rank() == 0 ? 0 : 1, 0);
            if (comm.rank() == 0) return part.abort(ErrorCode::user, "enough. Fix: less.");
            while (true) static_cast<void>(part.agree({}));
        });
        CHECK(thrown[0].code == ErrorCode::none);
        for (std::size_t r : {std::size_t{1}, std::size_t{2}}) {
            CHECK(thrown[r].code == ErrorCode::peer_failed);
            CHECK(thrown[r].says("rank 0 failed: enough. Fix: less."));
        }
    }
}
