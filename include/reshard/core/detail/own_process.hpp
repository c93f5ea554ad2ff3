// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/own_process.hpp
/// \brief  OfProcess: whether this process made an object, of which a child that was forked has a copy.
/// \depends <atomic>, <pthread.h>, <unistd.h>.
#pragma once

#include <reshard/core/config.hpp>

#include <pthread.h>  // pthread_atfork
#include <unistd.h>   // getpid

#include <atomic>  // atomic

namespace reshard::inline v0_1::detail {

inline std::atomic<int> known_pid{0};

[[gnu::cold, gnu::noinline]] inline int ask_pid() noexcept {
    static int const refused =
        ::pthread_atfork(nullptr, nullptr, [] { known_pid.store(0, std::memory_order_relaxed); });
    int const own = ::getpid();
    if (refused == 0) known_pid.store(own, std::memory_order_relaxed);
    return own;
}
/// As getpid(), which is a system call and takes 0.2 us on some machines: asked once in each process.
/// (A child that was made without fork(), by clone() itself, has the number of its parent.)
[[nodiscard]] inline int own_pid() noexcept {
    int const known = known_pid.load(std::memory_order_relaxed);
    return known != 0 ? known : ask_pid();
}

/// Base of what belongs to the process that made it.
class OfProcess {
public:
    /// Whether this process made it.
    [[nodiscard]] bool is_ours() const noexcept { return maker_ == own_pid(); }

protected:
    int maker_ = own_pid();
};

}  // namespace reshard::inline v0_1::detail
