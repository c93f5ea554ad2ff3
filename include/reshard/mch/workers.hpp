// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/workers.hpp
/// \brief  A team of threads that stay alive between kernels, so that a kernel starts none and allocates nothing.
/// \depends core, <thread>, <mutex>, <condition_variable>.
#pragma once

#include <reshard/core/error.hpp>

#include <condition_variable>  // condition_variable
#include <mutex>               // mutex, unique_lock
#include <thread>              // thread
#include <type_traits>         // remove_reference
#include <vector>              // vector

namespace reshard::inline v0 {

/// The calling thread and `threads - 1` more. `workers(parts, body)` calls body(part) once for every part in
/// [0, parts) and returns when all are done. Bodies must not throw. Used by one thread at a time.
class Workers {
public:
    /// Throws MeshError for less than one thread, OutOfMemory when the system refuses to start them.
    explicit Workers(int threads) : threads_(threads) {
        if (threads < 1) {
            raise(ErrorCode::mesh,
                  concat("reshard::Workers: ", threads, " threads. Fix: give at least 1, the calling thread."));
        }
        try {
            pool_.reserve(static_cast<std::size_t>(threads - 1));
            for (int t = 1; t < threads; ++t) pool_.emplace_back([this, t] { serve(t); });
        } catch (...) {
            stop();
            raise(ErrorCode::out_of_memory, concat("reshard::Workers: the system starts ", pool_.size() + 1, " of ",
                                                   threads, " threads. Fix: ask for fewer threads."));
        }
    }
    Workers(Workers const&) = delete;
    Workers& operator=(Workers const&) = delete;
    ~Workers() { stop(); }

    [[nodiscard]] int threads() const noexcept { return threads_; }

    template <class Body>
    void operator()(int parts, Body&& body) {
        using Plain = std::remove_reference_t<Body>;
        {
            std::lock_guard const lock(mutex_);
            body_ = const_cast<void*>(static_cast<void const*>(&body));
            call_ = [](void* what, int part) { (*static_cast<Plain*>(what))(part); };
            parts_ = parts;
            busy_ = threads_ - 1;
            ++round_;
        }
        start_.notify_all();
        work(0);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return busy_ == 0; });
    }

private:
    /// Part p belongs to thread p % threads: who does what never depends on timing.
    void work(int thread) {
        for (int part = thread; part < parts_; part += threads_) call_(body_, part);
    }
    void serve(int thread) {
        long seen = 0;
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                start_.wait(lock, [&] { return round_ != seen || stopped_; });
                if (stopped_) return;
                seen = round_;
            }
            work(thread);
            std::lock_guard const lock(mutex_);
            if (--busy_ == 0) done_.notify_one();
        }
    }
    void stop() {
        {
            std::lock_guard const lock(mutex_);
            stopped_ = true;
        }
        start_.notify_all();
        for (std::thread& thread : pool_) thread.join();
    }

    int threads_;
    std::mutex mutex_;
    std::condition_variable start_;
    std::condition_variable done_;
    void* body_ = nullptr;
    void (*call_)(void*, int) = nullptr;
    int parts_ = 0;
    int busy_ = 0;
    long round_ = 0;
    bool stopped_ = false;
    std::vector<std::thread> pool_;  // last: its threads use all of the above
};

}  // namespace reshard::inline v0
