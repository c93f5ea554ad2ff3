// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/kept.hpp
/// \brief  For what a failed wait may not free: somebody else may still use it.
/// \depends <atomic>, <cstdlib>, <new>.
#pragma once

#include <atomic>
#include <cstdlib>  // abort
#include <new>      // nothrow
#include <utility>  // move

namespace reshard::inline v0::detail {

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
