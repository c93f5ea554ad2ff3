// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/thread_team.hpp
/// \brief  Ranks that meet: a barrier that can be given up, and the seats where ranks lay out what others may read; and
///         what all teams of one run_on_threads share: options, the first failure, and who has returned.
/// \depends comm/{communicator,thread_options}.hpp, comm/detail/failure_record.hpp, core/detail/waiting.hpp,
/// <condition_variable>.
///
/// Every collective is: write the own seat, arrive, wait until all have arrived (phase 1), read other seats and the
/// memory they point to, arrive, wait again (phase 2). Between the phases nobody writes a seat. An agreement in which
/// all are of one mind ends with phase 1: what it reads are words, and a rank says its next in another place.
///
/// Leaving after a failure. A reader raises its flag `reading` and looks for poison before it touches anything of
/// another rank; a rank that leaves has seen the poison and then waits until every flag is down. All four accesses are
/// sequentially consistent, so either the reader sees the poison or the leaver sees the flag.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/detail/failure_record.hpp>
#include <reshard/comm/thread_options.hpp>
#include <reshard/core/detail/waiting.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/core/function_ref.hpp>

#include <algorithm>  // min
#include <condition_variable>
#include <memory>  // shared_ptr
#include <mutex>
#include <thread>  // hardware_concurrency, yield
#include <vector>

namespace reshard::inline v0_1::detail {

/// Tells the processor that this is a busy wait.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class ThreadTeam;

class ThreadFamily : public OfProcess {
public:
    ThreadFamily(int ranks, ThreadOptions const& options)
        : options_(options),
          returned_(as_size(ranks)),
          waits_(as_size(ranks)),
          spins_(static_cast<unsigned>(ranks) <= std::thread::hardware_concurrency() ? 30 : 0) {}

    [[nodiscard]] ThreadOptions const& options() const noexcept { return options_; }
    /// Rounds of busy waiting that make sense: none when ranks outnumber the cores.
    [[nodiscard]] int spins() const noexcept { return spins_; }

    /// Changes whenever a waiting rank has reason to look up: somebody failed or returned.
    [[nodiscard]] unsigned alarms() const noexcept { return alarms_.load(std::memory_order_seq_cst); }
    [[nodiscard]] bool poisoned() const noexcept { return failure_.state.load(std::memory_order_seq_cst) == 2; }
    /// 2 when it is poisoned.
    [[nodiscard]] std::atomic<std::uint32_t> const& state() const noexcept { return failure_.state; }
    /// \pre poisoned(). Never changes again.
    [[nodiscard]] FailureRecord const& failure() const noexcept { return failure_.record; }
    /// Everything `rank` ever did is visible to who reads true.
    [[nodiscard]] bool returned(int rank) const noexcept {
        return returned_[as_size(rank)].load(std::memory_order_acquire);
    }

    /// Whether the rank sleeps until others come, in whichever communicator. Written by it.
    [[nodiscard]] std::atomic<bool>& waits(int rank) noexcept { return waits_[as_size(rank)]; }

    /// Unless somebody has failed before: later failures are consequences, or come too late to matter.
    void poison(FailureRecord failure) noexcept {
        if (failure_.tell(failure)) sound_alarm();
    }
    void mark_returned(int rank) noexcept {
        returned_[as_size(rank)].store(true, std::memory_order_release);
        sound_alarm();
    }
    void add(ThreadTeam& team) {
        std::lock_guard const lock(mutex_);
        teams_.push_back(&team);
    }
    void remove(ThreadTeam& team) noexcept {
        if (!is_ours()) return;  // in a child that was forked another thread may have the lock for ever
        std::lock_guard const lock(mutex_);
        std::erase(teams_, &team);
    }

private:
    /// Wakes those who wait.
    void sound_alarm() noexcept;

