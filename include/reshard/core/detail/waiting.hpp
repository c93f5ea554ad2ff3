// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/waiting.hpp
/// \brief  How the host waits for others: politely, and not for ever.
/// \depends core/error.hpp, <atomic>, <chrono>, <cstddef>, <thread>.
#pragma once

#include <reshard/core/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>  // sleep_for, yield

namespace reshard::inline v0_1::detail {

/// How far apart what different ranks write lies: two lines, which processors fetch in pairs.
inline constexpr std::size_t no_false_sharing = 128;

/// What deadlines are measured by.
using Clock = std::chrono::steady_clock;

/// A deadline that can be compared in nanoseconds: a year is for ever. (Not smaller(): to nvcc, chrono is the host's.)
[[nodiscard]] inline std::chrono::milliseconds comparable(std::chrono::milliseconds deadline) noexcept {
    constexpr std::chrono::milliseconds year = std::chrono::hours(24 * 365);
    return deadline < year ? deadline : year;
}

/// The same of what a user gives. Throws BufferError for one that has passed before anything began: what is quick would
/// work, and what is not fail.
inline std::chrono::milliseconds check_deadline(std::string_view options, std::chrono::milliseconds deadline) {
    if (deadline.count() >= 1) return comparable(deadline);
    std::int64_t const given = deadline.count();
    raise(ErrorCode::buffer, "reshard::", options, ": deadline is ", given,
          " ms. Fix: 1 ms or more; there is no wait without an end.");
}

/// A look at the clock in a wait that began, or ends, at `since`; `seen` was the last one, at most some 200 ms ago
/// unless this process was stopped (SIGSTOP, a suspended job). Of such a time a second counts: the others may have been
/// stopped as well. (Not nothing: where processors are scarce every turn may take long, and a wait must end.)
inline Clock::time_point look_at_clock(Clock::time_point& since, Clock::time_point& seen) noexcept {
    constexpr std::chrono::seconds most{1};
    auto const now = Clock::now();
    if (now - seen > most) since += now - seen - most;
    return seen = now;
}

/// One turn of a wait that began at `since`: gives the processor away, for longer where one has waited for long. False
/// when the deadline has passed. \pre it is comparable().
[[nodiscard]] inline bool await_device(Clock::time_point since, std::chrono::milliseconds deadline) noexcept {
    auto const waited = Clock::now() - since;
    if (waited >= deadline) return false;
    if (waited < std::chrono::milliseconds(20)) {
        std::this_thread::yield();
    } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
}

/// A flag that is up while this lives: to one who has looked for a failure since, nobody gives up what it reads.
template <class T>
struct RaisedFlag {
    explicit RaisedFlag(std::atomic<T>& flag) noexcept : up(flag) { up.store(T{1}, std::memory_order_seq_cst); }
    ~RaisedFlag() { up.store(T{0}, std::memory_order_seq_cst); }
    std::atomic<T>& up;
};

}  // namespace reshard::inline v0_1::detail
