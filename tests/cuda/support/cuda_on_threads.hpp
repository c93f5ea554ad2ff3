// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/cuda_on_threads.hpp
/// \brief  DeviceBlock (cuda/detail/device_block.cuh), word for word, on the host: a thread of its own for each of
/// CUDA.
///
///     ThreadedBlocks run;
///     run.tiles<State, Shared>(count, body);      body(DeviceBlock<State>&, Shared&, tile), as a launch would
///
/// HostBlock proves what bodies compute; this shows whether threads that run at once wait for each other where they
/// must, above all under the thread sanitiser: memory that is shared or global is plain memory, barriers are what
/// orders it, atomics are relaxed, votes order nothing, and blocks of a launch run on other threads without any order.
/// Threads that wait for some that never come end the launch with an error that says who waits where.
///
/// What is declared here is what device_block.cuh asks CUDA for, with CUDA's overloads and no others. Linux.
#pragma once

#include "cuda/support/emulated.hpp"

#include <reshard/core/error.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace reshard::test::on_threads {

/// Ends the threads of a launch that cannot go on.
struct Stuck {};

/// A launch's threads: how many run, what went wrong.
struct Progress {
    std::atomic<int> running{0};
    std::atomic<bool> over{false};

    void fail(std::string const& what) {
        std::lock_guard const lock(mutex);
        if (error.empty()) error = what;
    }
    std::mutex mutex;
    std::string error;
};

/// Where a number of threads meet, again and again. Waits in the kernel, by hand: whatever the standard library uses
/// would order memory that this must not order, such as that of two blocks.
class Meeting {
public:
    explicit Meeting(int size) : size_(static_cast<std::uint32_t>(size)) {}

    /// Returns the sum of what all give. With `orders`, what a thread did before happens before what others do after.
    /// `stuck` is called by the last thread that could run: then `progress` is over, and all waiting threads wake.
    template <class OnStuck>
    std::uint32_t arrive(std::uint32_t given, bool orders, Progress* progress, OnStuck&& stuck) {
        auto const ticket = static_cast<std::uint32_t>(result_.load(std::memory_order_relaxed) >> 32U);
        std::uint64_t const mine = std::uint64_t{1} << 32U | given;
        std::uint64_t const all =
            arrived_.fetch_add(mine, orders ? std::memory_order_acq_rel : std::memory_order_relaxed) + mine;
        if (all >> 32U == size_) {
            arrived_.store(0, std::memory_order_relaxed);
            if (progress != nullptr)
                progress->running.fetch_add(static_cast<int>(size_) - 1, std::memory_order_relaxed);
            auto const sum = static_cast<std::uint32_t>(all);
            result_.store(std::uint64_t{ticket + 1} << 32U | sum,
                          orders ? std::memory_order_release : std::memory_order_relaxed);
            ring();
            return sum;
        }
        if (progress != nullptr && progress->running.fetch_sub(1, std::memory_order_relaxed) == 1) stuck();
        for (;;) {
            std::uint32_t const heard = bell_.load(std::memory_order_relaxed);
            std::uint64_t const now = result_.load(orders ? std::memory_order_acquire : std::memory_order_relaxed);
            if (static_cast<std::uint32_t>(now >> 32U) != ticket) return static_cast<std::uint32_t>(now);
            if (progress != nullptr && progress->over.load(std::memory_order_acquire)) throw Stuck{};
            syscall(SYS_futex, &bell_, FUTEX_WAIT_PRIVATE, heard, nullptr, nullptr, 0);
        }
    }
    std::uint32_t arrive() {
        return arrive(0, true, nullptr, [] {});
    }
    /// Wakes all who wait.
    void ring() {
        bell_.fetch_add(1, std::memory_order_relaxed);
        syscall(SYS_futex, &bell_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }

private:
    static_assert(sizeof(std::atomic<std::uint32_t>) == 4);
    std::uint32_t const size_;
    std::atomic<std::uint64_t> arrived_{0};  ///< how many, and the sum of what they gave
    std::atomic<std::uint64_t> result_{0};   ///< of which meeting, and its sum
    std::atomic<std::uint32_t> bell_{0};
};

/// Threads that are a block at a time, and the barriers of one launch.
class Resident {
public:
    Resident() {
        for (auto& warp : warps_) warp = std::make_unique<Meeting>(detail::warp_threads);
        progress_.running = detail::block_threads;
    }

