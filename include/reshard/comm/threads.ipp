// SPDX-License-Identifier: Apache-2.0
// How comm/threads.hpp is done.
#pragma once

#include <reshard/comm/detail/thread_exchange.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/memory/device_memory.hpp>

#include <algorithm>  // sort

#if defined(__linux__)
#include <sched.h>  // sched_getaffinity, sched_setaffinity
#endif

namespace reshard::inline v0 {

RESHARD_INLINE bool ThreadRequest::advance(bool may_block) {
    if (team_ == nullptr) return true;
    detail::ThreadTeam& team = *std::exchange(team_, nullptr);  // if this throws, the exchange is over
    bool stays = true;
    team.guarded(rank_, [&] {
        if (may_block) {
            team.await(rank_);
        } else if (!team.reached(rank_)) {
            return team.check_alarms(rank_);
        }
        if (pulled_) {
            detail::settle(team.seat(rank_), rank_);
            stays = false;
            return;
        }
        detail::pull(team, rank_);
        team.arrive(rank_);
        pulled_ = true;
        if (team.reached(rank_)) {
            detail::settle(team.seat(rank_), rank_);
            stays = false;
        }
    });
    if (stays) team_ = &team;
    return !stays;
}
RESHARD_INLINE void ThreadRequest::finish_quietly() noexcept {
    try {
        wait();
    } catch (...) {  // the other ranks know; this one asks the communicator again, or never
    }
}

RESHARD_INLINE int ThreadCommunicator::size() const noexcept { return team_->size(); }
RESHARD_INLINE Traffic ThreadCommunicator::traffic() const noexcept { return team_->seat(rank_).traffic; }
RESHARD_INLINE void ThreadCommunicator::check_memory(void const* memory) const { refuse_device_memory(name, memory); }
RESHARD_INLINE ThreadRequest ThreadCommunicator::exchange(std::span<Send const> sends,
                                                          std::span<Receive const> receives) {
    detail::ThreadSeat& own = enter(detail::ThreadCall::exchange);
    own.send_bytes = detail::checked_bytes(sends, size());
    own.receive_bytes = detail::checked_bytes(receives, size());
    own.sends = sends;
    own.receives = receives;
    own.busy = true;
    team_->arrive(rank_);
    return ThreadRequest(*team_, rank_);
}
template <class Body>
void ThreadCommunicator::meet(Body&& body) {
    team_->arrive(rank_);
    team_->await(rank_);
    team_->read_others(rank_, team_->seat(rank_).call, body);
    team_->arrive(rank_);
    team_->await(rank_);
}
RESHARD_INLINE Verdict ThreadCommunicator::agree(Verdict const& mine) {
    detail::ThreadSeat& own = enter(detail::ThreadCall::agree);
    own.verdict = &mine;
    Verdict joint;
    team_->guarded(rank_, [&] {
        meet([&] {
            joint = transport::joint_verdict(size(), [&](int r) -> Verdict const& { return *team_->seat(r).verdict; });
        });
    });
    return joint;
}
RESHARD_INLINE ThreadCommunicator ThreadCommunicator::split(int colour, int key) {
    detail::ThreadSeat& own = enter(detail::ThreadCall::split);
    own.colour = colour;
    own.key = key;
    std::shared_ptr<detail::ThreadTeam> child;
    int place = 0;
    team_->guarded(rank_, [&] {
        std::vector<int> ranks;
        meet([&] {
            ranks = ranks_like(colour);
            while (ranks[static_cast<std::size_t>(place)] != rank_) ++place;
            if (place == 0) own.child = make_child(ranks);
        });
        meet([&] { child = team_->seat(ranks[0]).child; });
        own.child.reset();
    });
    return {std::move(child), place};
}
RESHARD_INLINE void ThreadCommunicator::abort(ErrorCode code, std::string_view reason) noexcept {
    try {
        team_->family()->poison({code == ErrorCode::none ? ErrorCode::user : code, team_->member(rank_),
                                 std::string(reason), team_.get(), rank_, rank_});
    } catch (...) {  // no memory for the text: the others still learn who
        team_->family()->poison({ErrorCode::out_of_memory, team_->member(rank_), {}, team_.get(), rank_, rank_});
    }
}
RESHARD_INLINE detail::ThreadSeat& ThreadCommunicator::enter(detail::ThreadCall call) {
    team_->check_alive(rank_);
    detail::ThreadSeat& own = team_->seat(rank_);
    if (own.busy) {
        raise(ErrorCode::transport,
              "reshard::ThreadCommunicator: an exchange is under way. Fix: wait() for its "
              "request first, or split the communicator.");
    }
    own.call = call;
    return own;
}
RESHARD_INLINE std::vector<int> ThreadCommunicator::ranks_like(int colour) {
    if (colour < 0) return {rank_};
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r)
        if (team_->seat(r).colour == colour) ranks.push_back(r);
    std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        int const key_a = team_->seat(a).key;
        int const key_b = team_->seat(b).key;
        return key_a != key_b ? key_a < key_b : a < b;
    });
    return ranks;
}
RESHARD_INLINE std::shared_ptr<detail::ThreadTeam> ThreadCommunicator::make_child(std::vector<int> ranks) {
    for (int& rank : ranks) rank = team_->member(rank);
    return detail::ThreadTeam::make(team_->family(), std::move(ranks));
}

