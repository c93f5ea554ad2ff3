// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/thread_family.hpp
/// \brief  What all communicators of one run_on_threads share: options, the first failure, and who has returned.
/// \depends core, comm/thread_options.hpp, <atomic>, <chrono>, <memory>, <mutex>, <vector>.
#pragma once

#include <reshard/comm/detail/failure_record.hpp>
#include <reshard/comm/thread_options.hpp>

#include <atomic>   // atomic
#include <chrono>   // steady_clock
#include <memory>   // weak_ptr
#include <mutex>    // mutex
#include <thread>   // hardware_concurrency, yield
#include <utility>  // move
#include <vector>

namespace reshard::inline v0 {

namespace detail {

/// Two lines: processors fetch them in pairs.
inline constexpr std::size_t no_false_sharing = 128;

/// Tells the processor that this is a busy wait.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Somebody to wake when something happens to the family.
class Sleeper {
public:
    virtual void wake() noexcept = 0;

protected:
    ~Sleeper() = default;
};

class ThreadFamily {
public:
    ThreadFamily(int ranks, ThreadOptions const& options)
        : options_(options),
          returned_(static_cast<std::size_t>(ranks)),
          spins_(static_cast<unsigned>(ranks) <= std::thread::hardware_concurrency() ? 30 : 0) {}

    [[nodiscard]] ThreadOptions const& options() const noexcept { return options_; }
    /// Rounds of busy waiting that make sense: none when ranks outnumber the cores.
    [[nodiscard]] int spins() const noexcept { return spins_; }

    /// Changes whenever a waiting rank has reason to look up: somebody failed or returned.
    [[nodiscard]] unsigned alarms() const noexcept { return alarms_.load(std::memory_order_seq_cst); }
    [[nodiscard]] bool poisoned() const noexcept { return poisoned_.load(std::memory_order_seq_cst); }
    /// \pre poisoned(). Never changes again.
    [[nodiscard]] FailureRecord const& failure() const noexcept { return failure_; }
    /// Everything `rank` ever did is visible to who reads true.
    [[nodiscard]] bool returned(int rank) const noexcept {
        return returned_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
    }

    /// Unless somebody has failed before: later failures are consequences, or come too late to matter.
    void poison(FailureRecord const& failure) noexcept {
        {
            std::lock_guard const lock(mutex_);
            if (poisoned_.load(std::memory_order_relaxed)) return;
            failure_ = failure;
            poisoned_.store(true, std::memory_order_seq_cst);
        }
        sound_alarm();
    }
    void mark_returned(int rank) noexcept {
        returned_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
        sound_alarm();
    }
    void add(std::weak_ptr<Sleeper> sleeper) {
        std::lock_guard const lock(mutex_);
        // Teams come and go; the list only needs the living.
        for (auto& known : sleepers_) {
            if (known.expired()) {
                known = std::move(sleeper);
                return;
            }
        }
        sleepers_.push_back(std::move(sleeper));
    }

private:
    void sound_alarm() noexcept {
        alarms_.fetch_add(1, std::memory_order_seq_cst);
        std::lock_guard const lock(mutex_);
        for (auto const& known : sleepers_) {
            if (auto const sleeper = known.lock()) sleeper->wake();
        }
    }

    ThreadOptions options_;
    std::vector<std::atomic<bool>> returned_;
    int spins_;
    std::mutex mutex_;
    std::vector<std::weak_ptr<Sleeper>> sleepers_;
    FailureRecord failure_;
    alignas(no_false_sharing) std::atomic<unsigned> alarms_{0};
    std::atomic<bool> poisoned_{false};
};

}  // namespace detail
}  // namespace reshard::inline v0