    std::uint32_t meet_block(int thread, std::uint32_t given, char const* where) {
        return meet(block_, thread, given, true, where);
    }
    std::uint32_t meet_warp(int thread, std::uint32_t given, bool orders, char const* where) {
        return meet(*warps_[static_cast<std::size_t>(detail::warp_of(thread))], thread, given, orders, where);
    }
    /// Before the first block, and behind each: all threads of the block have returned.
    void meet_outside(int thread) { static_cast<void>(meet(outside_, thread, 0, true, "have returned")); }
    /// All threads of `count` passed the same line.
    void check_line(std::uint32_t sum, unsigned line, int count) {
        if (sum != line * static_cast<unsigned>(count)) {
            progress_.fail("DeviceBlock: threads of a block meet at different barriers");
        }
    }
    [[nodiscard]] Progress& progress() { return progress_; }

private:
    std::uint32_t meet(Meeting& meeting, int thread, std::uint32_t given, bool orders, char const* where) {
        auto& mine = where_[static_cast<std::size_t>(thread)];
        mine.store(where, std::memory_order_relaxed);
        std::uint32_t const sum = meeting.arrive(given, orders, &progress_, [&] { give_up(); });
        mine.store("run", std::memory_order_relaxed);
        return sum;
    }
    void give_up() {
        std::map<std::string, std::string> found;
        for (std::size_t t = 0; t < where_.size(); ++t) {
            std::string& list = found[where_[t].load(std::memory_order_relaxed)];
            if (list.size() < 40) list += errors::concat(" ", t);
            if (list.size() >= 40 && list.back() != '.') list += " ...";
        }
        std::string what = "DeviceBlock: threads wait for others of their block that never come:";
        for (auto const& [where, list] : found) what += errors::concat(" threads", list, " ", where, ";");
        progress_.fail(what);
        progress_.over.store(true, std::memory_order_release);
        block_.ring();
        outside_.ring();
        for (auto& warp : warps_) warp->ring();
    }

    Progress progress_;
    Meeting block_{detail::block_threads};
    Meeting outside_{detail::block_threads};
    std::array<std::unique_ptr<Meeting>, detail::block_warps> warps_;
    std::array<std::atomic<char const*>, detail::block_threads> where_{};
};

struct Position {
    unsigned x = 0;
};
inline thread_local Position thread_index;
inline thread_local Resident* resident = nullptr;

[[nodiscard]] inline int me() { return static_cast<int>(thread_index.x); }

}  // namespace reshard::test::on_threads

// ---- What device_block.cuh asks CUDA for -------------------------------------------------------------------------

inline void __syncthreads(unsigned line = __builtin_LINE()) {
    using namespace reshard::test::on_threads;
    resident->check_line(resident->meet_block(me(), line, "wait at a barrier of the block"), line,
                         reshard::detail::block_threads);
}
inline void __syncwarp(unsigned line = __builtin_LINE()) {
    using namespace reshard::test::on_threads;
    resident->check_line(resident->meet_warp(me(), line, true, "wait at a barrier of their warp"), line,
                         reshard::detail::warp_threads);
}
/// Orders no memory: CUDA promises none.
inline unsigned __ballot_sync(unsigned mask, bool vote) {
    using namespace reshard::test::on_threads;
    if (mask != 0xffffffffU) resident->progress().fail("DeviceBlock: a vote of part of a warp");
    unsigned const bit = vote ? 1U << static_cast<unsigned>(reshard::detail::lane_of(me())) : 0U;
    return resident->meet_warp(me(), bit, false, "wait at a vote of their warp");
}