namespace detail {

/// Best effort: a rank that cannot be bound runs where the system puts it.
inline void pin_to_core([[maybe_unused]] int rank) noexcept {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
    int skip = rank % CPU_COUNT(&allowed);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
#endif
}

/// What a rank left behind.
struct RankEnd {
    std::exception_ptr error;
    bool is_consequence = false;  ///< PeerFailed: some other rank knows better what happened
};

/// One rank from start to end. Whatever leaves the body reaches the others before this rank counts as returned.
inline void run_rank(std::shared_ptr<ThreadTeam> const& team, int rank, ThreadBody call, void* body,
                     RankEnd& end) noexcept {
    if (team->family()->options().pin) pin_to_core(rank);
    {
        ThreadCommunicator comm(team, rank);
        ThreadCommunicator own(team, rank);  // the body may move `comm` elsewhere, into a policy for example
        try {
            call(body, comm);
        } catch (Error const& error) {
            end = {std::current_exception(), error.code() == ErrorCode::peer_failed};
            own.abort(error.code(), error.message());
        } catch (std::exception const& error) {
            end = {std::current_exception(), false};
            own.abort(ErrorCode::user, error.what());
        } catch (...) {
            end = {std::current_exception(), false};
            own.abort(ErrorCode::user, "an exception that is not a std::exception");
        }
    }
    team->family()->mark_returned(rank);
}

}  // namespace detail

RESHARD_INLINE void detail::run_on_threads(int ranks, ThreadOptions const& options, ThreadBody call, void* body) {
    if (ranks < 1) {
        raise(ErrorCode::mesh, concat("reshard::run_on_threads: ", ranks, " ranks. Fix: start at least one."));
    }
    std::vector<int> members(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) members[static_cast<std::size_t>(r)] = r;
    auto const team = ThreadTeam::make(std::make_shared<ThreadFamily>(ranks, options), std::move(members));
    std::vector<RankEnd> ends(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    auto join_all = [&] {
        for (auto& thread : threads) thread.join();
    };
    try {
        threads.reserve(ends.size());
        for (int r = 0; r < ranks; ++r) {
            threads.emplace_back([&, r] { run_rank(team, r, call, body, ends[static_cast<std::size_t>(r)]); });
        }
    } catch (...) {
        team->family()->poison({ErrorCode::out_of_memory, static_cast<int>(threads.size()),
                                "its thread could not be started", team.get()});
        join_all();
        throw;
    }
    join_all();
    for (bool const consequences : {false, true}) {
        for (auto const& end : ends)
            if (end.error && end.is_consequence == consequences) std::rethrow_exception(end.error);
    }
}

}  // namespace reshard::inline v0
