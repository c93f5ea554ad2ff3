// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save_async.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/save_session.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/memory/scratch.hpp>

#include <condition_variable>  // condition_variable
#include <new>                 // nothrow

namespace reshard::inline v0_1 {

namespace detail {

/// The last units of the stream, as many as the snapshot has room for, are copied and written from there by threads
/// that use no communicator and no memory of the tensors; those before them are written ahead, by way of the same room.
class SaveBehind {
public:
    /// Collective, as the constructor of SaveSession; then copies, and returns when the tensors may change.
    SaveBehind(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
               SaveOptions const& options)
        : session_(std::move(folder), tensors, comm, options, unit_bytes(options),
                   [&, this](SaveStream const& stream) { make_room(stream, options); }) {
        snapshot_verdict_ = verdict_of([&] {
            session_.open();
            snapshot();
        });
        if (!background_.joinable()) is_written_.store(true, std::memory_order_release);
        blocked_ = session_.seconds();
    }
    SaveBehind& operator=(SaveBehind&&) = delete;
    ~SaveBehind() {
        stop();
        if (background_.joinable()) background_.join();
    }

    /// Whether this process made it: what a forked child has is a copy, without the thread that writes, of files that
    /// are not its own.
    [[nodiscard]] bool is_ours() const noexcept { return maker_ == ::getpid(); }
    [[nodiscard]] bool is_written() const noexcept { return is_written_.load(std::memory_order_acquire); }

    /// Collective, once.
    SaveReport finish() {
        auto const since = session_.seconds();
        for (Index vote = 1; vote < session_.votes(); ++vote) {
            bool const is_well = background_.joinable() && await(session_.units_before(vote));
            session_.vote(is_well ? Verdict() : outcome());
        }
        Verdict written = outcome();
        Index const extra = memory_.size();
        memory_ = Scratch();
        SaveReport report = session_.finish(std::move(written));
        report.extra_bytes = extra;
        report.seconds_blocked = blocked_ + (report.seconds - since);
        return report;
    }

private:
    /// Once this rank's part has ended.
    [[nodiscard]] Verdict outcome() {
        if (background_.joinable()) background_.join();
        return snapshot_verdict_.ok() ? verdict_ : snapshot_verdict_;
    }
    /// A bounded snapshot has four units, so that several threads write ahead.
    [[nodiscard]] static Index unit_bytes(SaveOptions const& options) noexcept {
        if (options.snapshot_bytes <= 0) return SaveStream::default_unit_bytes;
        return smaller(SaveStream::default_unit_bytes, larger<Index>(options.snapshot_bytes / 4 / 64 * 64, 64));
    }
    void make_room(SaveStream const& stream, SaveOptions const& options) {
        unit_bytes_ = unit_bytes(options);
        std::size_t kept = stream.units();
        if (options.snapshot_bytes > 0)
            kept = smaller(kept, as_size(larger<Index>(options.snapshot_bytes / unit_bytes_, 1)));
        ahead_ = stream.units() - kept;
        memory_ = Scratch(smaller(stream.bytes(), as_index(kept) * unit_bytes_));
        written_.resize(stream.units());
    }
    [[nodiscard]] std::byte* slot(std::size_t number) const noexcept {
        return memory_.data() + as_index(number) * unit_bytes_;
    }

    void snapshot() {
        SaveStream const& stream = session_.stream();
        std::size_t const kept = stream.units() - ahead_;
        int const threads = session_.options().in_flight;
        run_on_workers(ahead_, static_cast<int>(smaller(as_size(threads), kept)),
                       [&, this](std::size_t unit, int worker) {
                           session_.write(unit, {slot(as_size(worker)), as_size(unit_bytes_)});
                           mark(unit);
                       });
        run_on_workers(kept, threads, [&, this](std::size_t i, int) { stream.copy(ahead_ + i, slot(i)); });
        try {
            background_ = std::thread([this] { write_behind(); });
        } catch (std::exception const&) {  // the system gives no thread, or no memory for one: this one writes
            write_copies();
        }
    }
    void write_behind() noexcept {
        verdict_ = verdict_of([&] { write_copies(); });
        if (!verdict_.ok()) stop();
        is_written_.store(true, std::memory_order_release);
    }
    void write_copies() {
        run_on_workers(session_.stream().units() - ahead_, session_.options().in_flight, [&, this](std::size_t i, int) {
            if (is_stopped()) return;
            session_.write_copy(ahead_ + i, slot(i));
            mark(ahead_ + i);
        });
        if (is_stopped()) raise(ErrorCode::user, "reshard::save: dropped. Fix: call wait().");
        session_.close();
    }

    /// Whether the first so many units are written; false when there is no hope.
    [[nodiscard]] bool await(std::size_t units) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || units == 0 || written_[units - 1] != 0; });
        return !stopped_;
    }
    void mark(std::size_t unit) {
        {
            std::lock_guard<std::mutex> const lock(mutex_);
            written_[unit] = 1;
        }
        changed_.notify_all();
    }
    void stop() noexcept {
        {
            std::lock_guard<std::mutex> const lock(mutex_);
            stopped_ = true;
        }
        changed_.notify_all();
    }
    [[nodiscard]] bool is_stopped() {
        std::lock_guard<std::mutex> const lock(mutex_);
        return stopped_;
    }

    int maker_ = static_cast<int>(::getpid());
    // Ahead of session_: its constructor fills them.
    Index unit_bytes_ = 0;
    std::size_t ahead_ = 0;  ///< units that the snapshot has no room for
    Scratch memory_;
    std::vector<unsigned char> written_;  ///< per unit
    SaveSession session_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopped_ = false;
    std::atomic<bool> is_written_{false};
    Verdict snapshot_verdict_;  ///< of the copies, and of this rank where it has no background
    Verdict verdict_;           ///< the background's until it is joined
    double blocked_ = 0;
    std::thread background_;
};

}  // namespace detail

RESHARD_INLINE void SaveRequest::Drop::operator()(detail::SaveBehind* save) const noexcept {
    if (save->is_ours()) delete save;
}

RESHARD_INLINE bool SaveRequest::test() const noexcept { return save_ == nullptr || save_->is_written(); }

RESHARD_INLINE SaveReport SaveRequest::wait() {
    if (save_ == nullptr) {
        errors::raise(ErrorCode::buffer,
                      "reshard::SaveRequest: wait() without a save under way. Fix: wait once for each start_save().");
    }
    auto const save = std::exchange(save_, nullptr);  // whatever comes, it is over
    return save->finish();
}

RESHARD_INLINE SaveRequest start_save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                      SaveOptions const& options) {
    auto* const save = new (std::nothrow) detail::SaveBehind(std::move(folder), tensors, comm, options);
    // The others begin with an agreement, too.
    if (save == nullptr) detail::agree_or_raise(comm, {ErrorCode::out_of_memory, -1, {}, 0});
    return SaveRequest(save);
}
RESHARD_INLINE SaveRequest start_save(std::string folder, std::span<ConstLocalTensor const> tensors,
                                      CommunicatorRef comm, SaveOptions const& options) {
    auto const list = detail::tensors_to_save(tensors, comm);
    return start_save(std::move(folder), std::span<LocalTensor const>(list), comm, options);
}

}  // namespace reshard::inline v0_1
