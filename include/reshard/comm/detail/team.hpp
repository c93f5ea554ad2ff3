// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/team.hpp
/// \brief  What MPI and NCCL do not do for the ranks of a communicator: find out who is lost, wait no longer than that
///         or the deadline, fail together and agree.
/// \depends comm/detail/{agree_in_words,failure_record,process}.hpp, core/detail/{waiting,watched}.hpp.
#pragma once

#include <reshard/comm/detail/agree_in_words.hpp>
#include <reshard/comm/detail/failure_record.hpp>
#include <reshard/comm/detail/process.hpp>
#include <reshard/core/detail/waiting.hpp>
#include <reshard/core/detail/watched.hpp>

#include <algorithm>  // min
#include <memory>     // shared_ptr
#include <vector>

namespace reshard::inline v0_1::detail {

/// What ranks of a node see of one of theirs. Written by its owner.
struct Attendance {
    std::atomic<std::uint64_t> entered{0};  ///< calls made so far, and which the last one was
    std::atomic<Departure> left{};          ///< its communicator is gone
    std::atomic<std::uint32_t> reading{0};  ///< whether it copies at this moment
    std::atomic<std::uint32_t> waits{0};    ///< of the outermost communicator: whether it waits, in any of the family
};

/// What a step towards the end of a wait did; of a bool, whether it is complete.
struct TeamStep {
    enum Kind : std::uint8_t { idle, moved, complete } kind;
    constexpr TeamStep(Kind it) noexcept : kind(it) {}
    constexpr TeamStep(bool is_complete) noexcept : kind(is_complete ? complete : idle) {}
};
/// Calls visit(rank) for each rank that a wait is for, as far as the one that waits knows.
using Missing = FunctionRef<void(FunctionRef<void(int)> visit)>;

/// Who keeps a rank waiting, as far as it can see, and why it thinks so.
struct Suspects {
    static constexpr std::string_view wait_too = " (waiting, too)";

    std::vector<int> ranks;
    std::string_view why;
};

/// One communicator of one rank. `Family`, a TeamFamily, is shared with its relatives. `Self` inherits this and has
///
///   name, settings               what its texts call it: "MpiCommunicator", "MpiOptions"
///   farewell                     longer than what its destructor does
///   knows_senders                whether an exchange knows whom it waits for
///   attendance(rank)             of a rank that this one can see; else null
///   process(rank)                its process; 0: one that cannot be looked at
///   outermost_seat(rank)         its Attendance in the outermost communicator, or null
///   silence()                    for whom or what this rank waits when it can see nobody who is late
///   look_around()                throws what else may have gone wrong meanwhile
///   may_name(suspects, since, missing)   whether to give up a wait, or to look further; may know better who is late
///   maximum(words, patience)     collective: of each word the largest of all ranks
///   guarded(body)                what body() returns; if it throws, the others hear of it
template <class Self, class Family>
class Team {
public:
    Team& operator=(Team&&) = delete;
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] int member(int rank) const noexcept { return members_[as_size(rank)]; }
    [[nodiscard]] std::shared_ptr<Family> const& family() const noexcept { return family_; }

    /// This rank makes no further call: whoever waits for one need not.
    void leave() noexcept {
        auto const how = std::uncaught_exceptions() > 0 ? Departure::thrown : Departure::returned;
        if (own_ != nullptr && family_->is_ours()) own_->left.store(how, std::memory_order_release);
    }

    // ---- Calls and waits -------------------------------------------------------------------------------------

