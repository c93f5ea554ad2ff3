// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/progress_thread.hpp: what moves while nobody waits, in which order, and how it fails.
#include <reshard/exec/progress_thread.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "support/allocations.hpp"
#include "support/thrown.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {
using namespace reshard;
using test::thrown_by;
using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<BackgroundRequest> && !std::is_copy_assignable_v<BackgroundRequest>);
static_assert(!std::is_move_constructible_v<ProgressThread>);

/// A plan over two ranks or more, prepared on integers of this rank.
struct Move {
    std::vector<int> source;
    std::vector<int> destination;
    PreparedPlan job;

    Move(ThreadCommunicator& comm, std::string const& from, std::string const& to, DynamicShape const& shape)
        : Move(comm, plan(parse(from, shape), parse(to, shape))) {}
    Move(ThreadCommunicator& comm, Plan<> const& plan)
        : source(elements(plan.from(), comm)),
          destination(elements(plan.to(), comm)),
          job(prepare(plan, comm, TensorView<int>(source.data(), plan.from().local_shape(comm.rank())),
                      TensorView<int>(destination.data(), plan.to().local_shape(comm.rank())))) {}

private:
    static std::size_t elements(DynamicDistribution const& side, ThreadCommunicator const& comm) {
        return static_cast<std::size_t>(side.local_shape(comm.rank()).size());
    }
};

void wait_for(BackgroundRequest const& run) {
    while (!run.test()) std::this_thread::sleep_for(1ms);
}
}  // namespace

