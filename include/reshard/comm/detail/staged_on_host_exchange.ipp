// SPDX-License-Identifier: Apache-2.0
// How reshard/comm/detail/staged_on_host_exchange.hpp is done.
#pragma once

#include <reshard/comm/detail/staged_on_host_exchange.hpp>

namespace reshard::inline v0::detail {

template <class C, class Copies>
void StagedOnHostExchange<C, Copies>::keep_own() {
    int const me = inner_.rank();
    auto const own = [me](TransferLane const& lane) { return lane.peer == me; };
    auto const out = std::find_if(out_.begin(), out_.end(), own);
    auto const in = std::find_if(in_.begin(), in_.end(), own);
    keeps_own_ = out != out_.end() && in != in_.end() && out->end - out->at == in->end - in->at;
    if (!keeps_own_) return;
    kept_ = {out->at, in->at, out->end - out->at};
    for (std::size_t k = 0; k < kept_[2]; ++k) {
        Send const& send = sends_[kept_[0] + k];
        Receive const& receive = receives_[kept_[1] + k];
        keeps_own_ = keeps_own_ && sent_from_[kept_[0] + k] == MemoryKind::device &&
                     received_in_[kept_[1] + k] == MemoryKind::device && send.conversion.is_plain() &&
                     receive.conversion.is_plain() && transport::same_extents(send, receive);
    }
    if (!keeps_own_) return;  // the transport knows what to do, or to say
    out_.erase(out);
    in_.erase(in);
}

template <class C, class Copies>
typename StagedOnHostExchange<C, Copies>::Need StagedOnHostExchange<C, Copies>::walk_rounds() {
    Need need;
    need.copies = keeps_own_ ? static_cast<Index>(kept_[2]) : 0;
    out_left_ = out_;
    in_left_ = in_;
    do {
        Index room = 0;
        auto const count = [&](auto const& transfer, BoxPiece const& piece) {
            if (!is_staged(transfer)) return;
            room += staging_slot(piece.box.elements() * transfer.wire_element_bytes());
            if (!transfer.conversion.is_plain()) room += staging_slot(piece.box.payload_bytes());
            ++need.copies;
        };
        take_rounds(sends_, out_left_, count);
        take_rounds(receives_, in_left_, count);
        need.room = larger(need.room, room);
        need.batches += 2;
        ++need.rounds;
    } while (!out_left_.empty() || !in_left_.empty());
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
    static_cast<void>(round_ = inner_.exchange(tell_, ask_));  // nvcc 13 takes it for dropped otherwise
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
    out_left_ = out_;
    in_left_ = in_;
    moving_ = {};
    for (std::size_t k = 0; keeps_own_ && k < kept_[2]; ++k) {
        Send const& send = sends_[kept_[0] + k];
        Receive const& receive = receives_[kept_[1] + k];
        copies_.add(send.base, send.box, receive.base, receive.box, options_.stream);
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
