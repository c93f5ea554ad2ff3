// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_mail.hpp
/// \brief  Small messages between the ranks of many groups at once, and lists that all ranks learn.
/// \depends comm/{agree,collectives}, <algorithm>.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>

#include <algorithm>  // stable_sort
#include <numeric>    // accumulate

namespace reshard::inline v0::detail {

/// Collects messages, then moves them in one exchange. Several to one peer arrive in the order they were added.
class ReplicaMail {
public:
    /// So many each way take no memory any more.
    void make_room(std::size_t sends, std::size_t receives) {
        sends_.reserve(sends);
        receives_.reserve(receives);
    }
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

/// The lists of all ranks, in rank order, to all: by way of rank 0, so that messages grow with the ranks and not with
/// their square.
class ListJoin {
public:
    /// Local, where all ranks agree next.
    void make_room(CommunicatorRef comm) {
        auto const ranks = static_cast<std::size_t>(comm.size());
        mail_.make_room(ranks, ranks);
        if (comm.rank() == 0) counts_.resize(ranks);
    }

    /// Collective. Four exchanges, and before lists move an agreement about what is pending and about memory for them.
    template <class T>
    [[nodiscard]] std::vector<T> run(CommunicatorRef comm, std::vector<T> const& mine, PendingVerdict& pending) {
        Index const own = pending.ok() ? static_cast<Index>(mine.size()) : 0;
        mail_.send(0, std::span(&own, 1));
        for (std::size_t r = 0; r < counts_.size(); ++r)
            mail_.receive(static_cast<int>(r), std::span(counts_).subspan(r, 1));
        mail_.deliver(comm);
        Index total = std::accumulate(counts_.begin(), counts_.end(), Index{0});
        to_all(comm, std::span(&total, 1));

        std::vector<T> all;
        pending.attempt([&] { all.resize(static_cast<std::size_t>(total)); });
        pending.agree(comm);
        mail_.send(0, std::span<T const>(mine));
        std::size_t offset = 0;
        for (std::size_t r = 0; r < counts_.size(); ++r) {
            auto const count = static_cast<std::size_t>(counts_[r]);
            mail_.receive(static_cast<int>(r), std::span(all).subspan(offset, count));
            offset += count;
        }
        mail_.deliver(comm);
        to_all(comm, std::span(all));
        return all;
    }

private:
    template <class T>
    void to_all(CommunicatorRef comm, std::span<T> list) {
        if (comm.rank() != 0) mail_.receive(0, list);
        for (int r = 1; comm.rank() == 0 && r < comm.size(); ++r) mail_.send(r, std::span<T const>(list));
        mail_.deliver(comm);
    }

    ReplicaMail mail_;
    std::vector<Index> counts_;  ///< on rank 0, of each rank
};

/// Collective. Whether it is so on any rank.
[[nodiscard]] inline bool is_anywhere(CommunicatorRef comm, bool here) {
    Verdict mine;
    if (here) mine.code = ErrorCode::mismatch;
    return !comm.agree(std::move(mine)).ok();
}

}  // namespace reshard::inline v0::detail