// CUDA C++ Programming Guide, "Atomic Functions": these types and no others; relaxed.
#define RESHARD_TEST_ATOMIC(name, T, how)   \
    inline T name(T* at, T value) {         \
        std::atomic_ref<T> const word(*at); \
        return how;                         \
    }
#define RESHARD_TEST_EXTREME(name, T, order)                                                                \
    RESHARD_TEST_ATOMIC(name, T, [&] {                                                                      \
        T before = word.load(std::memory_order_relaxed);                                                    \
        while (value order before && !word.compare_exchange_weak(before, value, std::memory_order_relaxed)) \
            ;                                                                                               \
        return before;                                                                                      \
    }())
RESHARD_TEST_ATOMIC(atomicAdd, int, word.fetch_add(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicAdd, unsigned, word.fetch_add(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicAdd, unsigned long long, word.fetch_add(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicOr, int, word.fetch_or(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicOr, unsigned, word.fetch_or(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicOr, unsigned long long, word.fetch_or(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicAnd, int, word.fetch_and(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicAnd, unsigned, word.fetch_and(value, std::memory_order_relaxed))
RESHARD_TEST_ATOMIC(atomicAnd, unsigned long long, word.fetch_and(value, std::memory_order_relaxed))
RESHARD_TEST_EXTREME(atomicMin, int, <)
RESHARD_TEST_EXTREME(atomicMin, unsigned, <)
RESHARD_TEST_EXTREME(atomicMin, unsigned long long, <)
RESHARD_TEST_EXTREME(atomicMin, long long, <)
RESHARD_TEST_EXTREME(atomicMax, int, >)
RESHARD_TEST_EXTREME(atomicMax, unsigned, >)
RESHARD_TEST_EXTREME(atomicMax, unsigned long long, >)
RESHARD_TEST_EXTREME(atomicMax, long long, >)
#undef RESHARD_TEST_EXTREME
#undef RESHARD_TEST_ATOMIC

namespace cub {
/// As CUB's: a barrier inside, none at the end, so that who uses the storage again needs one before.
template <class T, int Threads>
class BlockScan {
public:
    struct TempStorage {
        T values[Threads];
    };
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}
    void ExclusiveSum(T value, T& before, T& total) {
        int const thread = reshard::test::on_threads::me();
        storage_.values[thread] = value;
        __syncthreads();
        before = 0;
        total = 0;
        for (int t = 0; t < Threads; ++t) {
            if (t == thread) before = total;
            total += storage_.values[t];
        }
    }

private:
    TempStorage& storage_;
};
/// As CUB's: thread 0 alone has the result, and barriers are as there.
template <class T, int Threads>
class BlockReduce {
public:
    struct TempStorage {
        T values[Threads];
    };
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}
    template <class Combine>
    T Reduce(T value, Combine combine) {
        int const thread = reshard::test::on_threads::me();
        storage_.values[thread] = value;
        __syncthreads();
        for (int t = 1; thread == 0 && t < Threads; ++t) value = combine(value, storage_.values[t]);
        return value;
    }

private:
    TempStorage& storage_;
};
}  // namespace cub

#define __device__
#define __forceinline__ inline
#define threadIdx reshard::test::on_threads::thread_index
#define __CUDA_ARCH__ 900  // for this header alone: what it includes is known already
#include <reshard/cuda/detail/device_block.cuh>
#undef __CUDA_ARCH__
#undef threadIdx
#undef __forceinline__
#undef __device__

// ---- Launches ----------------------------------------------------------------------------------------------------

namespace reshard::test {

namespace on_threads {

/// Threads that wait for launches, for the rest of the program.
class Pool {
public:
    static constexpr int residents = 2;  ///< blocks that run at once

    [[nodiscard]] static Pool& instance() {
        static Pool pool;
        return pool;
    }
    /// job(resident, thread) by the threads of the first `count` residents.
    void run(int count, std::function<void(int, int)> const& job) {
        job_ = &job;
        for (int r = 0; r < count; ++r) begin_[static_cast<std::size_t>(r)]->arrive();
        for (int r = 0; r < count; ++r) end_[static_cast<std::size_t>(r)]->arrive();
    }

private:
    Pool() {
        for (int r = 0; r < residents; ++r) {
            begin_.push_back(std::make_unique<Meeting>(detail::block_threads + 1));
            end_.push_back(std::make_unique<Meeting>(detail::block_threads + 1));
        }
        for (int r = 0; r < residents; ++r) {
            for (int t = 0; t < detail::block_threads; ++t) threads_.emplace_back([this, r, t] { work(r, t); });
        }
    }
    ~Pool() {
        std::function<void(int, int)> const none;
        job_ = &none;
        for (auto& begin : begin_) begin->arrive();
        for (std::thread& thread : threads_) thread.join();
    }
    void work(int r, int thread) {
        thread_index.x = static_cast<unsigned>(thread);
        for (;;) {
            begin_[static_cast<std::size_t>(r)]->arrive();
            if (!*job_) return;
            (*job_)(r, thread);
            end_[static_cast<std::size_t>(r)]->arrive();
        }
    }

    std::function<void(int, int)> const* job_ = nullptr;
    std::vector<std::unique_ptr<Meeting>> begin_;
    std::vector<std::unique_ptr<Meeting>> end_;
    std::vector<std::thread> threads_;
};

/// Of a block that runs: outside of the launch, whose template is instantiated for each body.
template <class State, class Shared>
struct Memory {
    Resident resident;
    Garbage<Shared> shared;
    Garbage<typename detail::DeviceBlock<State>::Shared> scan;
};

}  // namespace on_threads

/// Runs the tiles of a launch by DeviceBlocks, several at once. One thread at a time may launch.
struct ThreadedBlocks {
    ThreadOrder order = ThreadOrder::shuffled;  ///< of blocks; threads run at once
    bool bits_suffice = true;

    /// body(block, shared, tile) for tiles [0, count). Throws std::runtime_error if threads do not meet. Bodies
    /// do not throw.
    template <class State, class Shared, class Body>
    void tiles(Index count, Body const& body) {
        constexpr int residents = on_threads::Pool::residents;
        std::vector<std::vector<Index>> lists(residents);
        int next = 0;
        for (Index tile : ordered(count)) lists[static_cast<std::size_t>(next++ % residents)].push_back(tile);
        using Memory = on_threads::Memory<State, Shared>;
        std::vector<std::unique_ptr<Memory>> memory;
        for (int r = 0; r < residents && r < count; ++r) memory.push_back(std::make_unique<Memory>());
        on_threads::Pool::instance().run(static_cast<int>(memory.size()), [&](int r, int thread) {
            Memory& mine = *memory[static_cast<std::size_t>(r)];
            on_threads::resident = &mine.resident;
            try {
                for (Index tile : lists[static_cast<std::size_t>(r)]) {
                    detail::DeviceBlock<State> block(*mine.scan);
                    body(block, *mine.shared, tile);
                    mine.resident.meet_outside(thread);
                    if (thread == 0) {
                        mine.shared.spoil();
                        mine.scan.spoil();
                    }
                    mine.resident.meet_outside(thread);
                }
            } catch (on_threads::Stuck const&) {  // the launch's error says so
            }
        });
        for (auto const& one : memory) {
            if (!one->resident.progress().error.empty()) throw std::runtime_error(one->resident.progress().error);
        }
    }

private:
    [[nodiscard]] std::vector<Index> ordered(Index count) const {
        std::vector<Index> list(static_cast<std::size_t>(count));
        std::iota(list.begin(), list.end(), Index{0});
        if (order == ThreadOrder::down) std::reverse(list.begin(), list.end());
        Random random(static_cast<std::uint64_t>(count));
        if (order == ThreadOrder::shuffled) std::shuffle(list.begin(), list.end(), random.engine());
        return list;
    }
};

}  // namespace reshard::test
