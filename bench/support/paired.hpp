// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/paired.hpp
/// \brief  Two things measured in turn: the ratio of a pair survives a machine that others use too.
#pragma once

#include <algorithm>  // nth_element
#include <atomic>     // atomic_signal_fence
#include <chrono>     // steady_clock
#include <ctime>      // clock_gettime
#include <vector>     // vector

namespace reshard::bench {

/// Pairs that count; one more is measured first and thrown away.
inline constexpr int repetitions = 11;

[[nodiscard]] inline double now_seconds() noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Processor time of this thread: for code of one thread, which a busy neighbour interrupts.
[[nodiscard]] inline double thread_seconds() noexcept {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Processor time of this thread for one task. What the task writes counts as read: the compiler may not drop it.
template <class Task>
[[nodiscard]] double thread_seconds_of(Task&& task) {
    double const start = thread_seconds();
    task();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return thread_seconds() - start;
}

[[nodiscard]] inline double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Medians over the pairs: seconds of each of the two, and of first / second within a pair.
struct Paired {
    double first = 0;
    double second = 0;
    double ratio = 0;
};

/// `first` and `second` return seconds. Which of them leads changes from pair to pair, so that a drift of the clock
/// rate or a busy neighbour favours neither.
template <class First, class Second>
[[nodiscard]] Paired paired(First&& first, Second&& second, int pairs = repetitions) {
    std::vector<double> firsts;
    std::vector<double> seconds;
    std::vector<double> ratios;
    for (int i = 0; i <= pairs; ++i) {
        double a = 0;
        double b = 0;
        if (i % 2 == 0) {
            a = first();
            b = second();
        } else {
            b = second();
            a = first();
        }
        if (i == 0) continue;
        firsts.push_back(a);
        seconds.push_back(b);
        ratios.push_back(a / b);
    }
    return {median(firsts), median(seconds), median(ratios)};
}

/// Median over the repetitions of one thing that has no partner.
template <class Measure>
[[nodiscard]] double repeated(Measure&& measure) {
    std::vector<double> values;
    for (int i = 0; i <= repetitions; ++i) {
        double const value = measure();
        if (i != 0) values.push_back(value);
    }
    return median(values);
}

}  // namespace reshard::bench