    /// Visits whoever has a part in a call that does not say whom it waits for: who has entered is waited for as well,
    /// since it may die, or stop, before it has done its part.
    [[nodiscard]] auto everybody() const noexcept {
        return [this](FunctionRef<void(int)> visit) {
            for (int rank = 0; rank < size_; ++rank)
                if (rank != rank_) visit(rank);
        };
    }
    /// Calls step() until it is complete. Throws DeadlineExceeded when nothing moves for too long, PeerFailed when
    /// somebody fails, leaves or dies: then only after `patience`, for what may still complete although somebody has
    /// gone on and failed.
    void await(FunctionRef<TeamStep()> step, Missing missing, std::chrono::milliseconds patience = {}) {
        auto since = Clock::now();
        auto seen = since;
        auto looked = since;
        std::chrono::milliseconds pause{2};     // between looks, which cost a few system calls per rank
        auto limit = Clock::time_point::max();  // of the patience
        std::unique_ptr<std::atomic<std::uint32_t>, LowerFlag> waits;  // g++ 12 takes an optional RaisedFlag amiss
        int idle = 0;
        for (;;) {
            switch (step().kind) {
                case TeamStep::complete: return;
                case TeamStep::moved: idle = 0; break;
                case TeamStep::idle: idle = smaller(idle + 1, 1 << 20); break;
            }
            if (family_->hear()) {
                if (limit == Clock::time_point::max()) limit = Clock::now() + patience;
                if (Clock::now() >= limit) raise_failure(true, for_whom(missing));
                sched_yield();
                continue;
            }
            if (idle == 0) {
                waits.reset();
                since = seen = looked = Clock::now();
                pause = std::chrono::milliseconds(2);
                heed_interruption(since);
                continue;
            }
            if (idle <= spins_) continue;
            sched_yield();
            if (idle % 16 != 0) continue;
            auto const now = look_at_clock(since, seen);
            heed_interruption(now);
            // Who has waited for long has nothing to lose by a little more: the core is another's meanwhile.
            if (now - since >= std::chrono::milliseconds(2)) {
                // Within a step a rank may wait once more: the flag is the outer wait's then.
                Attendance* const own = self().outermost_seat(rank_);
                if (own != nullptr && own->waits.exchange(1, std::memory_order_seq_cst) == 0) waits.reset(&own->waits);
                std::this_thread::sleep_for(
                    std::min<Clock::duration>((now - since) / 64, std::chrono::milliseconds(1)));
            }
            if (now - looked < pause) continue;
            looked = now;
            self().look_around();
            pause = std::min<std::chrono::milliseconds>(2 * pause, std::chrono::milliseconds(50));
            look_for_the_lost(missing);
            if (now - since < family_->deadline) continue;  // + would overflow for the largest
            if (somebody_copies()) {
                since = now;
            } else if (Suspects found = suspects(missing); self().may_name(found, since, missing)) {
                raise_deadline(found);
            }
        }
    }
    /// The same, or, for those who come again and again instead of waiting, one step: throws as await() does, but knows
    /// no deadline. Whether it is complete.
    [[nodiscard]] bool advance(bool may_block, FunctionRef<TeamStep()> step, Missing missing) {
        if (may_block) return await(step, missing), true;
        if (step().kind == TeamStep::complete) return true;
        if (family_->hear()) raise_failure(true, for_whom(missing));
        if (++glances_ % 256 != 0) return false;
        self().look_around();
        look_for_the_lost(missing);
        return false;
    }
    /// As long as that, but no longer than the deadline.
    [[nodiscard]] std::chrono::milliseconds patience(std::chrono::milliseconds most) const noexcept {
        return std::min(family_->deadline, most);
    }

    /// Throws, and tells everybody, when the program wants the wait to end.
    void heed_interruption(Clock::time_point now) {
        if (!family_->interruption.wanted(now)) return;
        std::string text = interrupted_text(Self::name, detail::name(call_));
        poison(ErrorCode::user, text);
        raise(ErrorCode::user, std::move(text));
    }

    // ---- Failure ---------------------------------------------------------------------------------------------