TEST_SUITE("progress_thread") {
    TEST_CASE("a run ends without anybody waiting for it, all its phases") {
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            Move sum(comm, "(3):(P+)", "(3):(R)", Shape{7});  // an exchange, a fold and an exchange
            std::iota(sum.source.begin(), sum.source.end(), comm.rank());
            ProgressThread progress;
            BackgroundRequest run = progress.start(sum.job);
            wait_for(run);
            for (int i = 0; i < 7; ++i) CHECK(sum.destination[static_cast<std::size_t>(i)] == 3 * i + 3);
            run.wait();
            run.wait();  // waiting twice is waiting once
            CHECK(run.test());
        });
    }

    TEST_CASE("runs follow each other in the order of their starts, and may be waited for in any") {
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            Move gather(comm, "(4):(S0)", "(4):(R)", Shape{8});
            Move sum(comm, "(4):(P+)", "(4):(S0)", Shape{8});
            // What the second writes is what the third reads.
            Plan<> const back = plan(parse("(4):(S0)", Shape{8}), parse("(4):(R)", Shape{8}));
            std::vector<int> sums(8);
            auto third = prepare(back, comm, TensorView<int>(sum.destination.data(), Shape{2}),
                                 TensorView<int>(sums.data(), Shape{8}));
            ProgressThread progress;
            for (int round = 0; round < 20; ++round) {
                std::iota(gather.source.begin(), gather.source.end(), 10 * round + 2 * comm.rank());
                std::fill(sum.source.begin(), sum.source.end(), round + comm.rank());
                BackgroundRequest first = progress.start(gather.job);
                BackgroundRequest second = progress.start(sum.job);
                BackgroundRequest last = progress.start(third);
                if (comm.rank() % 2 == 0) {
                    last.wait();
                    CHECK(first.test());
                    CHECK(second.test());
                } else {
                    first.wait();
                    second.wait();
                    last.wait();
                }
                CHECK(sums == std::vector<int>(8, 4 * round + 6));
                for (int i = 0; i < 8; ++i) CHECK(gather.destination[static_cast<std::size_t>(i)] == 10 * round + i);
            }
        });
    }

    TEST_CASE("the same plan may be started again before it is over: it runs twice") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            Move gather(comm, "(2):(S0)", "(2):(R)", Shape{4});
            std::fill(gather.source.begin(), gather.source.end(), comm.rank() + 1);
            ProgressThread progress;
            BackgroundRequest first = progress.start(gather.job);
            BackgroundRequest second = progress.start(gather.job);
            second.wait();
            first.wait();
            CHECK(gather.destination == std::vector<int>{1, 1, 2, 2});
            gather.job.run();  // the rank has its communicator again
            CHECK(gather.destination == std::vector<int>{1, 1, 2, 2});
        });
    }

    TEST_CASE("destructors wait: of a run, which may have moved, and of the thread") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            Move sum(comm, "(2):(P+)", "(2):(R)", Shape{4});
            std::fill(sum.source.begin(), sum.source.end(), comm.rank() + 1);
            {
                ProgressThread progress;
                std::optional<BackgroundRequest> run = progress.start(sum.job);
                BackgroundRequest moved = std::move(*run);
                run.reset();
            }
            CHECK(sum.destination == std::vector<int>(4, 3));
        });
    }

    TEST_CASE("a request that is given another run waits for its own first") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            Move sum(comm, "(2):(P+)", "(2):(R)", Shape{4});
            Move gather(comm, "(2):(S0)", "(2):(R)", Shape{4});
            std::fill(sum.source.begin(), sum.source.end(), comm.rank() + 1);
            std::fill(gather.source.begin(), gather.source.end(), comm.rank() + 1);
            ProgressThread progress;
            BackgroundRequest run;
            CHECK(run.test());
            run.wait();
            run = progress.start(sum.job);
            run = progress.start(gather.job);
            CHECK(sum.destination == std::vector<int>(4, 3));
            run.wait();
            CHECK(gather.destination == std::vector<int>{1, 1, 2, 2});
        });
    }

    TEST_CASE("starting and waiting allocate nothing once there is room") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            Move sum(comm, "(2):(P+)", "(2):(R)", Shape{64});
            ProgressThread progress;
            progress.start(sum.job).wait();
            CHECK(test::allocations_in([&] { progress.start(sum.job).wait(); }) == 0);
        });
    }

    TEST_CASE("what was prepared may move, or go, before the run that it was started for") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            ProgressThread progress;
            Plan<> const whole = plan(parse("(2):(P+)", Shape{4}), parse("(2):(R)", Shape{4}));
            std::vector<int> addends(4, comm.rank() + 1);
            std::vector<int> sums[2] = {std::vector<int>(4), std::vector<int>(4)};
            auto const prepare_for = [&](std::vector<int>& sum) {
                return prepare(whole, comm, TensorView<int>(addends.data(), Shape{4}),
                               TensorView<int>(sum.data(), Shape{4}));
            };
            std::vector<PreparedPlan> jobs;
            jobs.push_back(prepare_for(sums[0]));
            jobs.push_back(prepare_for(sums[1]));
            if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other waits for it
            BackgroundRequest first = progress.start(jobs[0]);
            BackgroundRequest second = progress.start(jobs[1]);
            std::vector<PreparedPlan> elsewhere = std::move(jobs);
            elsewhere.clear();
            second.wait();
            first.wait();
            for (auto const& sum : sums) CHECK(sum == std::vector<int>(4, 3));
        });
    }

    TEST_CASE("a forked child has no such thread, and waits for nothing") {
        SelfCommunicator comm;
        std::vector<int> source(4, 7);
        std::vector<int> destination(4);
        Plan<> const same = plan(parse("(1):(S0)", Shape{4}), parse("(1):(R)", Shape{4}));
        auto job = prepare(same, comm, TensorView<int>(source.data(), Shape{4}),
                           TensorView<int>(destination.data(), Shape{4}));
        std::optional<ProgressThread> progress(std::in_place);
        std::optional<BackgroundRequest> run = progress->start(job);
        wait_for(*run);
        pid_t const child = ::fork();
        if (child == 0) {
            ::alarm(60);  // who waits is ended by a signal
            bool refused = false;
            try {
                static_cast<void>(progress->start(job));
            } catch (TransportError const&) {
                refused = run->test();
            }
            run.reset();
            progress.reset();
            ::_exit(refused ? 0 : 1);
        }
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        run->wait();
        CHECK(destination == source);
    }

    TEST_CASE("where there is no thread to be had, that is said") {
        auto const make = [](int granted) {
            test::AllocationCounter& counter = test::allocation_counter();
            counter.granted = granted;
            counter.once = true;  // what std::thread allocates: it fails as where the system gives none
            counter.refused_from = 0;
            ProgressThread const progress;
        };
        for (int granted : {0, 1}) {
            CHECK_THROWS_WITH_AS(make(granted),
                                 doctest::Contains("reshard::ProgressThread: the system gives no thread"), OutOfMemory);
        }
        test::allocation_counter().refused_from = SIZE_MAX;
    }

    TEST_CASE("what fails is thrown by wait(), by that of every run behind it, and by no destructor") {
        auto const thrown = thrown_by(2, [&](ThreadCommunicator& comm) {
            Move gather(comm, "(2):(S0)", "(2):(R)", Shape{4});
            Move sum(comm, "(2):(P+)", "(2):(R)", Shape{4});
            if (comm.rank() == 1) {
                comm.abort(ErrorCode::user, "no more");
                return;
            }
            ProgressThread progress;
            BackgroundRequest first = progress.start(gather.job);
            BackgroundRequest second = progress.start(sum.job);
            { BackgroundRequest const dropped = progress.start(gather.job); }
            wait_for(second);
            CHECK_THROWS_WITH_AS(second.wait(), doctest::Contains("no more"), PeerFailed);
            second.wait();  // its error has been heard
            first.wait();
        });
        CHECK(thrown[0].code == ErrorCode::peer_failed);
        CHECK(thrown[0].message.find("no more") != std::string::npos);
    }
}
