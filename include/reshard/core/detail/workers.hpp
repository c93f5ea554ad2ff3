// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/workers.hpp
/// \brief  Work for a few threads that live as long as it takes.
/// \depends standard library, threads.
#pragma once

#include <reshard/core/config.hpp>

#include <atomic>     // atomic
#include <cstddef>    // size_t
#include <exception>  // exception_ptr
#include <mutex>      // mutex
#include <thread>     // thread
#include <vector>     // vector

namespace reshard::inline v0_1::detail {

/// Calls work(i, worker) for every i below `count` from up to `threads` threads, this one among them; `worker` is below
/// `threads`, and no two that run have the same. After a failure no later i is begun; what the first of them threw, in
/// their order, is thrown when all have ended.
template <class Work>
void run_on_workers(std::size_t count, int threads, Work&& work) {
    std::atomic<std::size_t> next{0};
    std::atomic<int> workers_begun{0};
    std::atomic<std::size_t> failed{count};  // the first one that failed, so far
    std::exception_ptr failure;
    std::mutex failing;
    auto const loop = [&]() noexcept {
        int const worker = workers_begun.fetch_add(1, std::memory_order_relaxed);
        for (;;) {
            // A chosen i goes ahead although a later one failed: so the first failure in order is always found.
            std::size_t const i = next.fetch_add(1, std::memory_order_relaxed);
            if (i >= failed.load(std::memory_order_acquire)) return;
            try {
                work(i, worker);
            } catch (...) {
                std::lock_guard<std::mutex> const lock(failing);
                if (i < failed.load(std::memory_order_relaxed)) {
                    failed.store(i, std::memory_order_release);
                    failure = std::current_exception();
                }
                return;
            }
        }
    };
    std::size_t const wanted = static_cast<std::size_t>(threads);
    std::size_t const workers = wanted < count ? wanted : count;
    std::vector<std::thread> others;
    try {
        others.reserve(workers);
        while (others.size() + 1 < workers) others.emplace_back(loop);
    } catch (...) {
        // The system gives no more threads: those that there are do everything.
    }
    loop();
    for (std::thread& thread : others) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace reshard::inline v0_1::detail
