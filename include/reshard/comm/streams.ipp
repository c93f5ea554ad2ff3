// SPDX-License-Identifier: Apache-2.0
// How comm/streams.hpp is done.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/peers.hpp>
#include <reshard/comm/detail/transfer_listing.hpp>
#include <reshard/comm/streams.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/copy.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

namespace reshard::inline v0 {

RESHARD_INLINE transport::Streams::~Streams() = default;
RESHARD_INLINE void transport::Streams::idle() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

namespace detail {

/// Bytes that a transfer takes in a message: elements begin where the processor likes to find them.
[[nodiscard]] constexpr Index slot_of(Index payload_bytes) noexcept { return (payload_bytes + 7) / 8 * 8; }
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
    for (int r = 0; r < round_.size(); ++r) {
        auto const mine = transfers_with(transfers_.sends, r);
        if (r == round_.me()) continue;
        auto const listing = TransferListing::of(mine);
        std::size_t bytes = sizeof listing;
        for (Send const& send : mine) bytes += static_cast<std::size_t>(slot_of(send.payload_bytes()));
        std::byte* at = round_.message_to(r, bytes).data();
        std::memcpy(at, &listing, sizeof listing);
        at += sizeof listing;
        for (Send const& send : mine) {
            deliver(send, packed_at(at, send));
            at += slot_of(send.payload_bytes());
        }
    }
}
RESHARD_INLINE void detail::StreamGroup::compare(int peer) {
    auto const receives = transfers_with(transfers_.receives, peer);
    TransferListing sent = TransferListing::of(transfers_with(transfers_.sends, peer));
    if (peer != round_.me()) std::memcpy(&sent, round_.side(peer).in.data(), sizeof sent);
    std::string const text = mismatch_of(peer, sent, round_.me(), TransferListing::of(receives));
    if (!text.empty()) family_->fail(ErrorCode::mismatch, text, round_, peer, round_.me());
}
RESHARD_INLINE void detail::StreamGroup::unpack() {
    int const me = round_.me();
    for (int r = 0; r < round_.size(); ++r) compare(r);
    auto const own = transfers_with(transfers_.sends, me);
    for_each_peer(transfers_.receives, 0, [&](int peer, std::span<Receive const> receives) {
        for (std::size_t k = 0; peer == me && k < own.size(); ++k) deliver(own[k], receives[k]);
        if (peer == me) return;
        std::byte* at = round_.side(peer).in.data() + sizeof(TransferListing);
        for (Receive const& receive : receives) {
            deliver(packed_at<std::byte const>(at, receive), receive);
            at += slot_of(receive.payload_bytes());
        }
    });
    count();
}
RESHARD_INLINE void detail::StreamGroup::count() {
    for_each_pair(transfers_.sends, transfers_.receives, [&](int peer, auto sends, auto receives) {
        bool const far = peer != round_.me();
        Index const sent = payload_of(sends);
        Index const received = payload_of(receives);
        traffic_ += far ? Traffic{sends.empty() ? 0 : 1, sent, receives.empty() ? 0 : 1, received, 0}
                        : Traffic{0, 0, 0, 0, sent};
    });
}
RESHARD_INLINE void detail::StreamGroup::gather(StreamCall call, std::span<std::byte const> mine) {
    finish();
    family_->check(round_);
    round_.begin(call);
    for (int r = 0; r < round_.size(); ++r) {
        if (r == round_.me()) {
            round_.side(r).in.assign(mine.begin(), mine.end());
        } else if (auto const body = round_.message_to(r, mine.size()); !mine.empty()) {
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
