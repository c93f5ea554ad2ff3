// SPDX-License-Identifier: Apache-2.0
// How reshard/comm/detail/staged_on_host_exchange.hpp is done.
#pragma once

#include <reshard/comm/detail/staged_on_host_exchange.hpp>

namespace reshard::inline v0::detail {

template <class C, class Copies>
void StagedOnHostExchange<C, Copies>::keep_own() {
    auto& sends = lanes_.out.own;
    auto& receives = lanes_.in.own;
    bool keeps = sends.size() == receives.size();
    for (std::size_t k = 0; keeps && k < sends.size(); ++k) {
        Send const& send = sends[k];
        Receive const& receive = receives[k];
        keeps = is_staged(send) && is_staged(receive) && send.conversion.is_plain() && receive.conversion.is_plain() &&
                transport::same_extents(send, receive);
    }
    if (keeps) return lanes_.leave_out_own();
    sends = {};  // the transport knows what to do, or to say
    receives = {};
}

template <class C, class Copies>
typename StagedOnHostExchange<C, Copies>::Need StagedOnHostExchange<C, Copies>::walk_rounds() {
    Need need;
    need.copies = static_cast<Index>(lanes_.out.own.size());
    lanes_.rewind();
    do {
        Index room = 0;
        auto const count = [&](auto const& transfer, auto const& piece) {
            if (!is_staged(transfer)) return;
            room += staging_slot(piece.payload_bytes());
            if (!transfer.conversion.is_plain()) room += staging_slot(piece.box.payload_bytes());
            ++need.copies;
        };
        lanes_.out.take_rounds(share_, 0, inner_.size(), count);
        lanes_.in.take_rounds(share_, 0, inner_.size(), count);
        need.room = larger(need.room, room);
        need.batches += 2;
        ++need.rounds;
    } while (lanes_.go_on());
    return need;
}

template <class C, class Copies>
void StagedOnHostExchange<C, Copies>::count_on(int distance) {
    int const ranks = inner_.size();
    if (distance >= ranks) return counted();
    distance_ = distance;
    tell_.clear();
    ask_.clear();
    StridedBox const box{{}, Index{sizeof(Known)}};
    for (int k = 1; k < told_at_once && Index{k} * distance < ranks; ++k) {
        int const ahead = k * distance;
        tell_.push_back({(inner_.rank() + ahead) % ranks, reinterpret_cast<std::byte const*>(&known_), box});
        ask_.push_back({(inner_.rank() + ranks - ahead) % ranks,
                        reinterpret_cast<std::byte*>(&heard_[static_cast<std::size_t>(k)]), box});
    }
    auto const by_peer = [](auto const& a, auto const& b) { return a.peer < b.peer; };
    std::sort(tell_.begin(), tell_.end(), by_peer);
    std::sort(ask_.begin(), ask_.end(), by_peer);
    stage_ = Stage::counting;
    static_cast<void>(round_ = transport::exchange_for(transfers_, inner_, tell_, ask_));  // for nvcc 13
}

template <class C, class Copies>
void StagedOnHostExchange<C, Copies>::heard() {
    for (std::size_t k = 1; k <= ask_.size(); ++k)
        for (std::size_t i = 0; i < known_.size(); ++i) known_[i] = larger(known_[i], heard_[k][i]);
    // * would overflow for the last step of very many ranks
    count_on(distance_ > inner_.size() / told_at_once ? inner_.size() : distance_ * told_at_once);
}

template <class C, class Copies>
void StagedOnHostExchange<C, Copies>::counted() {
    if (!counts_rounds_ && known_[1] != 0) {
        constexpr Index overhead = 2 * StagingOptions::alignment;  // of two areas
        share_ = {INT_MAX, larger<Index>(-known_[2] / 2 / larger<Index>(known_[0], 1), 2 * overhead), overhead};
        need_ = walk_rounds();
        known_ = {0, need_.rounds, 0};
        counts_rounds_ = true;
        return count_on(1);
    }
    rounds_ = counts_rounds_ ? known_[1] : 1;
    if (!window_.grow(need_.room) || !copies_.reserve(need_.copies, need_.batches)) {
        raise(ErrorCode::out_of_memory,
              concat("reshard::StagedOnHost (", std::string_view(C::name), "): no pinned memory for ", need_.room,
                     " bytes. Fix: a smaller StagedOnHostOptions::window_bytes, or a larger source of memory."));
    }
    lanes_.rewind();
    moving_ = {};
    for (std::size_t k = 0; k < lanes_.out.own.size(); ++k) {
        Send const& send = lanes_.out.own[k];
        Receive const& receive = lanes_.in.own[k];
        copies_.add(send, receive, options_.stream);
        moving_.bytes_local += send.payload_bytes();
    }
    pack();
}

template <class C, class Copies>
void StagedOnHostExchange<C, Copies>::leave() {
    if (!uses_device_) return;
    CurrentDevice const device(device_);
    quietly([&] {  // a device that fails does nothing more
        event_.record(options_.stream);
        stuck_ = outlasts(event_, Clock::now(), options_.deadline);
    });
}

}  // namespace reshard::inline v0::detail