    /// Throws the family's failure as this rank must see it: one who did not wait has exceeded no deadline.
    /// \pre the family is poisoned.
    [[noreturn]] void raise_failure(bool waiting = true, std::string_view whom = {}) {
        FailureRecord failure = family_->failure;
        if (Self::knows_senders && waiting)
            failure = told_to_waiting(failure, family_->rank, detail::name(call_), whom);
        detail::raise_failure(failure, concat("reshard::", Self::name), rank_, scope_, waiting, family_->reported);
    }
    /// Tells everybody that the payloads of two ranks differ, or with -1 that ranks do different things, and throws.
    [[noreturn]] void raise_mismatch(int first, int second, std::string const& reason) {
        family_->poison(failure_record(ErrorCode::mismatch, family_->rank, scope_, first, second, reason));
        raise_failure();
    }
    /// Tells everybody that a rank is lost, and throws.
    [[noreturn]] void raise_loss(int rank, std::string_view reason) {
        family_->poison(failure_record(ErrorCode::peer_failed, member(rank), scope_, -1, -1, reason));
        raise_failure();
    }
    /// The same of one whose process, of this node, has died.
    [[noreturn]] void raise_death(int rank) { raise_loss(rank, died_text(member(rank), self().process(rank))); }
    /// The same where it has. What the dead one has sent before may be all that is still waited for:
    /// it has a moment to arrive.
    void look_for_death(int rank) {
        int const pid = self().process(rank);
        if (pid != 0 && !process_lives(pid) && death_.lasts(std::chrono::milliseconds(100))) raise_death(rank);
    }
    /// Whether it is the first failure that this rank knows of.
    bool poison(ErrorCode code, std::string_view reason) noexcept {
        return family_->poison(failure_record(code, family_->rank, scope_, rank_, rank_, reason));
    }

    /// Collective.
    [[nodiscard]] Verdict agree(Verdict const& mine) {
        auto const maximum = [&, this](std::span<std::uint64_t> words, std::chrono::milliseconds most) {
            self().maximum(words, patience(most));
        };
        return self().guarded([&, this] { return agree_in_words(mine, rank_, size_, maximum); });
    }

protected:
    explicit Team(std::shared_ptr<Family> family) noexcept : family_(std::move(family)) {}
    ~Team() = default;

    void begin_call(TeamCall call) noexcept {
        call_ = call;
        ++calls_;
        death_ = absence_ = {};
        if (own_ != nullptr)
            own_->entered.store(calls_ << 8U | static_cast<std::uint64_t>(call), std::memory_order_release);
    }
    [[nodiscard]] static bool may_name(auto&&...) noexcept { return true; }
    [[nodiscard]] std::vector<bool> awaited_of(Missing missing) const {
        std::vector<bool> awaited(as_size(size_), false);
        missing([&](int rank) { awaited[as_size(rank)] = true; });
        return awaited;
    }
    /// The other ranks for which it is so.
    [[nodiscard]] std::vector<int> ranks_where(FunctionRef<bool(int)> is_one) const {
        std::vector<int> found;
        for (int rank = 0; rank < size_; ++rank)
            if (rank != rank_ && is_one(rank)) found.push_back(rank);
        return found;
    }

    std::shared_ptr<Family> family_;
    int rank_ = 0;
    int size_ = 1;
    std::uint64_t scope_ = 0;
    std::vector<int> members_;  ///< their ranks in the outermost communicator
    Attendance* own_ = nullptr;
    int spins_ = 0;  ///< idle steps until this rank gives its core away
    std::uint64_t calls_ = 0;
    TeamCall call_ = TeamCall::none;

private:
    struct LowerFlag {
        void operator()(std::atomic<std::uint32_t>* flag) const noexcept { flag->store(0, std::memory_order_seq_cst); }
    };
    [[nodiscard]] Self& self() noexcept { return static_cast<Self&>(*this); }

    /// Throws if one of those we wait for has died, left, or is busy with another call.
    void look_for_the_lost(Missing missing) {
        missing([&, this](int rank) {
            look_for_death(rank);
            Attendance const* const there = self().attendance(rank);
            if (there == nullptr) return;
            Departure const left = there->left.load(std::memory_order_acquire);  // before `entered`
            std::uint64_t const entered = there->entered.load(std::memory_order_acquire);
            auto const theirs = static_cast<TeamCall>(entered & 0xffU);
            if (entered >> 8U == calls_ && theirs != call_)
                raise_mismatch(-1, -1, calls_text(Self::name, rank_, call_, rank, theirs));
            if (entered >> 8U >= calls_ || left == Departure::none) return;
            // An exception that destroys a communicator is told to all by whoever catches it, in words that say more
            // than 'has left': they have a while to come.
            if (left == Departure::thrown && !absence_.lasts(Self::farewell)) return;
            raise_loss(rank, concat("rank ", member(rank),
                                    " has left while others wait for it. Fix: make every rank take part in every "
                                    "collective call."));
        });
    }

