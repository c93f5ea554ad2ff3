// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/waiting.hpp
/// \brief  How the host waits for others: politely, and not for ever; and what a failed wait may not free.
/// \depends core/config.hpp, <atomic>, <chrono>, <thread>.
#pragma once

#include <reshard/core/config.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>  // abort
#include <new>      // nothrow
#include <thread>   // sleep_for, yield
#include <utility>  // move

namespace reshard::inline v0::detail {

/// A deadline that can be compared in nanoseconds: a year is for ever. (Not smaller(): to nvcc, chrono is the host's.)
[[nodiscard]] inline std::chrono::milliseconds comparable(std::chrono::milliseconds deadline) noexcept {
    constexpr std::chrono::milliseconds year = std::chrono::hours(24 * 365);
    return deadline < year ? deadline : year;
}

/// One turn of a wait that began at `since`: gives the processor away, for longer where one has waited for long. False
/// when the deadline has passed. \pre it is comparable().
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

/// A flag that is up while this lives: to one who has looked for a failure since, nobody gives up what it reads.
template <class T>
struct RaisedFlag {
    explicit RaisedFlag(std::atomic<T>& flag) noexcept : up(flag) { up.store(T{1}, std::memory_order_seq_cst); }
    ~RaisedFlag() { up.store(T{0}, std::memory_order_seq_cst); }
    std::atomic<T>& up;
};

/// Moves the value to where it is never destroyed. Without memory for that, ends the program rather than free it.
template <class T>
void keep_for_good(T value) noexcept {
    struct Node {
        T value;
        Node* next;
    };
    static std::atomic<Node*> kept{nullptr};  // reachable: kept on purpose, not lost
    auto* const mine = new (std::nothrow) Node{std::move(value), kept.load(std::memory_order_relaxed)};
    if (mine == nullptr) std::abort();
    while (!kept.compare_exchange_weak(mine->next, mine, std::memory_order_release, std::memory_order_relaxed)) {
    }
}

}  // namespace reshard::inline v0::detail
