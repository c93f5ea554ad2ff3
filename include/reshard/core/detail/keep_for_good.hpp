// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/keep_for_good.hpp
/// \brief  What may not be freed, since somebody may still write to it.
/// \depends core/config.hpp, <new>.
#pragma once

#include <reshard/core/config.hpp>

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
    static Node* kept = nullptr;  // reachable: kept on purpose, not lost
    auto* const mine = new (std::nothrow) Node{std::move(value), __atomic_load_n(&kept, __ATOMIC_RELAXED)};
    if (mine == nullptr) __builtin_abort();
    while (!__atomic_compare_exchange_n(&kept, &mine->next, mine, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

}  // namespace reshard::inline v0::detail
