// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/threads.hpp
/// \brief  Ranks that are threads of this process: ThreadCommunicator, and run_on_threads() which starts them.
/// \depends comm/detail/group_engine.hpp, comm/thread_options.hpp, core/function_ref.hpp, <memory>. Needs threads and
/// exceptions.
///
/// Destinations copy straight from the peer's memory: each byte moves once, past the caches when it is many of them.
#pragma once

#include <reshard/comm/detail/group_engine.hpp>
#include <reshard/comm/thread_options.hpp>
#include <reshard/core/function_ref.hpp>

#include <memory>  // shared_ptr

namespace reshard::inline v0_1 {

/// A rank among threads; run_on_threads() makes the first ones, split() the others. Used by its own thread only.
///
/// What is bound lays the transfers out for the peers when it is started, without waiting for them, and copies in
/// wait() or test(), so one of these must be called. Memory of a device is a BufferError: this transport moves the
/// host's.
class ThreadCommunicator : public detail::GroupCommunicator<ThreadCommunicator> {
public:
    static constexpr std::string_view name = "threads";
    using detail::GroupCommunicator<ThreadCommunicator>::GroupCommunicator;
};

static_assert(Communicator<ThreadCommunicator>);

namespace detail {
void run_on_threads(int ranks, ThreadOptions const& options, FunctionRef<void(ThreadCommunicator&)> body);
}  // namespace detail

/// Runs body(ThreadCommunicator&) on `ranks` threads and returns when all have ended.
///
/// An exception of one rank ends the others' collective calls with PeerFailed and is then thrown from here, with its
/// own type: the one of the lowest rank whose exception is not itself PeerFailed. A rank that returns while others
/// wait for it fails them too. Throws MeshError for fewer than one rank, and OutOfMemory where the system gives too few
/// threads, or too little memory for them. A child that a rank forks ends by _exit() where it leaves the body, with
/// status 0, or with 1 where it throws, which is printed.
template <class F>
void run_on_threads(int ranks, ThreadOptions const& options, F&& body) {
    detail::run_on_threads(ranks, options, [&](ThreadCommunicator& comm) { body(comm); });
}
template <class F>
void run_on_threads(int ranks, F&& body) {
    run_on_threads(ranks, ThreadOptions{}, body);
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/threads.ipp>
#endif
