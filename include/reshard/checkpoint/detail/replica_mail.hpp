// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_mail.hpp
/// \brief  Small messages between the ranks of many groups at once, and lists that all ranks learn.
/// \depends comm/collectives.hpp, <algorithm>.
#pragma once

#include <reshard/comm/collectives.hpp>

#include <algorithm>  // stable_sort

namespace reshard::inline v0::detail {

/// Collects messages, then moves them in one exchange. Several to one peer arrive in the order they were added.
class ReplicaMail {
public:
    template <class T>
    void send(int peer, std::span<T const> values) {
        auto const bytes = std::as_bytes(values);
        if (!bytes.empty()) sends_.push_back({peer, bytes.data(), byte_box(static_cast<Index>(bytes.size()))});
    }
    template <class T>
    void receive(int peer, std::span<T> values) {
        auto const bytes = std::as_writable_bytes(values);
        if (!bytes.empty()) receives_.push_back({peer, bytes.data(), byte_box(static_cast<Index>(bytes.size()))});
    }
    void send(Send const& transfer) { sends_.push_back(transfer); }
    void receive(Receive const& transfer) { receives_.push_back(transfer); }

    /// Collective: every rank calls it, whether or not it has messages.
    void deliver(CommunicatorRef comm) {
        auto const by_peer = [](auto const& a, auto const& b) { return a.peer < b.peer; };
        std::stable_sort(sends_.begin(), sends_.end(), by_peer);
        std::stable_sort(receives_.begin(), receives_.end(), by_peer);
        comm.exchange(sends_, receives_).wait();
        sends_.clear();
        receives_.clear();
    }

private:
    std::vector<Send> sends_;
    std::vector<Receive> receives_;
};

/// Collective. The numbers of all ranks, in rank order, to all: by way of rank 0, so that messages grow with the ranks
/// and not with their square.
[[nodiscard]] inline std::vector<Index> join_lists(CommunicatorRef comm, std::vector<Index> const& mine) {
    bool const root = comm.rank() == 0;
    auto const ranks = static_cast<std::size_t>(comm.size());
    ReplicaMail mail;
    Index const own = static_cast<Index>(mine.size());
    std::vector<Index> counts(root ? ranks : 0);
    mail.send(0, std::span(&own, 1));
    for (std::size_t r = 0; r < counts.size(); ++r) mail.receive(static_cast<int>(r), std::span(counts).subspan(r, 1));
    mail.deliver(comm);

    Index total = 0;
    for (Index count : counts) total += count;
    std::vector<Index> all(static_cast<std::size_t>(total));
    mail.send(0, std::span(mine));
    std::size_t offset = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
        auto const count = static_cast<std::size_t>(counts[r]);
        mail.receive(static_cast<int>(r), std::span(all).subspan(offset, count));
        offset += count;
    }
    mail.deliver(comm);

    broadcast(comm, std::as_writable_bytes(std::span(&total, 1)), 0);
    all.resize(static_cast<std::size_t>(total));
    broadcast(comm, std::as_writable_bytes(std::span(all)), 0);
    return all;
}

/// Collective. Whether it is so on any rank.
[[nodiscard]] inline bool is_anywhere(CommunicatorRef comm, bool here) {
    Verdict mine;
    if (here) mine.code = ErrorCode::mismatch;
    return !comm.agree(std::move(mine)).ok();
}

}  // namespace reshard::inline v0::detail
