// SPDX-License-Identifier: Apache-2.0
// How reshard/comm/detail/nccl_exchange.hpp is done.
#pragma once

#include <reshard/comm/detail/nccl_exchange.hpp>

namespace reshard::inline v0::detail {

template <class Copies>
void NcclExchange<Copies>::greet(std::uint64_t number) {
    int const ranks = team_->size();
    auto* const out = team_->host_in();
    std::memset(out, 0, sizeof(Greeting) * static_cast<std::size_t>(ranks));
    for (TransferLane const& lane : lanes_.out.all) {
        auto const listing = TransferListing::of(lanes_.out.transfers.subspan(lane.at, lane.end - lane.at), number);
        std::memcpy(out + greeting_at(lane.peer), &listing, sizeof(listing));
    }
    for (TransferLane const& lane : lanes_.in.all) {
        auto const listing = TransferListing::of(lanes_.in.transfers.subspan(lane.at, lane.end - lane.at), number);
        std::memcpy(out + greeting_at(lane.peer) + sizeof(listing), &listing, sizeof(listing));
    }
    Index const bytes = Index{sizeof(Greeting)} * ranks;
    team_->begin_meeting(bytes, bytes, "ncclGroupEnd", [&](std::byte* from, std::byte* to) {
        for (int first = 1; first < ranks; first += rounds_.distances) {
            NcclGroup group;
            for (int d = first; d < smaller(first + rounds_.distances, ranks); ++d) {
                int const next = (team_->rank() + d) % ranks;
                int const previous = (team_->rank() + ranks - d) % ranks;
                send({from + greeting_at(next), sizeof(Greeting), next});
                receive({to + greeting_at(previous), sizeof(Greeting), previous});
            }
            team_->settle(group.end(), "ncclGroupEnd");
        }
        return ncclSuccess;
    });
}

template <class Copies>
void NcclExchange<Copies>::compare() {
    int const me = team_->rank();
    for (int peer = 0; peer < team_->size(); ++peer) {
        if (peer == me) continue;
        Greeting mine;
        Greeting theirs;
        std::memcpy(&mine, team_->host_in() + greeting_at(peer), sizeof(mine));
        std::memcpy(&theirs, team_->host_out() + greeting_at(peer), sizeof(theirs));
        if (auto const differs = mismatch_of(me, mine, peer, theirs))
            team_->raise_mismatch(differs->sender, differs->receiver, differs->text);
    }
}

template <class Copies>
void NcclExchange<Copies>::move_to_self() {
    for (std::size_t k = 0; k < lanes_.out.own.size(); ++k) {
        Send const& send = lanes_.out.own[k];
        Receive const& receive = lanes_.in.own[k];
        moving_.bytes_local += send.payload_bytes();
        if (by_copies(send.conversion, receive.conversion)) {
            copies_.add(send, receive, team_->stream());
            continue;
        }
        PieceRule const rule = piece_rule_of(send.box, wire_weight(send), rounds_.bytes);
        for (Index n = 0; n < rule.pieces; ++n) change_on_host(piece_of(send, rule, n), piece_of(receive, rule, n));
    }
    copies_.flush(team_->stream());
}

template <class Copies>
void NcclExchange<Copies>::make_room() {
    Index near = 0;
    Index host = 0;
    Index jobs = 0;
    Index copies = 0;
    Index batches = 1;
    for (std::size_t k = 0; k < lanes_.out.own.size(); ++k) {
        Send const& send = lanes_.out.own[k];
        Receive const& receive = lanes_.in.own[k];
        if (by_copies(send.conversion, receive.conversion)) {
            ++copies;
            continue;
        }
        PieceRule const rule = piece_rule_of(send.box, wire_weight(send), rounds_.bytes);
        Index const most = piece_of(send, rule, 0).box.elements();
        host =
            larger(host, staging_slot(most * send.box.element_bytes) + staging_slot(most * receive.box.element_bytes));
        jobs += rule.pieces;
    }
    if (needs_room(lanes_.out.transfers) || needs_room(lanes_.in.transfers)) {
        for_each_group([&](int first, int last) {
            Index place = 0;
            batches += 2;
            auto const count = [&](auto const&, auto const& piece) {
                if (nccl_goes_straight(piece)) return;
                Index const bytes = staging_slot(piece.payload_bytes());
                place += bytes;
                bool const by_host = !Copies::converts && !piece.conversion.is_plain();
                ++(by_host ? jobs : copies);
                if (by_host) host = larger(host, staging_slot(piece.box.payload_bytes()) + bytes);
            };
            lanes_.out.take_rounds(rounds_, first, last, count);
            lanes_.in.take_rounds(rounds_, first, last, count);
            near = larger(near, place);
        });
    }
    if (!near_.grow(near) || !host_.grow(host) || !copies_.reserve(copies, batches)) {
        raise(ErrorCode::out_of_memory,
              concat("reshard::NcclCommunicator: no memory for ", near, " bytes of staging on the device and ", host,
                     " on the host. Fix: a smaller NcclOptions::window_bytes, or a larger source of memory."));
    }
    jobs_.reserve(jobs);
}

}  // namespace reshard::inline v0::detail
