// SPDX-License-Identifier: Apache-2.0
// How comm/threads.hpp is done.
#pragma once

#include <reshard/comm/detail/thread_exchange.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/core/detail/own_process.hpp>
#include <reshard/core/detail/start_thread.hpp>
#include <reshard/core/detail/watched.hpp>

#include <unistd.h>  // _exit

namespace reshard::inline v0_1::detail {

/// What a rank starts with, and what it leaves behind.
struct RankEnd {
    std::shared_ptr<ThreadEngine> engine;
    std::thread thread;
    std::exception_ptr error;
    bool is_consequence = false;  ///< PeerFailed: some other rank knows better what happened
};

/// Ends a child that was forked: nobody catches what it throws, and exit handlers may look for threads that it has not.
[[noreturn, gnu::cold]] inline void end_child(int status) noexcept {
    std::fflush(nullptr);
    ::_exit(status);
}
/// One rank from start to end. Whatever leaves the body reaches the others before this rank counts as returned.
[[gnu::cold]] inline void run_rank(FunctionRef<void(ThreadCommunicator&)> body, RankEnd& end) noexcept {
    std::shared_ptr<ThreadTeam> const team = end.engine->team();
    int const rank = end.engine->rank();
    OfProcess const here;
    auto const fail = [&](ErrorCode code, std::string_view reason) noexcept {
        if (!here.is_ours()) {
            std::fprintf(stderr, "reshard: rank %d: %.*s\n", rank, static_cast<int>(reason.size()), reason.data());
            end_child(1);
        }
        end.error = std::current_exception();
        end.is_consequence = code == ErrorCode::peer_failed;
        team->poison(code, team->member(rank), rank, rank, reason);
    };
    {
        ThreadCommunicator comm(std::move(end.engine));
        quietly([&] { watched([&] { body(comm); }, fail); });
    }
    if (!here.is_ours()) end_child(0);
    team->family()->mark_returned(rank);
}

RESHARD_INLINE void run_on_threads(int ranks, ThreadOptions const& options,
                                   FunctionRef<void(ThreadCommunicator&)> body) {
    if (ranks < 1) {
        raise(ErrorCode::mesh, "reshard::run_on_threads: ", ranks, " ranks. Fix: start at least one.");
    }
    check_deadline("ThreadOptions", options.deadline);
    std::vector<int> members(as_size(ranks));
    for (int r = 0; r < ranks; ++r) members[as_size(r)] = r;
    auto const team = std::make_shared<ThreadTeam>(std::make_shared<ThreadFamily>(ranks, options), std::move(members));
    std::vector<RankEnd> ends(as_size(ranks));
    for (int r = 0; r < ranks; ++r)  // here, where a lack of memory can be thrown
        ends[as_size(r)].engine = std::make_shared<ThreadEngine>(team, r);
    auto const join_all = [&] {
        for (RankEnd& end : ends)
            if (end.thread.joinable()) end.thread.join();
    };
    std::size_t r = 0;
    try {
        for (; r < ends.size(); ++r) {
            ends[r].thread = start_thread([&body, &end = ends[r]] { run_rank(body, end); }, "reshard::run_on_threads");
        }
    } catch (...) {
        team->poison(ErrorCode::out_of_memory, static_cast<int>(r), -1, -1, "its thread could not be started");
        join_all();
        throw;
    }
    join_all();
    for (bool const consequences : {false, true}) {
        for (auto const& end : ends)
            if (end.error && end.is_consequence == consequences) std::rethrow_exception(end.error);
    }
}

}  // namespace reshard::inline v0_1::detail