    ThreadOptions options_;
    std::vector<std::atomic<bool>> returned_;
    std::vector<std::atomic<bool>> waits_;
    int spins_;
    std::mutex mutex_;
    std::vector<ThreadTeam*> teams_;  ///< those that live
    alignas(no_false_sharing) std::atomic<unsigned> alarms_{0};
    SharedFailure failure_{};
};

/// What a rank says as it arrives in a call: all that others read of it where they agree.
struct ThreadWord {
    TeamCall call = TeamCall::none;
    bool quiet = false;  ///< its verdict is well, and has no text
    std::uint64_t digest = 0;

    [[nodiscard]] friend bool operator==(ThreadWord const&, ThreadWord const&) = default;
};

/// One rank's place in a team. Others read the first group between the phases; the last group is the owner's alone.
struct alignas(no_false_sharing) ThreadSeat {
    transport::BoundTransfers transfers;
    Verdict const* verdict = nullptr;
    int colour = -1;
    int key = 0;
    ThreadWord words[2];                ///< of calls that begin with an even phase, and with an odd one
    std::shared_ptr<ThreadTeam> child;  ///< of the lowest rank of a colour, while the team is split

    std::atomic<std::uint64_t> arrived{0};  ///< phases this rank has arrived at
    std::atomic<bool> reading{false};
    std::atomic<void*> shown{nullptr};  ///< what a transport on top of this one lets the others see; in `kept`
    std::shared_ptr<void> kept;         ///< as long as the team

    std::uint64_t phase = 0;  ///< same as arrived, without the atomic
    TeamCall call = TeamCall::none;
    Interruption interruption;
};

class ThreadTeam {
public:
    /// `members[r]` is the family's number of this team's rank r.
    [[gnu::cold]] ThreadTeam(std::shared_ptr<ThreadFamily> family, std::vector<int> members)
        : family_(std::move(family)), members_(std::move(members)), seats_(members_.size()) {
        for (ThreadSeat& seat : seats_) seat.interruption.asked = family_->options().interrupted;
        family_->add(*this);
    }
    ThreadTeam& operator=(ThreadTeam&&) = delete;
    [[gnu::cold]] ~ThreadTeam() { family_->remove(*this); }

