// SPDX-License-Identifier: Apache-2.0
// How mch/workers.hpp is done.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/mch/workers.hpp>

#include <condition_variable>  // condition_variable
#include <exception>           // exception_ptr
#include <mutex>               // mutex, unique_lock
#include <new>                 // bad_alloc
#include <thread>              // thread
#include <vector>              // vector

namespace reshard::inline v0 {

namespace detail {

/// The threads of a team but the calling one, and what they wait for.
class WorkerPool {
public:
    explicit WorkerPool(int threads) : threads_(threads) { pool_.reserve(static_cast<std::size_t>(threads - 1)); }
    WorkerPool(WorkerPool const&) = delete;
    WorkerPool& operator=(WorkerPool const&) = delete;
    ~WorkerPool() {
        {
            std::lock_guard const lock(mutex_);
            stopped_ = true;
        }
        start_.notify_all();
        for (std::thread& thread : pool_) thread.join();
    }

    void start() {
        for (int t = 1; t < threads_; ++t) pool_.emplace_back([this, t] { serve(t); });
    }
    [[nodiscard]] std::size_t started() const noexcept { return pool_.size(); }

    void run(int parts, FunctionRef<void(int part)> body) {
        {
            std::lock_guard const lock(mutex_);
            body_ = &body;
            parts_ = parts;
            busy_ = threads_ - 1;
            ++round_;
        }
        start_.notify_all();
        work(0);
        std::exception_ptr failure;
        {
            std::unique_lock lock(mutex_);
            done_.wait(lock, [&] { return busy_ == 0; });  // also then: others use what the caller has on its stack
            failure.swap(failure_);
        }
        if (failure) std::rethrow_exception(failure);
    }

private:
    /// Part p belongs to thread p % threads: who does what never depends on timing.
    void work(int thread) noexcept {
        try {
            for (int part = thread; part < parts_; part += threads_) (*body_)(part);
        } catch (...) {
            std::lock_guard const lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
        }
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

    int threads_;
    std::mutex mutex_;
    std::condition_variable start_;
    std::condition_variable done_;
    FunctionRef<void(int part)> const* body_ = nullptr;
    int parts_ = 0;
    int busy_ = 0;
    long round_ = 0;
    std::exception_ptr failure_;
    bool stopped_ = false;
    std::vector<std::thread> pool_;  // last: its threads use all of the above
};

}  // namespace detail

RESHARD_INLINE Workers::Workers(int threads) : threads_(threads) {
    if (threads < 1) {
        raise(ErrorCode::mesh,
              concat("reshard::Workers: ", threads, " threads. Fix: give at least 1, the calling thread."));
    }
    pool_ = std::make_unique<detail::WorkerPool>(threads);
    try {
        pool_->start();
    } catch (std::bad_alloc const&) {
        throw;
    } catch (...) {
        raise(ErrorCode::out_of_memory, concat("reshard::Workers: the system starts ", pool_->started() + 1, " of ",
                                               threads, " threads. Fix: ask for fewer threads."));
    }
}
RESHARD_INLINE Workers::~Workers() = default;

RESHARD_INLINE void Workers::operator()(int parts, detail::FunctionRef<void(int part)> body) const {
    pool_->run(parts, body);
}

}  // namespace reshard::inline v0
