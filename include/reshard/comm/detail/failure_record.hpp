// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/failure_record.hpp
/// \brief  What ranks were doing, and the first thing that went wrong among them: as it travels, and as each throws it.
/// \depends comm/communicator.hpp, core/detail/own_process.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/core/detail/own_process.hpp>

#include <sched.h>

#include <atomic>   // atomic
#include <chrono>   // steady_clock
#include <cstring>  // memcpy

namespace reshard::inline v0_1::detail {

/// What a rank of a transport is in the middle of.
enum class TeamCall : std::uint8_t { none, exchange, agree, split, allocate, native, device_exchange };

[[nodiscard]] constexpr std::string_view name(TeamCall call) noexcept {
    constexpr std::string_view names[] = {
        "making the communicator", "exchange", "agree", "split", "allocate", "a native collective",
        "exchange among devices"};
    return names[static_cast<int>(call)];
}

struct FailureRecord {
    int code = 0;             ///< an ErrorCode
    int rank = -1;            ///< who failed, in the outermost communicator; -1: nobody knows
    int teller = -1;          ///< who saw it first, and tells the user
    std::uint64_t scope = 0;  ///< the communicator it happened in: its ranks may share the error itself
    int first = -1;           ///< a mismatch belongs to these two ranks of that communicator; both -1: to all
    int second = -1;
    char reason[1000] = {};
};

[[nodiscard]] inline FailureRecord failure_record(ErrorCode code, int rank, std::uint64_t scope, int first, int second,
                                                  std::string_view reason) noexcept {
    FailureRecord failure{
        static_cast<int>(code == ErrorCode::none ? ErrorCode::user : code), rank, -1, scope, first, second};
    std::memcpy(failure.reason, reason.data(), smaller(reason.size(), sizeof(failure.reason) - 1));
    return failure;
}

// What is said on every transport; `who` is what it calls the communicator.

[[nodiscard]] inline std::string calls_text(std::string_view who, int rank, TeamCall call, int other, TeamCall theirs) {
    return concat("reshard::", who, ": rank ", rank, " called ", name(call), " while rank ", other, " called ",
                  name(theirs), ". Fix: ", same_calls, transport::who_agrees);
}
[[nodiscard]] inline std::string late_text(std::string_view who, std::chrono::milliseconds deadline, TeamCall call,
                                           std::string_view for_whom, std::string_view options) {
    return concat("reshard::", who, ": waited ", Index{deadline.count()}, " ms in ", name(call), for_whom,
                  ". Fix: find out why it does not come, or raise ", options, "::deadline.");
}
[[nodiscard]] inline std::string died_text(int rank, Index process) {
    return concat(
        "rank ", rank, " (process ", process,
        ") has died while others wait for it. Fix: look for what ended it: a signal, a lack of memory, an exit "
        "in the middle.");
}

/// The first failure, in memory that processes share and that is zero before.
struct SharedFailure {
    std::atomic<std::uint32_t> state;  ///< 0: all is well; 1: somebody writes; 2: written
    FailureRecord record;

    /// Whether anybody has failed; then `failure` is what failed first.
    [[nodiscard]] bool heard(FailureRecord& failure) const noexcept {
        if (state.load(std::memory_order_seq_cst) == 0) return false;
        constexpr int patience = 100'000;  // whoever writes it may die
        for (int turn = 0; turn < patience && state.load(std::memory_order_acquire) == 1; ++turn) sched_yield();
        if (state.load(std::memory_order_acquire) == 2) {
            std::memcpy(&failure, &record, sizeof failure);
        } else {
            failure = failure_record(ErrorCode::peer_failed, -1, 0, -1, -1,
                                     "a rank has died while it told the others what had failed. Fix: look for what "
                                     "ended it: a signal, a lack of memory, an exit in the middle.");
        }
        return true;
    }
    /// Whether `failure` is the first; else it becomes what was.
    bool tell(FailureRecord& failure) noexcept {
        std::uint32_t none = 0;
        if (!state.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) {
            static_cast<void>(heard(failure));
            return false;
        }
        std::memcpy(&record, &failure, sizeof failure);
        state.store(2, std::memory_order_seq_cst);
        return true;
    }
};

/// Whether the program wants a wait to end: it is asked from time to time.
struct Interruption {
    using Time = std::chrono::steady_clock::time_point;

