// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/overlap.hpp
/// \brief  How much of a move is hidden behind what its ranks do meanwhile: nothing (a device computes), or a
///         computation of their own that keeps every core busy. Two ranks, 64 MiB each, a progress thread a rank.
#pragma once

#include "goal_lines.hpp"
#include "paired.hpp"

#include <reshard/exec/progress_thread.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <cstdio>
#include <thread>

namespace reshard::bench {

inline constexpr int overlapping_ranks = 2;

/// Seconds.
struct Overlap {
    double move = 0;       ///< run()
    double asleep = 0;     ///< what a rank sleeps that waits for its device: twice as long
    double behind = 0;     ///< start, sleep, wait
    double computing = 0;  ///< on all cores
    double beside = 0;     ///< start, compute, wait
    bool right = false;    ///< what was moved

    [[nodiscard]] double hidden() const noexcept { return right ? 1 - (behind - asleep) / move : 0; }
    [[nodiscard]] double busy() const noexcept { return right ? beside / (move + computing) : 1e9; }
};

/// Called by every rank; `clock(task)` is the seconds of what all do together.
template <class Communicator, class Clock>
[[nodiscard]] Overlap overlap_of(Communicator& comm, Clock& clock) {
    Mesh const mesh{overlapping_ranks};
    Shape const shape{4096, 8192};
    auto const rows = distribution<Shard<0>>(mesh, shape);
    auto const columns = distribution<Shard<1>>(mesh, shape);
    Tensor<float> source(rows.local_shape(comm.rank()));
    Tensor<float> destination(columns.local_shape(comm.rank()));
    std::fill_n(source.data(), source.size(), static_cast<float>(1 + comm.rank()));
    std::fill_n(destination.data(), destination.size(), 0.0F);

    auto job = prepare(plan(rows, columns), comm, source.view(), destination.view());
    ProgressThread progress;
    Overlap result;
    auto const while_moving = [&](auto&& task) {
        return clock([&] {
            BackgroundRequest moving = progress.start(job);
            task();
            moving.wait();
        });
    };
    auto const run = [&] { return clock([&] { job.run(); }); };

    result.asleep = 2 * repeated(run);
    auto const sleep = [&] { std::this_thread::sleep_for(std::chrono::duration<double>(result.asleep)); };
    Paired const idle = paired(run, [&] { return while_moving(sleep); });
    result.move = idle.first;
    result.behind = idle.second;

    // A computation that leaves memory alone and takes as long as the sleep.
    auto const compute = [](Index steps) {
        volatile double const begin = 1;  // the compiler may not do it once for all
        double x = begin;
        for (Index i = 0; i < steps; ++i) x = x * 0.999999 + 1e-6;
        volatile double kept = x;
        static_cast<void>(kept);
    };
    constexpr Index probe = 10'000'000;
    double const each = repeated([&] { return clock([&] { compute(probe); }); }) / probe;
    auto const steps = static_cast<Index>(result.asleep / each);
    Paired const loaded = paired([&] { return clock([&] { compute(steps); }) + run(); },
                                 [&] { return while_moving([&] { compute(steps); }); });
    result.computing = loaded.first - result.move;
    result.beside = loaded.second;

    Index const upper = destination.size() / 2;  // the rows of rank 0
    result.right = true;
    for (Index i = 0; i < destination.size(); ++i) {
        result.right = result.right && destination.data()[i] == (i < upper ? 1.0F : 2.0F);
    }
    return result;
}

inline void print_overlap(Goals& goals, Overlap const& found, char const* name, char const* busy) {
    std::printf("  64 MiB a rank: the move %.1f ms; behind a sleep of %.1f ms %.1f; computing %.1f, both %.1f%s\n",
                1e3 * found.move, 1e3 * found.asleep, 1e3 * found.behind, 1e3 * found.computing, 1e3 * found.beside,
                found.right ? "" : "  WRONG RESULT");
    goals.at_least(name, found.hidden(), 0.8);
    goals.at_most(busy, found.busy(), 1.05);
}

}  // namespace reshard::bench
