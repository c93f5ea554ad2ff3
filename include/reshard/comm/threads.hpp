// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/threads.hpp
/// \brief  Ranks that are threads of this process: ThreadCommunicator, and run_on_threads() which starts them.
/// \depends comm/communicator.hpp, memory, <thread>, <mutex>, <condition_variable>, <chrono>. Needs exceptions.
///
/// Destinations copy straight from the peer's memory: each byte moves once, past the caches when it is many of them.
#pragma once

#include <reshard/comm/detail/thread_exchange.hpp>
#include <reshard/memory/device_memory.hpp>

#include <algorithm>  // sort

#if defined(__linux__)
#include <sched.h>  // sched_getaffinity, sched_setaffinity
#endif

namespace reshard::inline v0 {

/// An exchange among threads. Does its part of the copying in wait() or test(), so one of them must be called.
class [[nodiscard]] ThreadRequest {
public:
    ThreadRequest() = default;
    ThreadRequest(ThreadRequest&& other) noexcept
        : team_(std::exchange(other.team_, nullptr)), rank_(other.rank_), pulled_(other.pulled_) {}
    ThreadRequest& operator=(ThreadRequest&& other) noexcept {
        if (this == &other) return *this;
        finish_quietly();
        team_ = std::exchange(other.team_, nullptr);
        rank_ = other.rank_;
        pulled_ = other.pulled_;
        return *this;
    }
    ThreadRequest(ThreadRequest const&) = delete;
    ThreadRequest& operator=(ThreadRequest const&) = delete;
    ~ThreadRequest() { finish_quietly(); }

    void wait() {
        while (!advance(true)) {
        }
    }
    [[nodiscard]] bool test() { return advance(false); }
    [[nodiscard]] bool done() const noexcept { return team_ == nullptr; }

private:
    friend class ThreadCommunicator;
    ThreadRequest(detail::ThreadTeam& team, int rank) noexcept : team_(&team), rank_(rank) {}

    /// One step: pull after phase 1, settle after phase 2. True when there is nothing left to do.
    bool advance(bool may_block) {
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
    void finish_quietly() noexcept {
        try {
            wait();
        } catch (...) {  // the other ranks know; this one asks the communicator again, or never
        }
    }

    detail::ThreadTeam* team_ = nullptr;
    int rank_ = 0;
    bool pulled_ = false;
};

namespace detail {
struct ThreadAccess;
}

/// A rank among threads; run_on_threads() makes the first ones, split() the others. Used by its own thread only.
class ThreadCommunicator : public MeshSplit<ThreadCommunicator> {
public:
    static constexpr std::string_view name = "threads";
    using request_type = ThreadRequest;
    using MeshSplit<ThreadCommunicator>::split;

    ThreadCommunicator(std::shared_ptr<detail::ThreadTeam> team, int rank) noexcept
        : team_(std::move(team)), rank_(rank) {}
    ThreadCommunicator(ThreadCommunicator&&) noexcept = default;
    ThreadCommunicator& operator=(ThreadCommunicator&&) noexcept = default;
    ThreadCommunicator(ThreadCommunicator const&) = delete;
    ThreadCommunicator& operator=(ThreadCommunicator const&) = delete;
    ~ThreadCommunicator() = default;

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return team_->size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return team_->seat(rank_).traffic; }

    /// Lays the transfers out for the peers and returns; never blocks. See the concept for what must hold.
    /// Throws TransportError for transfers out of order or an exchange already under way.
    ThreadRequest exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        detail::ThreadSeat& own = enter(detail::ThreadCall::exchange);
        own.send_bytes = detail::checked_bytes(sends, size());
        own.receive_bytes = detail::checked_bytes(receives, size());
        own.sends = sends;
        own.receives = receives;
        own.busy = true;
        team_->arrive(rank_);
        return ThreadRequest(*team_, rank_);
    }

    [[nodiscard]] Verdict agree(Verdict const& mine) {
        detail::ThreadSeat& own = enter(detail::ThreadCall::agree);
        own.verdict = &mine;
        Verdict joint;
        team_->guarded(rank_, [&] {
            meet([&] {
                joint =
                    transport::joint_verdict(size(), [&](int r) -> Verdict const& { return *team_->seat(r).verdict; });
            });
        });
        return joint;
    }

