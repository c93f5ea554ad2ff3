// SPDX-License-Identifier: Apache-2.0
// How exec/progress_thread.hpp is done.
#pragma once

#include <reshard/exec/progress_thread.hpp>

#include <algorithm>  // find

namespace reshard::inline v0_1 {

RESHARD_INLINE ProgressThread::~ProgressThread() {
    {
        std::lock_guard const lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

RESHARD_INLINE BackgroundRequest ProgressThread::start(PreparedPlan& job) {
    std::uint64_t number = 0;
    {
        std::lock_guard const lock(mutex_);
        failures_.reserve(failures_.size() + waiting_.size() + 1);  // the thread itself allocates nothing
        waiting_.push_back(&job);
        number = ++started_;
    }
    changed_.notify_all();
    return {*this, number};
}

RESHARD_INLINE void ProgressThread::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return !waiting_.empty() || stops_; });
        if (waiting_.empty()) return;
        PreparedPlan& job = *waiting_.front();
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
        lock.lock();
        waiting_.erase(waiting_.begin());
        ++over_;
        if (error) failures_.push_back({over_, std::move(error)});
        changed_.notify_all();
    }
}

RESHARD_INLINE bool ProgressThread::is_over(std::uint64_t number) {
    std::lock_guard const lock(mutex_);
    return over_ >= number;
}

RESHARD_INLINE std::exception_ptr ProgressThread::end_of(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ >= number; });
    auto const found = std::ranges::find(failures_, number, &Failure::number);
    if (found == failures_.end()) return nullptr;
    std::exception_ptr error = std::move(found->error);
    failures_.erase(found);
    return error;
}

RESHARD_INLINE BackgroundRequest::~BackgroundRequest() {
    if (progress_ != nullptr) static_cast<void>(progress_->end_of(number_));
}

RESHARD_INLINE void BackgroundRequest::wait() {
    if (progress_ == nullptr) return;
    if (std::exception_ptr const error = std::exchange(progress_, nullptr)->end_of(number_)) {
        std::rethrow_exception(error);
    }
}

RESHARD_INLINE bool BackgroundRequest::test() const { return progress_ == nullptr || progress_->is_over(number_); }

}  // namespace reshard::inline v0_1
