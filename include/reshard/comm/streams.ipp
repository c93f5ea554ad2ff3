// SPDX-License-Identifier: Apache-2.0
// How comm/streams.hpp is done.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/streams.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/deliver.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

namespace reshard::inline v0 {

RESHARD_INLINE transport::Streams::~Streams() = default;
RESHARD_INLINE void transport::Streams::idle() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

namespace detail {

/// What a message says of each transfer before their bytes follow.
struct StreamTransfer {
    Index bytes = 0;
    std::int64_t wire = -1;  ///< DType; -1: as it lies in memory
    std::uint64_t extents = 0;
};
template <class T>
[[nodiscard]] StreamTransfer told(T const& transfer) noexcept {
    Digest extents;
    extents.add_signed(transfer.wire_element_bytes());
    for (StridedDim const& dim : transfer.box.dims) extents.add_signed(dim.extent);
    bool const active = transfer.conversion.is_active();
    return {transfer.payload_bytes(), active ? static_cast<int>(transfer.conversion.wire) : -1, extents.value()};
}
/// Bytes that a transfer takes in a message: elements begin where the processor likes to find them.
[[nodiscard]] constexpr Index slot_of(Index payload_bytes) noexcept { return (payload_bytes + 7) / 8 * 8; }
/// The transfers with `peer`, from the front of a list that is sorted by peer; those before it are gone through.
template <class T>
[[nodiscard]] std::span<T const> take(std::span<T const>& list, int peer) noexcept {
    std::size_t n = 0;
    while (n < list.size() && list[n].peer == peer) ++n;
    auto const result = list.first(n);
    list = list.subspan(n);
    return result;
}

}  // namespace detail

RESHARD_INLINE void detail::StreamGroup::start(transport::BoundTransfers const& transfers) {
    family_->check(round_);
    transfers_ = transfers;
    round_.begin(StreamCall::exchange);
    watched([&] { pack(); },
            [&](ErrorCode code, std::string_view reason) noexcept { family_->poison(code, reason, 0, -1, -1); });
    family_->begin(round_);
}
RESHARD_INLINE void detail::StreamGroup::wait() {
    static_cast<void>(family_->advance(round_, true));
    unpack();
}
RESHARD_INLINE bool detail::StreamGroup::test() {
    if (!family_->advance(round_, false)) return false;
    unpack();
    return true;
}
RESHARD_INLINE void detail::StreamGroup::pack() {
    auto sends = transfers_.sends;
    for (int r = 0; r < round_.size(); ++r) {
        auto const mine = take(sends, r);
        if (r == round_.me()) continue;
        std::size_t bytes = mine.size() * sizeof(StreamTransfer);
        for (Send const& send : mine) bytes += static_cast<std::size_t>(slot_of(send.payload_bytes()));
        std::byte* at = round_.message_to(r, mine.size(), bytes).data();
        for (Send const& send : mine) {
            StreamTransfer const one = told(send);
            std::memcpy(at, &one, sizeof one);
            at += sizeof one;
        }
        for (Send const& send : mine) {
            deliver(send, packed_at(at, send));
            at += slot_of(send.payload_bytes());
        }
    }
}
RESHARD_INLINE void detail::StreamGroup::compare(int peer, std::span<Receive const> receives) {
    StreamRound::Side const& side = round_.side(peer);
    for (std::size_t k = 0; k < std::max<std::size_t>(side.head.count, receives.size()); ++k) {
        StreamTransfer sent{-1, -1, 0};
        StreamTransfer const expected = k < receives.size() ? told(receives[k]) : StreamTransfer{-1, -1, 0};
        if (k < side.head.count) std::memcpy(&sent, side.in.data() + k * sizeof sent, sizeof sent);
        if (sent.bytes == expected.bytes && sent.wire == expected.wire && sent.extents == expected.extents) continue;
        bool const wires = sent.bytes == expected.bytes && sent.wire != expected.wire;
        int const me = round_.me();
        int const nth = static_cast<int>(k);
        family_->fail(
            ErrorCode::mismatch,
            wires ? transport::wire_text(peer, static_cast<int>(sent.wire), me, static_cast<int>(expected.wire), nth)
                  : transport::mismatch_text(peer, sent.bytes, me, expected.bytes, nth),
            round_, peer, me);
    }
}
RESHARD_INLINE void detail::StreamGroup::unpack() {
    int const me = round_.me();
    auto receives = transfers_.receives;
    std::span<Receive const> own_receives;
    for (int r = 0; r < round_.size(); ++r) {
        auto const theirs = take(receives, r);
        if (r != me) compare(r, theirs);
        if (r == me) own_receives = theirs;
    }
    auto sends = transfers_.sends;
    for (int r = 0; r < me; ++r) static_cast<void>(take(sends, r));
    auto const own_sends = take(sends, me);
    for (std::size_t k = 0; k < std::max(own_sends.size(), own_receives.size()); ++k) {
        Send const* const send = k < own_sends.size() ? &own_sends[k] : nullptr;
        Receive const* const receive = k < own_receives.size() ? &own_receives[k] : nullptr;
        if (send == nullptr || receive == nullptr || !transport::same_extents(*send, *receive)) {
            family_->fail(ErrorCode::mismatch, transport::mismatch_text(me, send, me, receive, static_cast<int>(k)),
                          round_, me, me);
        }
        deliver(*send, *receive);
    }
    receives = transfers_.receives;
    for (int r = 0; r < round_.size(); ++r) {
        auto const theirs = take(receives, r);
        if (r == me) continue;
        std::byte* at = round_.side(r).in.data() + theirs.size() * sizeof(StreamTransfer);
        for (Receive const& receive : theirs) {
            deliver(packed_at<std::byte const>(at, receive), receive);
            at += slot_of(receive.payload_bytes());
        }
    }
    count();
}
RESHARD_INLINE void detail::StreamGroup::count() {
    auto const add_up = [&](auto transfers, Index& messages, Index& bytes, Index& local) {
        int last = -1;
        for (auto const& one : transfers) {
            (one.peer == round_.me() ? local : bytes) += one.payload_bytes();
            if (one.peer != round_.me() && std::exchange(last, one.peer) != one.peer) ++messages;
        }
    };
    Index same = 0;
    add_up(transfers_.sends, traffic_.messages_sent, traffic_.bytes_sent, traffic_.bytes_local);
    add_up(transfers_.receives, traffic_.messages_received, traffic_.bytes_received, same);
}
RESHARD_INLINE void detail::StreamGroup::gather(StreamCall call, std::span<std::byte const> mine) {
    finish();
    family_->check(round_);
    round_.begin(call);
    for (int r = 0; r < round_.size(); ++r) {
        if (r == round_.me()) {
            round_.side(r).in.assign(mine.begin(), mine.end());
        } else if (auto const body = round_.message_to(r, 0, mine.size()); !mine.empty()) {
            std::memcpy(body.data(), mine.data(), mine.size());
        }
    }
    family_->begin(round_);
    static_cast<void>(family_->advance(round_, true));
}

RESHARD_INLINE Verdict detail::StreamGroup::agree(Verdict mine) {
    struct Fixed {
        std::uint64_t code;
        std::uint64_t digest;
    };
    mine.settle();
    Fixed const fixed{static_cast<std::uint64_t>(mine.code), mine.digest};
    std::vector<std::byte> text(sizeof fixed + mine.reason.size());
    std::memcpy(text.data(), &fixed, sizeof fixed);
    if (!mine.reason.empty()) std::memcpy(text.data() + sizeof fixed, mine.reason.data(), mine.reason.size());
    gather(StreamCall::agree, text);
    std::vector<Verdict> all(static_cast<std::size_t>(round_.size()));
    for (int r = 0; r < round_.size(); ++r) {
        auto const& in = round_.side(r).in;
        Fixed theirs{};
        std::memcpy(&theirs, in.data(), sizeof theirs);
        Verdict& verdict = all[static_cast<std::size_t>(r)];
        verdict.code = static_cast<ErrorCode>(theirs.code);
        verdict.digest = theirs.digest;
        verdict.reason.assign(reinterpret_cast<char const*>(in.data()) + sizeof theirs, in.size() - sizeof theirs);
    }
    return transport::joint_verdict(round_.size(),
                                    [&](int r) -> Verdict const& { return all[static_cast<std::size_t>(r)]; });
}
RESHARD_INLINE std::unique_ptr<detail::StreamGroup> detail::StreamGroup::split(int colour, int key) {
    std::array<int, 2> const mine{colour, key};
    gather(StreamCall::split, std::as_bytes(std::span(mine)));
    std::vector<std::array<int, 2>> all(static_cast<std::size_t>(round_.size()));
    std::vector<int> ranks;
    for (int r = 0; r < round_.size(); ++r) {
        auto& one = all[static_cast<std::size_t>(r)];
        std::memcpy(&one, round_.side(r).in.data(), sizeof one);
        if (r == round_.me() || (colour >= 0 && one[0] == colour)) ranks.push_back(r);
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return all[static_cast<std::size_t>(a)][1] < all[static_cast<std::size_t>(b)][1];
    });
    auto const me = std::find(ranks.begin(), ranks.end(), round_.me()) - ranks.begin();
    for (int& r : ranks) r = round_.outermost(r);
    Digest id;
    id.add(round_.id()).add(++splits_).add_signed(colour);
    return std::make_unique<StreamGroup>(family_, id.value(), std::move(ranks), static_cast<int>(me));
}

RESHARD_INLINE StreamCommunicator::StreamCommunicator(std::unique_ptr<transport::Streams> streams,
                                                      std::chrono::milliseconds deadline) {
    int const me = streams->rank();
    std::vector<int> everybody(static_cast<std::size_t>(streams->size()));
    std::iota(everybody.begin(), everybody.end(), 0);
    auto family = std::make_shared<detail::StreamFamily>(std::move(streams), deadline);
    group_ = std::make_unique<detail::StreamGroup>(std::move(family), 1, std::move(everybody), me);
}

}  // namespace reshard::inline v0
