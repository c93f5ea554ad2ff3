// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_wait.hpp
/// \brief  How the host waits for a device: politely, and not for ever.
/// \depends <chrono>, <thread>.
#pragma once

#include <reshard/core/config.hpp>

#include <chrono>
#include <thread>  // sleep_for, yield

namespace reshard::inline v0::detail {

/// A deadline that can be compared in nanoseconds: a year is for ever. (Not smaller(): to nvcc, chrono is the host's.)
[[nodiscard]] inline std::chrono::milliseconds comparable(std::chrono::milliseconds deadline) noexcept {
    constexpr std::chrono::milliseconds year = std::chrono::hours(24 * 365);
    return deadline < year ? deadline : year;
}

/// One turn of a wait that began at `since`: gives the processor away, for longer and longer. False when the deadline
/// has passed. \pre it is comparable().
[[nodiscard]] inline bool await_device(std::chrono::steady_clock::time_point since,
                                       std::chrono::milliseconds deadline) noexcept {
    auto const waited = std::chrono::steady_clock::now() - since;
    if (waited >= deadline) return false;
    if (waited < std::chrono::milliseconds(20)) {
        std::this_thread::yield();
    } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
}

}  // namespace reshard::inline v0::detail