    [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
    [[nodiscard]] int member(int rank) const noexcept { return members_[as_size(rank)]; }
    [[nodiscard]] ThreadSeat& seat(int rank) noexcept { return seats_[as_size(rank)]; }
    [[nodiscard]] std::shared_ptr<ThreadFamily> const& family() const noexcept { return family_; }

    void wake() noexcept {
        { std::lock_guard const lock(mutex_); }  // whoever was about to sleep now sleeps, or has seen the change
        wake_.notify_all();
    }

    // ---- The barrier -----------------------------------------------------------------------------------------

    /// What `me` says when it arrives next. Its last word stands in the other place, for who still reads that; the one
    /// before has been read by all, since all have arrived once more.
    void say(int me, ThreadWord const& word) noexcept {
        ThreadSeat& own = seat(me);
        own.call = word.call;
        own.words[(own.phase + 1) % 2] = word;
    }
    /// Whether all have said the same, quietly. \pre the phase in which they say it is over, the next is not
    [[nodiscard]] bool of_one_mind(int me) noexcept {
        std::uint64_t const place = seat(me).phase % 2;
        ThreadWord const& mine = seat(me).words[place];
        bool same = mine.quiet;
        for (int r = 0; same && r < size(); ++r) same = seat(r).words[place] == mine;
        return same;
    }

    /// Never blocks.
    [[gnu::noinline]] void arrive(int me) noexcept {
        ThreadSeat& own = seat(me);
        std::uint64_t const phase = ++own.phase;
        own.arrived.store(phase, std::memory_order_release);
        if (count_.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return;
        count_.store(0, std::memory_order_relaxed);
        std::uint64_t open = 2 * (phase - 1);  // unless somebody has given up waiting: then nobody gets beyond it
        phase_.compare_exchange_strong(open, 2 * phase, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
    }

    /// Whether all have arrived where `me` has.
    [[nodiscard]] bool reached(int me) noexcept { return phase_.load(std::memory_order_seq_cst) >= 2 * seat(me).phase; }

    /// Until reached(me). Throws what the failure makes of it for this rank.
    [[gnu::noinline]] void await(int me) {
        for (int i = family_->spins(); i > 0; --i) {
            if (reached(me)) return;
            relax();
        }
        // Other ranks may need this core; as long as there are any, giving it up is cheaper than sleeping.
        for (int i = 0; i < 60; ++i) {
            if (reached(me)) return;
            check_alarms(me);
            std::this_thread::yield();
        }
        sleep(me);
    }

    void assemble(int me) {
        arrive(me);
        await(me);
    }
    /// Whether all have arrived where `me` has; waits for them if it may. Throws as await() does.
    [[nodiscard]] bool meets(int me, bool may_block) {
        may_block ? await(me) : check_alarms(me);
        return reached(me);
    }

    /// Throws if `me`, which waits, waits in vain.
    void check_alarms(int me) {
        if (family_->alarms() == 0 || reached(me)) return;
        if (family_->poisoned()) raise_failure(me, true);
        for (int r = 0; r < size(); ++r) {
            if (!family_->returned(member(r))) continue;
            if (seat(r).arrived.load(std::memory_order_acquire) >= seat(me).phase) continue;
            poison(ErrorCode::peer_failed, member(r), -1, -1,
                   concat("rank ", member(r),
                          " returned while others wait for it. Fix: make every rank take part in every collective "
                          "call."));
            raise_failure(me, true);
        }
    }

    // ---- Failure ---------------------------------------------------------------------------------------------

    /// `who` of the family has failed; `first` and `second` of the team, or -1, may share the error itself.
    [[gnu::cold]] void poison(ErrorCode code, int who, int first, int second, std::string_view reason) noexcept {
        family_->poison(failure_record(code, who, scope(), first, second, reason));
    }
    /// Throws the family's failure as `me` must see it. \pre the family is poisoned.
    [[noreturn, gnu::cold]] void raise_failure(int me, bool waiting) const {
        bool reported = !waiting;  // who comes later hears of it as PeerFailed
        FailureRecord failure = family_->failure();
        bool const is_own = failure.first >= 0;  // it has waited for no rank
        if (waiting && !is_own) failure = told_to_waiting(failure, member(me), name(seats_[as_size(me)].call));
        detail::raise_failure(failure, "reshard::ThreadCommunicator", me, scope(), waiting, reported);
    }
    [[noreturn, gnu::cold]] void raise_mismatch(int me, int first, int second, std::string reason) {
        poison(ErrorCode::mismatch, member(me), first, second, reason);
        if (first < 0) raise_failure(me, true);  // what all share is what the first of them says
        raise(ErrorCode::mismatch, std::move(reason));
    }

    /// Runs a part of a collective. If it throws, nobody waits for `me` any longer, and `me` stays until nobody reads
    /// its memory any longer.
    [[gnu::noinline]] void guarded(int me, FunctionRef<void()> body) {
        watched(body, [&, this](ErrorCode, std::string_view reason) noexcept { abandon(me, reason); });
    }

    /// Runs `body` between the phases: with the flag up, after all made the same call.
    void read_others(int me, TeamCall call, FunctionRef<void()> body) {
        RaisedFlag const flag(seat(me).reading);
        check_poison(me);
        for (int r = 0; r < size(); ++r) {
            TeamCall const other = seat(r).words[seat(me).phase % 2].call;
            if (other != call) raise_mismatch(me, -1, -1, calls_text("ThreadCommunicator", me, call, r, other));
        }
        body();
    }
    void check_poison(int me, bool waiting = true) const {
        if (family_->poisoned()) raise_failure(me, waiting);
    }
    /// `me` has waited for too long, for something that is no rank.
    [[noreturn, gnu::cold]] void raise_deadline(int me, std::string_view text) {
        poison(ErrorCode::deadline, member(me), me, me, text);
        raise_failure(me, true);
    }

private:
    /// Failures name the team by its place in memory.
    [[nodiscard]] std::uint64_t scope() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
    void abandon(int me, std::string_view reason) noexcept {
        poison(ErrorCode::user, member(me), me, me, reason);
        for (int r = 0; r < size(); ++r) {
            while (r != me && seat(r).reading.load(std::memory_order_seq_cst)) std::this_thread::yield();
        }
    }

    void sleep(int me) {
        RaisedFlag const waits(family_->waits(member(me)));
        auto looked = Clock::now();
        auto limit = looked + comparable(family_->options().deadline);
        for (;;) {
            unsigned const seen = family_->alarms();
            check_alarms(me);
            Interruption& interruption = seat(me).interruption;
            if (interruption.wanted(looked))
                raise(ErrorCode::user, interrupted_text("ThreadCommunicator", name(seat(me).call)));
            auto const pause = interruption.asked != nullptr ? interruption.pause : std::chrono::milliseconds(200);
            std::unique_lock lock(mutex_);
            sleepers_.fetch_add(1, std::memory_order_seq_cst);
            bool late = false;
            while (!reached(me) && family_->alarms() == seen && !late && !interruption.is_due(looked)) {
                auto const next = std::min<Clock::time_point>(limit, looked + pause);
                bool const woken = wake_.wait_until(lock, next) == std::cv_status::no_timeout;
                auto const now = look_at_clock(limit, looked);
                late = !woken && now >= limit;
                if (late && somebody_reads()) {
                    late = false;
                    limit = now + comparable(family_->options().deadline);
                }
            }
            sleepers_.fetch_sub(1, std::memory_order_seq_cst);
            lock.unlock();
            if (reached(me)) return;
            if (late && close(me)) raise_deadline(me);
            if (late) return;
        }
    }

    /// Whether a rank copies. It comes, however long that takes, and who gave up would wait for it as well: abandon().
    [[nodiscard, gnu::cold]] bool somebody_reads() noexcept {
        for (ThreadSeat const& seat : seats_)
            if (seat.reading.load(std::memory_order_acquire)) return true;
        return false;
    }
    /// Nobody gets beyond the phase that `me` waits for; false: all have.
    bool close(int me) noexcept {
        std::uint64_t open = 2 * (seat(me).phase - 1);
        return phase_.compare_exchange_strong(open, open + 1, std::memory_order_seq_cst) || open < 2 * seat(me).phase;
    }
    [[noreturn, gnu::cold]] void raise_deadline(int me) {
        std::string missing;
        int rank = me;
        auto const find = [&, this](bool all) {
            for (int r = size() - 1; r >= 0; --r) {
                if (seat(r).arrived.load(std::memory_order_acquire) >= seat(me).phase) continue;
                if (!all && family_->waits(member(r)).load(std::memory_order_acquire)) continue;
                missing = concat(member(r), missing.empty() ? "" : ", ", missing);
                rank = r;
            }
        };
        find(false);
        bool const all_wait = missing.empty();
        if (all_wait) find(true);
        std::string const whom =
            missing.empty() ? ", though all have come (do two threads of a rank use this communicator at once?)"
                            : concat(" for rank ", missing, all_wait ? " (waiting, too)" : "");
        std::string const text =
            late_text("ThreadCommunicator", family_->options().deadline, seat(me).call, whom, "ThreadOptions");
        poison(ErrorCode::deadline, member(rank), -1, -1, text);
        raise_failure(me, true);
    }

    std::shared_ptr<ThreadFamily> family_;
    std::vector<int> members_;
    std::vector<ThreadSeat> seats_;
    alignas(no_false_sharing) std::atomic<int> count_{0};
    /// 2 p: all have arrived in phase p; 2 p + 1: and in the next one somebody has given up waiting.
    alignas(no_false_sharing) std::atomic<std::uint64_t> phase_{0};
    alignas(no_false_sharing) std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
};

inline void ThreadFamily::sound_alarm() noexcept {
    alarms_.fetch_add(1, std::memory_order_seq_cst);
    std::lock_guard const lock(mutex_);
    for (ThreadTeam* const team : teams_) team->wake();
}

}  // namespace reshard::inline v0_1::detail
