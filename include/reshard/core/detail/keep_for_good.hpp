// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/keep_for_good.hpp
/// \brief  What may not be freed, since somebody may still write to it.
/// \depends core/config.hpp, <cstdio>, <cstdlib>, <new>.
#pragma once

#include <reshard/core/config.hpp>

#include <cstdio>   // fputs
#include <cstdlib>  // abort
#include <new>      // nothrow
#include <utility>  // move

namespace reshard::inline v0_1::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void end_without_memory() noexcept {
    std::fputs(
        "reshard: out of memory after a failure, even to keep what another rank may still write to: the program ends. "
        "Fix: look for the failure before, and leave memory free.\n",
        stderr);
    std::abort();
}

/// Moves the value to where it is never destroyed. Without memory for that, ends the program rather than free it.
template <class T>
void keep_for_good(T value) noexcept {
    struct Node {
        T value;
        Node* next;
    };
    static Node* kept = nullptr;  // reachable: kept on purpose, not lost
    auto* const mine = new (std::nothrow) Node{std::move(value), __atomic_load_n(&kept, __ATOMIC_RELAXED)};
    if (mine == nullptr) end_without_memory();
    while (!__atomic_compare_exchange_n(&kept, &mine->next, mine, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

}  // namespace reshard::inline v0_1::detail
