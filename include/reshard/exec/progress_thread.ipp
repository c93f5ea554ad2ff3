// SPDX-License-Identifier: Apache-2.0
// How exec/progress_thread.hpp is done.
#pragma once

#include <reshard/core/detail/own_process.hpp>
#include <reshard/core/detail/start_thread.hpp>
#include <reshard/exec/progress_thread.hpp>

#include <algorithm>           // find
#include <condition_variable>  // condition_variable
#include <mutex>               // mutex
#include <new>                 // nothrow
#include <thread>              // thread
#include <vector>              // vector

namespace reshard::inline v0_1 {

namespace detail {

/// What the thread and its rank share: a forked child has a copy, and no thread that it could wait for.
class ProgressWork : public OfProcess {
public:
    ProgressWork() : thread_(start_thread([this] { run_all(); }, "reshard::ProgressThread")) {}
    ProgressWork& operator=(ProgressWork&&) = delete;
    ~ProgressWork() {
        {
            std::lock_guard const lock(mutex_);
            stops_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    [[nodiscard]] std::uint64_t start(PreparedPlan const& job) {
        std::uint64_t number = 0;
        {
            std::lock_guard const lock(mutex_);
            failures_.reserve(failures_.size() + waiting_.size() + 1);  // the thread itself allocates nothing
            waiting_.push_back(job.shared());
            number = ++started_;
        }
        changed_.notify_all();
        return number;
    }
    [[nodiscard]] bool is_over(std::uint64_t number) {
        if (!is_ours()) return true;
        std::lock_guard const lock(mutex_);
        return over_ >= number;
    }
    /// Waits for a run; its error, if there was one, which is then forgotten.
    [[nodiscard]] std::exception_ptr end_of(std::uint64_t number) {
        if (!is_ours()) return nullptr;
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return over_ >= number; });
        auto const found = std::ranges::find(failures_, number, &Failure::number);
        if (found == failures_.end()) return nullptr;
        std::exception_ptr error = std::move(found->error);
        failures_.erase(found);
        return error;
    }

private:
    struct Failure {
        std::uint64_t number;
        std::exception_ptr error;
    };

    void run_all() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&, this] { return !waiting_.empty() || stops_; });
            if (waiting_.empty()) return;
            PreparedPlan job = std::move(waiting_.front());
            lock.unlock();
            std::exception_ptr error;
#if defined(__cpp_exceptions)
            try {
                job.run();
            } catch (...) {
                error = std::current_exception();
            }
#else
            job.run();
#endif
            job = {};  // perhaps the last to have it: it goes while its communicator is there
            lock.lock();
            waiting_.erase(waiting_.begin());
            ++over_;
            if (error) failures_.push_back({over_, std::move(error)});
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<PreparedPlan> waiting_;  ///< run `over_` + 1 is the first
    std::vector<Failure> failures_;      ///< of runs that nobody has waited for
    std::uint64_t started_ = 0;
    std::uint64_t over_ = 0;
    bool stops_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace detail

RESHARD_INLINE ProgressThread::ProgressThread() : work_(new (std::nothrow) detail::ProgressWork) {
    if (work_ == nullptr) detail::refuse_thread("reshard::ProgressThread", "no memory");
}
RESHARD_INLINE ProgressThread::~ProgressThread() {
    if (work_->is_ours()) delete work_;
}
RESHARD_INLINE BackgroundRequest ProgressThread::start(PreparedPlan& job) {
    if (work_->is_ours()) return {work_, work_->start(job)};
    errors::raise(
        ErrorCode::transport,
        "reshard::ProgressThread: this process was forked, and the thread is its parent's. Fix: make one here.");
}

RESHARD_INLINE BackgroundRequest::~BackgroundRequest() {
    if (work_ != nullptr) static_cast<void>(work_->end_of(number_));
}
RESHARD_INLINE void BackgroundRequest::wait() {
    if (work_ == nullptr) return;
    if (std::exception_ptr const error = std::exchange(work_, nullptr)->end_of(number_)) std::rethrow_exception(error);
}
RESHARD_INLINE bool BackgroundRequest::test() const { return work_ == nullptr || work_->is_over(number_); }

}  // namespace reshard::inline v0_1
