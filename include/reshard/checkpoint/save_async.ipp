// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save_async.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/save_session.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/core/detail/own_process.hpp>
#include <reshard/memory/scratch.hpp>

#include <condition_variable>  // condition_variable
#include <new>                 // nothrow

namespace reshard::inline v0_1 {

namespace detail {

/// Units of the stream are copied into slots, in order, and written from there; unit u has slot u % slots. With a slot
/// for every unit the copies are made first, by all threads at once; with fewer, a unit waits until its slot is free.
/// The threads that write use no communicator and no memory of the tensors. What a forked child has is a copy, without
/// the thread that writes, of files that are not its own.
class SaveBehind : public OfProcess {
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
        if (!snapshot_verdict_.ok()) stop();  // the background may be waiting for copies
        if (!background_.joinable()) is_written_.store(true, std::memory_order_release);
        blocked_ = session_.seconds();
    }
    SaveBehind& operator=(SaveBehind&&) = delete;
    ~SaveBehind() {
        stop();
        if (background_.joinable()) background_.join();
    }

    [[nodiscard]] bool is_written() const noexcept { return is_written_.load(std::memory_order_acquire); }

    /// Collective, once.
    SaveReport finish() {
        auto const since = session_.seconds();
        Index const extra = memory_.size();
        SaveReport report = session_.finish([&, this](std::size_t units, bool last) {
            bool const goes_on = !last && background_.joinable() && (units == 0 || await(written_, units - 1));
            if (goes_on) return;
            if (background_.joinable()) background_.join();
            Verdict const& mine = snapshot_verdict_.ok() ? verdict_ : snapshot_verdict_;
            if (!mine.ok()) raise(mine.code, std::string(words_of(mine)));
            memory_ = Scratch();
        });
        report.extra_bytes = extra;
        report.seconds_blocked = blocked_ + (report.seconds - since);
        return report;
    }

private:
    /// A bounded snapshot has four slots, so that copies and writes take turns without waiting for each other.
    [[nodiscard]] static Index unit_bytes(SaveOptions const& options) noexcept {
        if (options.snapshot_bytes <= 0) return SaveStream::default_unit_bytes;
        return smaller(SaveStream::default_unit_bytes, larger<Index>(options.snapshot_bytes / 4 / 64 * 64, 64));
    }
    void make_room(SaveStream const& stream, SaveOptions const& options) {
        unit_bytes_ = unit_bytes(options);
        slots_ = stream.units();
        Index bytes = stream.bytes();
        if (options.snapshot_bytes > 0) {
            slots_ = smaller(slots_, as_size(larger<Index>(options.snapshot_bytes / unit_bytes_, 1)));
            bytes = smaller(bytes, as_index(slots_) * unit_bytes_);
        }
        memory_ = Scratch(bytes);
        copied_.resize(stream.units());
        written_.resize(stream.units());
    }
    [[nodiscard]] std::byte* slot(std::size_t unit) const noexcept {
        return memory_.data() + as_index(unit % slots_) * unit_bytes_;
    }

    void snapshot() {
        SaveStream& stream = session_.stream();
        std::size_t const units = stream.units();
        if (slots_ == units) {
            run_on_workers(units, session_.options().in_flight,
                           [&](std::size_t unit, int) { stream.copy(unit, slot(unit)); });
            copied_.assign(units, 1);
        }
        try {
            background_ = std::thread([this] { write_behind(); });
        } catch (std::exception const&) {  // the system gives no thread, or no memory for one: this one writes
            write_here();
            return;
        }
        if (slots_ == units) return;
        for (std::size_t unit = 0; unit < units; ++unit) {
            if (unit >= slots_ && !await(written_, unit - slots_)) return;
            stream.copy(unit, slot(unit));
            mark(copied_, unit);
        }
    }
    void write_here() {
        SaveStream& stream = session_.stream();
        for (std::size_t unit = 0; unit < stream.units(); ++unit) {
            if (slots_ != stream.units()) stream.copy(unit, slot(unit));
            write(unit);
        }
        session_.close();
    }
    void write_behind() noexcept {
        verdict_ = verdict_of([&] { write_all(); });
        if (!verdict_.ok()) stop();
        is_written_.store(true, std::memory_order_release);
    }
    void write_all() {
        run_on_workers(session_.stream().units(), session_.options().in_flight, [&](std::size_t unit, int) {
            if (!await(copied_, unit)) return;
            try {
                write(unit);
            } catch (...) {
                stop();  // whoever waits for a slot, or for a copy, waits for nothing
                throw;
            }
            mark(written_, unit);
        });
        if (is_stopped()) raise(ErrorCode::user, "reshard::save: dropped. Fix: call wait().");
        session_.close();
    }
    void write(std::size_t unit) {
        SaveStream& stream = session_.stream();
        stream.write_copy(unit, slot(unit),
                          [&](Index at, std::span<std::byte const> bytes) { session_.write_at(at, bytes); });
        session_.tell_progress(stream.unit_size(unit));
    }

    /// Whether the unit is marked; false when there is no hope.
    [[nodiscard]] bool await(std::vector<unsigned char> const& marks, std::size_t unit) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || marks[unit] != 0; });
        return !stopped_;
    }
    void mark(std::vector<unsigned char>& marks, std::size_t unit) {
        {
            std::lock_guard<std::mutex> const lock(mutex_);
            marks[unit] = 1;
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

    // Ahead of session_: its constructor fills them.
    Index unit_bytes_ = 0;
    std::size_t slots_ = 0;
    Scratch memory_;
    std::vector<unsigned char> copied_;   ///< per unit
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