    /// Collective. Ranks of one colour >= 0, ordered by (key, rank). The new communicator shares the fate of this one:
    /// poison in one is poison in both.
    [[nodiscard]] ThreadCommunicator split(int colour, int key) {
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

    /// Throws BufferError for memory of a device: this transport moves the host's.
    void check_memory(void const* memory) const { refuse_device_memory(name, memory); }

    void abort(ErrorCode code, std::string_view reason) noexcept {
        try {
            team_->family()->poison({code == ErrorCode::none ? ErrorCode::user : code, team_->member(rank_),
                                     std::string(reason), team_.get(), rank_, rank_});
        } catch (...) {  // no memory for the text: the others still learn who
            team_->family()->poison({ErrorCode::out_of_memory, team_->member(rank_), {}, team_.get(), rank_, rank_});
        }
    }

private:
    friend struct detail::ThreadAccess;

    detail::ThreadSeat& enter(detail::ThreadCall call) {
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

    /// Both phases, with `body` between them.
    template <class Body>
    void meet(Body&& body) {
        team_->arrive(rank_);
        team_->await(rank_);
        team_->read_others(rank_, team_->seat(rank_).call, body);
        team_->arrive(rank_);
        team_->await(rank_);
    }

    /// Ranks of this team with `colour`, in their order in the child; this rank alone for a negative one.
    std::vector<int> ranks_like(int colour) {
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
    std::shared_ptr<detail::ThreadTeam> make_child(std::vector<int> ranks) {
        for (int& rank : ranks) rank = team_->member(rank);
        return detail::ThreadTeam::make(team_->family(), std::move(ranks));
    }

    std::shared_ptr<detail::ThreadTeam> team_;
    int rank_;
};

static_assert(Communicator<ThreadCommunicator>);

namespace detail {

/// For transports that move memory of their own between the same ranks.
struct ThreadAccess {
    [[nodiscard]] static std::shared_ptr<ThreadTeam> const& team(ThreadCommunicator const& comm) noexcept {
        return comm.team_;
    }
    /// Every collective call starts here; throws as the calls of the communicator do.
    static ThreadSeat& enter(ThreadCommunicator& comm, ThreadCall call) { return comm.enter(call); }
};

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
template <class F>
void run_rank(std::shared_ptr<ThreadTeam> const& team, int rank, F& body, RankEnd& end) noexcept {
    if (team->family()->options().pin) pin_to_core(rank);
    {
        ThreadCommunicator comm(team, rank);
        ThreadCommunicator own(team, rank);  // the body may move `comm` elsewhere, into a policy for example
        try {
            body(comm);
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

/// Runs body(ThreadCommunicator&) on `ranks` threads and returns when all have ended.
///
/// An exception of one rank ends the others' collective calls with PeerFailed and is then thrown from here, with its
/// own type: the one of the lowest rank whose exception is not itself PeerFailed. A rank that returns while others
/// wait for it fails them too. Throws MeshError for fewer than one rank, and what std::thread throws.
template <class F>
void run_on_threads(int ranks, ThreadOptions const& options, F&& body) {
    if (ranks < 1) {
        raise(ErrorCode::mesh, concat("reshard::run_on_threads: ", ranks, " ranks. Fix: start at least one."));
    }
    std::vector<int> members(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) members[static_cast<std::size_t>(r)] = r;
    auto const team =
        detail::ThreadTeam::make(std::make_shared<detail::ThreadFamily>(ranks, options), std::move(members));
    std::vector<detail::RankEnd> ends(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    auto join_all = [&] {
        for (auto& thread : threads) thread.join();
    };
    try {
        threads.reserve(ends.size());
        for (int r = 0; r < ranks; ++r) {
            threads.emplace_back([&, r] { detail::run_rank(team, r, body, ends[static_cast<std::size_t>(r)]); });
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
template <class F>
void run_on_threads(int ranks, F&& body) {
    run_on_threads(ranks, ThreadOptions{}, body);
}

}  // namespace reshard::inline v0