    static constexpr std::chrono::milliseconds pause{20};  ///< until it is asked again
    bool (*asked)() = nullptr;                             ///< see MpiOptions
    Time next{};

    [[nodiscard]] bool is_due(Time now) const noexcept { return asked != nullptr && now >= next; }
    /// By a look at the clock.
    [[nodiscard]] bool wanted(Time now) {
        if (!is_due(now)) return false;
        next = now + pause;
        return asked();
    }
};
[[nodiscard, gnu::cold]] inline std::string interrupted_text(std::string_view who, std::string_view call) {
    return concat("reshard::", who, ": interrupted() of its options has ended a wait in ", call,
                  ". Fix: to go on, let all ranks make a new communicator.");
}

/// What the communicators of a rank share that were split from one: the first failure it knows of. When the copy of a
/// child that was forked goes, nobody has left, and what MPI or NCCL hold is the parent's.
struct TeamFamily : OfProcess {
    std::chrono::milliseconds deadline{};  ///< of their waits
    Interruption interruption;
    int rank = -1;                    ///< in the outermost of them
    SharedFailure* shared = nullptr;  ///< of the node, if there is one
    FailureRecord failure;            ///< once it is poisoned; never changes again
    bool poisoned = false;
    bool reported = false;  ///< the failure was thrown with its own type to this rank

    [[nodiscard]] bool hear() noexcept {
        if (!poisoned && shared != nullptr) poisoned = shared->heard(failure);
        return poisoned;
    }
    /// Unless there is a failure. Whether it was the first that this rank knows of.
    bool poison(FailureRecord const& mine) noexcept { return !hear() && record(mine); }

protected:
    /// In this process and on this node. False when the node knew of another failure before; then that one counts.
    bool record(FailureRecord const& mine) noexcept {
        failure = mine;
        poisoned = true;
        return shared == nullptr || shared->tell(failure);
    }
};

/// How a rank has left a communicator, in a word that others look at.
enum class Departure : std::uint32_t { none, returned, thrown };

/// Since when something is so.
struct Lasting {
    std::chrono::steady_clock::time_point since{};

    /// Whether it is so for long: since this was first asked.
    [[nodiscard]] bool lasts(std::chrono::milliseconds most) noexcept {
        auto const now = std::chrono::steady_clock::now();
        if (since == std::chrono::steady_clock::time_point{}) since = now;
        return now - since >= most;
    }
};

/// What `rank` of the outermost communicator hears of a failure while it waits in `call`, and for whom (" for rank 1")
/// if it knows. Of a deadline that others have exceeded waiting for it: ranks that cannot see each other do not know
/// that they are in different calls.
[[nodiscard, gnu::cold]] inline FailureRecord told_to_waiting(FailureRecord const& failure, int rank,
                                                              std::string_view call, std::string_view for_whom = {}) {
    if (failure.rank != rank || failure.code != static_cast<int>(ErrorCode::deadline)) return failure;
    return failure_record(
        ErrorCode::deadline, rank, failure.scope, failure.first, failure.second,
        concat(failure.reason, " (This is that rank, and it waits itself, in ", call, for_whom,
               ". Where it came late, see what kept it; where the others are in another call, ", same_calls, ")"));
}

/// Throws it as `rank` of the communicator `scope` must see it: one who did not wait has exceeded no deadline, and an
/// error that ranks share is thrown once, afterwards it is PeerFailed.
[[noreturn, gnu::cold]] inline void raise_failure(FailureRecord const& failure, std::string_view transport, int rank,
                                                  std::uint64_t scope, bool waiting, bool& reported) {
    auto const code = static_cast<ErrorCode>(failure.code);
    bool const everyone = failure.first < 0 && failure.second < 0;
    bool const ours = everyone || failure.first == rank || failure.second == rank;
    bool const shared = code == ErrorCode::mismatch || (code == ErrorCode::deadline && waiting);
    if (failure.scope == scope && ours && shared && !std::exchange(reported, true)) raise(code, failure.reason);
    std::string_view const reason = failure.reason;
    bool const says_who = failure.rank < 0 && reason.starts_with("reshard::");
    raise(ErrorCode::peer_failed, says_who ? std::string_view() : transport, says_who ? "" : ": ",
          failure.rank < 0 ? std::string() : concat("rank ", failure.rank, " failed: "), reason);
}

}  // namespace reshard::inline v0_1::detail
