// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/progress_thread.hpp
/// \brief  ProgressThread: prepared plans are carried out, to their end, while the rank that started them computes.
/// \depends exec/prepare.hpp. Needs threads; not part of the umbrella.
///
///     ProgressThread progress;                          // one thread of this rank
///     auto job = prepare(move, comm, gradient, shard);
///     BackgroundRequest moving = progress.start(job);   // run() begins on that thread
///     compute();                                        // until wait() the thread has the communicator to itself
///     moving.wait();
///
/// It is for transports that move data with the processor: threads, and MPI within a node or without a network card
/// that does it. Devices need none, their streams go on by themselves. It costs a thread a rank, which sleeps unless a
/// plan is under way, and then the processor time that the move takes anyhow: with a core of its own, or one whose
/// rank waits for a device, the move is hidden; on a busy core it is done at the computation's expense.
#pragma once

#include <reshard/exec/prepare.hpp>

namespace reshard::inline v0_1 {

namespace detail {
class ProgressWork;
}  // namespace detail

/// A run on a progress thread, which outlives it. Move-only; the destructor waits, and keeps an error to itself.
class [[nodiscard]] BackgroundRequest {
public:
    BackgroundRequest() noexcept = default;  ///< as one that was waited for
    BackgroundRequest(BackgroundRequest&& other) noexcept
        : work_(std::exchange(other.work_, nullptr)), number_(other.number_) {}
    /// Waits for its own run first, as the destructor does.
    BackgroundRequest& operator=(BackgroundRequest&& other) noexcept {
        BackgroundRequest mine(std::exchange(work_, std::exchange(other.work_, nullptr)),
                               std::exchange(number_, other.number_));
        return *this;
    }
    ~BackgroundRequest();

    /// Returns when the destination is complete and nobody reads this rank's source any more. Throws what
    /// RunRequest::wait() throws.
    void wait();
    /// Whether wait() would return, or throw, at once.
    [[nodiscard]] bool test() const;

private:
    friend class ProgressThread;
    BackgroundRequest(detail::ProgressWork* work, std::uint64_t number) noexcept : work_(work), number_(number) {}

    detail::ProgressWork* work_ = nullptr;  ///< null: it has been waited for
    std::uint64_t number_ = 0;
};

/// One thread that carries out one run after the other, in the order in which they were started; ranks start runs over
/// one communicator in the same order. Until all of them are over, nothing else is done with that communicator, nor
/// with others of its family. Below MPI_THREAD_SERIALIZED a run over MPI throws TransportError; a rank that calls MPI
/// itself meanwhile needs MPI_THREAD_MULTIPLE, which nobody checks.
class ProgressThread {
public:
    /// Throws OutOfMemory where the system gives no thread.
    ProgressThread();
    /// Waits for all that was started. In a forked child, which has no such thread, does nothing.
    ~ProgressThread();
    ProgressThread& operator=(ProgressThread&&) = delete;

    /// Begins a run; whatever goes wrong is thrown by its wait(). What was prepared may go before it, as in RunRequest.
    BackgroundRequest start(PreparedPlan& job);
    BackgroundRequest start(PreparedPlan&&) = delete;  ///< a run needs what was prepared: give that a name

private:
    detail::ProgressWork* work_;
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/progress_thread.ipp>
#endif
