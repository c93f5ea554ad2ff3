// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/threads.hpp
/// \brief  Ranks that are threads of this process: ThreadCommunicator, and run_on_threads() which starts them.
/// \depends comm/communicator.hpp, comm/thread_options.hpp, <memory>. Needs threads and exceptions.
///
/// Destinations copy straight from the peer's memory: each byte moves once, past the caches when it is many of them.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/thread_options.hpp>

#include <memory>   // shared_ptr
#include <utility>  // exchange
#include <vector>   // vector

namespace reshard::inline v0 {

namespace detail {
class ThreadTeam;
struct ThreadAccess;
struct ThreadSeat;
enum class ThreadCall : std::uint8_t;
}  // namespace detail

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
    bool advance(bool may_block);
    void finish_quietly() noexcept;

    detail::ThreadTeam* team_ = nullptr;
    int rank_ = 0;
    bool pulled_ = false;
};

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
    [[nodiscard]] int size() const noexcept;
    [[nodiscard]] Traffic traffic() const noexcept;

    /// Lays the transfers out for the peers and returns; never blocks. See the concept for what must hold.
    /// Throws TransportError for transfers out of order or an exchange already under way.
    ThreadRequest exchange(std::span<Send const> sends, std::span<Receive const> receives);

    [[nodiscard]] Verdict agree(Verdict const& mine);

    /// Collective. Ranks of one colour >= 0, ordered by (key, rank). The new communicator shares the fate of this one:
    /// poison in one is poison in both.
    [[nodiscard]] ThreadCommunicator split(int colour, int key);

    /// Throws BufferError for memory of a device: this transport moves the host's.
    void check_memory(void const* memory) const;

    void abort(ErrorCode code, std::string_view reason) noexcept;

private:
    friend struct detail::ThreadAccess;

    detail::ThreadSeat& enter(detail::ThreadCall call);

    /// Both phases, with `body` between them.
    template <class Body>
    void meet(Body&& body);

    /// Ranks of this team with `colour`, in their order in the child; this rank alone for a negative one.
    std::vector<int> ranks_like(int colour);
    std::shared_ptr<detail::ThreadTeam> make_child(std::vector<int> ranks);

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

/// What a rank does; `body` is the caller's.
using ThreadBody = void (*)(void* body, ThreadCommunicator& comm);
void run_on_threads(int ranks, ThreadOptions const& options, ThreadBody call, void* body);

}  // namespace detail

/// Runs body(ThreadCommunicator&) on `ranks` threads and returns when all have ended.
///
/// An exception of one rank ends the others' collective calls with PeerFailed and is then thrown from here, with its
/// own type: the one of the lowest rank whose exception is not itself PeerFailed. A rank that returns while others
/// wait for it fails them too. Throws MeshError for fewer than one rank, and what std::thread throws.
template <class F>
void run_on_threads(int ranks, ThreadOptions const& options, F&& body) {
    auto const call = [](void* own, ThreadCommunicator& comm) {
        (*static_cast<std::remove_reference_t<F>*>(own))(comm);
    };
    detail::run_on_threads(ranks, options, call, const_cast<void*>(static_cast<void const*>(std::addressof(body))));
}
template <class F>
void run_on_threads(int ranks, F&& body) {
    run_on_threads(ranks, ThreadOptions{}, body);
}

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/threads.ipp>
#endif