    /// Whether a rank copies, in this call or before it, that is neither dead nor stopped: it comes, however long that
    /// takes. Who is beyond it keeps nobody waiting here.
    [[nodiscard, gnu::cold]] bool somebody_copies() noexcept {
        for (int rank = 0; rank < size_; ++rank) {
            Attendance const* const there = self().attendance(rank);
            if (there == nullptr || there->reading.load(std::memory_order_acquire) == 0) continue;
            if (there->entered.load(std::memory_order_acquire) >> 8U > calls_) continue;
            int const pid = self().process(rank);
            if (process_lives(pid) && !process_is_stopped(pid)) return true;
        }
        return false;
    }
    [[nodiscard]] Suspects suspects(Missing missing) {
        std::vector<bool> const awaited = awaited_of(missing);
        // Calls a rank has made, as far as this one can see.
        auto const calls_of = [&, this](int rank) {
            Attendance const* const there = self().attendance(rank);
            return there == nullptr ? calls_ : there->entered.load(std::memory_order_acquire) >> 8U;
        };
        auto const is_stopped = [&, this](int rank) {
            int const pid = self().process(rank);
            return pid != 0 && process_is_stopped(pid);
        };
        auto const waits = [&, this](int rank) {
            Attendance const* const there = self().outermost_seat(rank);
            return there != nullptr && there->waits.load(std::memory_order_acquire) != 0 && !is_stopped(rank);
        };
        // Of those who have not come, the ones furthest behind: others may be waiting for them in turn. First of those
        // we wait for, then of all: whom we wait for may wait for somebody else. And who waits itself, in whichever
        // communicator, after those who do not.
        for (int turn = 0; turn < 4; ++turn) {
            bool const all = turn % 2 != 0;
            bool const waiting = turn > 1;
            auto const counts = [&](int rank) {
                return calls_of(rank) < calls_ && (all || awaited[as_size(rank)]) && waits(rank) == waiting;
            };
            std::uint64_t furthest = calls_;
            for (int rank : ranks_where(counts)) furthest = smaller(furthest, calls_of(rank));
            if (furthest == calls_) continue;
            return {ranks_where([&](int rank) { return counts(rank) && calls_of(rank) == furthest; }),
                    waiting ? Suspects::wait_too : ""};
        }
        if (auto found = ranks_where(is_stopped); !found.empty()) {
            return {std::move(found), " (it has come, but is stopped)"};
        }
        if (call_ != TeamCall::exchange || !Self::knows_senders) return {};
        return {ranks_where([&](int rank) { return awaited[as_size(rank)]; }), ""};
    }
    /// " for rank 1, 2", in the outermost communicator.
    [[nodiscard]] std::string names_of(std::vector<int> const& ranks) const {
        constexpr std::size_t most = 16;
        std::string text;
        for (std::size_t i = 0; i < smaller(most, ranks.size()); ++i)
            text = concat(text, i == 0 ? " for rank " : ", ", member(ranks[i]));
        return ranks.size() <= most ? text : concat(text, " and ", ranks.size() - most, " more");
    }
    /// The same of those whom this rank waits for, where it knows them.
    [[nodiscard, gnu::cold]] std::string for_whom(Missing missing) const {
        if (call_ != TeamCall::exchange || !Self::knows_senders) return {};
        auto const awaited = awaited_of(missing);
        return names_of(ranks_where([&](int rank) { return awaited[as_size(rank)]; }));
    }
    [[noreturn]] void raise_deadline(Suspects const& found) {
        std::string who = names_of(found.ranks);
        if (who.empty()) who = self().silence();
        std::string const text =
            late_text(Self::name, family_->deadline, call_, concat(who, found.why), Self::settings);
        // One that cannot be seen: nobody knows, but for who waits for a device of its own.
        int const unseen = Self::knows_senders ? -1 : family_->rank;
        int const culprit = found.ranks.empty() ? unseen : member(found.ranks.front());
        family_->poison(failure_record(ErrorCode::deadline, culprit, scope_, -1, -1, text));
        raise_failure();
    }

    Lasting death_;
    Lasting absence_;
    unsigned glances_ = 0;
};

}  // namespace reshard::inline v0_1::detail
