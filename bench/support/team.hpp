// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/team.hpp
/// \brief  One clock for several threads, and a way to let Google Benchmark drive them.
#pragma once

#include "paired.hpp"

#include <benchmark/benchmark.h>

#include <barrier>     // barrier
#include <functional>  // function

namespace reshard::bench {

/// Times what all threads of a team do together, from the moment the last one is ready to the moment the last one is
/// done. Both moments are taken inside the barrier, so the figure holds with more threads than cores.
class TeamClock {
public:
    explicit TeamClock(int threads) : gate_(threads, Stamp{&at_}) {}

    /// Called by every thread of the team; every one gets the same number of seconds.
    template <class Task>
    [[nodiscard]] double operator()(Task&& task) {
        gate_.arrive_and_wait();
        double const begin = at_;
        task();
        gate_.arrive_and_wait();
        return at_ - begin;
    }
    /// The same for one of `calls` tasks in a row.
    template <class Task>
    [[nodiscard]] double operator()(int calls, Task&& task) {
        double const seconds = (*this)([&] {
            for (int i = 0; i < calls; ++i) task();
        });
        return seconds / calls;
    }

private:
    struct Stamp {
        double* at;
        void operator()() const noexcept { *at = now_seconds(); }
    };

    double at_ = 0;
    std::barrier<Stamp> gate_;
};

/// Google Benchmark's loop for a team: every thread calls it with its own task; thread 0 talks to `state`. Batches
/// grow until they are long enough for the clock. Register with UseManualTime().
class TeamLoop {
public:
    TeamLoop(benchmark::State& state, int threads) : state_(state), clock_(threads), gate_(threads) {}

    template <class Task>
    void run(int thread, Task&& task) {
        double const once = clock_(task);  // also warms up
        int const calls = once > 1e-3 ? 1 : static_cast<int>(1e-3 / once) + 1;
        for (;;) {
            if (thread == 0) more_ = state_.KeepRunningBatch(calls);
            gate_.arrive_and_wait();
            if (!more_) return;
            double const seconds = clock_(calls, task);
            if (thread == 0) state_.SetIterationTime(seconds * calls);
        }
    }

private:
    benchmark::State& state_;
    TeamClock clock_;
    std::barrier<> gate_;
    bool more_ = true;
};

}  // namespace reshard::bench
