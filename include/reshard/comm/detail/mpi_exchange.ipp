// SPDX-License-Identifier: Apache-2.0
// How reshard/comm/detail/mpi_exchange.hpp is done.
#pragma once

#include <reshard/comm/detail/mpi_exchange.hpp>

namespace reshard::inline v0::detail {

inline std::string MpiExchange::give_up() {
    using Clock = std::chrono::steady_clock;
    if (!mpi_is_usable()) return {};
    incoming_.cancel();
    auto const start = Clock::now();
    auto moved = start;
    while (incoming_.flying() + outgoing_.flying() > 0) {
        bool const some = incoming_.drain() + outgoing_.drain() > 0;
        auto const now = Clock::now();
        if (some) moved = now;
        // What only one side has begun never ends.
        if (now - moved >= std::chrono::milliseconds(200) || now - start >= std::chrono::seconds(2)) break;
        sched_yield();
    }
    auto const living = [&](auto const& lanes) {
        std::string peers;
        int last = -1;
        lanes.held([&](int peer) {
            if (peer == last || (team_->process(peer) != 0 && !process_lives(team_->process(peer)))) return;
            last = peer;
            peers = peers.empty() ? std::to_string(peer) : concat(peers, ", ", peer);
        });
        return peers;
    };
    std::string const writes = living(incoming_);
    std::string const reads = living(outgoing_);
    std::string text;
    if (!writes.empty()) text = concat(" MPI may still write to the destination of what comes from rank ", writes, ".");
    if (!reads.empty()) text = concat(text, " MPI may still read the source of what goes to rank ", reads, ".");
    return text.empty() ? text : concat(text, " Keep that memory until the process ends.");
}

inline void MpiExchange::publish() {
    if (!team_->node()) return;
    MpiNode& node = *team_->node();
    MpiSeat& seat = node.own();
    seat.published.store(2 * epoch_ - 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    bool const copies = team_->family()->options().path != MpiPath::messages;
    Index room = 0;
    for (Send const& send : sends_) {
        int const there = team_->local(send.peer);
        if (copies && there >= 0 && there != node.me()) room += mpi_listed_room(send);
    }
    room = smaller(room, mpi_listed_total);
    Index place = MpiList::copies_at(node.ranks(), sends_.size());
    Index const end = place + room;
    std::atomic<std::uint64_t>* const slot = end <= MpiNode::slot_bytes ? &node.slot_epoch(node.me(), epoch_) : nullptr;
    // Whoever finds the slot in use again also finds `published` beyond its epoch.
    if (slot != nullptr) slot->store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::byte* const list = slot != nullptr ? node.slot(node.me(), epoch_) : node.own_list(end);
    leaves_ = leaves_ && slot != nullptr;
    MpiList::number(list) = number_;
    std::uint32_t* const starts = MpiList::starts(list);
    MpiPublished* const entries = MpiList::entries(list, node.ranks());
    std::uint32_t count = 0;
    std::size_t at = 0;
    for (int l = 0; l < node.ranks(); ++l) {  // ascending in rank as well
        starts[l] = count;
        int const rank = team_->rank_of_local(l);
        while (at < sends_.size() && sends_[at].peer < rank) ++at;
        if (l == node.me()) continue;
        for (; at < sends_.size() && sends_[at].peer == rank; ++at) {
            Send const& send = sends_[at];
            MpiPublished& entry = entries[count++];
            entry = mpi_describe(*team_->family(), team_->attach(), send);
            Index const copied = copies ? mpi_listed_room(send) : 0;
            if (entry.mode != MpiMode::segment && copied != 0 && place + copied <= end) {
                entry.mode = MpiMode::list;
                entry.offset = place;
                deliver(send, packed_at(list + place, send));
                place += copied;
            }
            send_modes_[at] = entry.mode;
            if (entry.mode != MpiMode::message) ++direct_sent_;
            leaves_ = leaves_ && entry.mode == MpiMode::list;
        }
    }
    starts[node.ranks()] = count;
    if (slot != nullptr) slot->store(epoch_, std::memory_order_release);
    seat.published.store(2 * epoch_, std::memory_order_release);
}

inline void MpiExchange::lay_lanes() {
    int const me = team_->rank();
    outgoing_.begin(sends_, send_modes_, epoch_);
    incoming_.begin(receives_, receive_modes_, epoch_);
    readers_.clear();
    sources_.clear();
    far_.clear();
    heard_ = 0;
    self_sends_ = {};
    self_receives_ = {};
    for_each_peer(sends_, me, [&](int peer, std::span<Send const> sends) {
        if (peer == me) {
            self_sends_ = sends;
            return;
        }
        auto const first = static_cast<std::size_t>(sends.data() - sends_.data());
        outgoing_.add(peer, first, first + sends.size(), true);
        if (int const local = team_->local(peer); local >= 0)
            readers_.push_back({peer, local, first, first + sends.size(), 0, sends[0].payload_bytes(), false});
    });
    late_.reserve(readers_.size());
    for_each_peer<Way::down>(receives_, me, [&](int peer, std::span<Receive const> receives) {
        if (peer == me) {
            self_receives_ = receives;
            return;
        }
        auto const first = static_cast<std::size_t>(receives.data() - receives_.data());
        int const local = team_->local(peer);
        std::size_t const lane = incoming_.add(peer, first, first + receives.size(), false);
        (local >= 0 ? sources_ : far_).push_back({peer, local, first, first + receives.size(), lane, 0, false});
    });
    self_done_ = self_sends_.empty() && self_receives_.empty();
    Index const here = team_->node() ? team_->node()->ranks() : 1;
    hint_ = receive_bytes_ * here >= team_->family()->options().streaming_threshold ? CopyHint::streaming
                                                                                    : CopyHint::cached;
}

inline void MpiExchange::fetch(Neighbour const& source, std::byte const* list, MpiPublished const& sent,
                               Receive const& receive) {
    MpiSeat const& seat = team_->node()->seat(source.local);
    int const rank = source.rank;
    if (sent.mode == MpiMode::list) {
        deliver(packed_at(list + sent.offset, sent.send), receive);
    } else if (sent.mode == MpiMode::segment) {
        std::byte const* const memory =
            team_->family()->peer_memory(seat.pid, sent.segment, sent.file, sent.segment_bytes);
        if (memory == nullptr) {
            raise_unreachable(rank, "mapping the shared buffer",
                              "keep buffers of allocate() until all have received from them");
        }
        Send there = sent.send;
        there.base = memory + sent.offset;
        deliver(there, receive, hint_);
    } else if (!attach_.read(seat.pid, sent.send, receive, hint_)) {
        int const error = errno;
        // A dying process gives up its memory before it counts as dead.
        if (error == ESRCH && !team_->family()->hear(true)) team_->raise_death(rank, seat.pid);
        raise_unreachable(rank, concat("reading (", std::strerror(error), ") the memory"), "use MpiPath::messages");
    }
}

}  // namespace reshard::inline v0::detail
