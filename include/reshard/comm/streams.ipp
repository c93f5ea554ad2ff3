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

RESHARD_INLINE std::string_view detail::name(StreamCall call) noexcept {
    return call == StreamCall::exchange ? "an exchange" : call == StreamCall::agree ? "agree()" : "split()";
}
RESHARD_INLINE void detail::StreamRound::begin(StreamCall call) noexcept {
    call_ = call;
    for (Side& side : sides_) side.written = 0, side.arrived = false;
    side(me_).arrived = true;
    side(me_).out.clear();
}
RESHARD_INLINE std::span<std::byte> detail::StreamRound::message_to(int r, std::size_t bytes) {
    StreamHead const head{id_, call_, bytes};
    std::vector<std::byte>& out = side(r).out;
    out.resize(sizeof head + bytes);
    std::memcpy(out.data(), &head, sizeof head);
    return std::span(out).subspan(sizeof head);
}
RESHARD_INLINE detail::StreamRound::Side* detail::StreamRound::waiting_for(int outermost) noexcept {
    for (int r = 0; r < size(); ++r)
        if (members_[static_cast<std::size_t>(r)] == outermost) return side(r).arrived ? nullptr : &side(r);
    return nullptr;
}
RESHARD_INLINE bool detail::StreamRound::complete() const noexcept {
    auto const over = [](Side const& side) { return side.arrived && side.written == side.out.size(); };
    return std::all_of(sides_.begin(), sides_.end(), over);
}

// ---- What all groups of a rank share ---------------------------------------------------------------------------

RESHARD_INLINE detail::StreamFamily::StreamFamily(std::unique_ptr<transport::Streams> streams,
                                                  std::chrono::milliseconds deadline)
    : streams_(std::move(streams)), deadline_(deadline), peers_(static_cast<std::size_t>(streams_->size())) {}

RESHARD_INLINE void detail::StreamFamily::poison(ErrorCode code, std::string_view reason, std::uint64_t group,
                                                 int first, int second) noexcept {
    if (failed()) return;
    failure_ = failure_record(code, streams_->rank(), group, first, second, reason);
    told_ = true;
    tell();
}
RESHARD_INLINE void detail::StreamFamily::tell() noexcept {
    auto const record = std::as_bytes(std::span(&failure_, 1));
    for (int r = 0; r < streams_->size(); ++r) {
        if (r == streams_->rank()) continue;
        // Whoever does not take this much has gone, or will see that this rank is gone.
        quietly([&] { static_cast<void>(streams_->write_some(r, transport::StreamChannel::control, record)); });
    }
}
RESHARD_INLINE void detail::StreamFamily::fail(ErrorCode code, std::string const& reason, StreamRound const& round,
                                               int first, int second) {
    hear();
    check(round);  // the first failure counts
    poison(code, reason, round.id(), first, second);
    under_way_.clear();
    raise(code, reason);
}
RESHARD_INLINE void detail::StreamFamily::hear() noexcept {
    for (int r = 0; r < streams_->size() && !failed(); ++r) {
        if (r == streams_->rank()) continue;
        Peer& from = peer(r);
        auto const bytes = std::as_writable_bytes(std::span(&from.record, 1)).subspan(from.record_read);
        quietly([&] {
            Index const n = streams_->read_some(r, transport::StreamChannel::control, bytes);
            from.record_read += static_cast<std::size_t>(std::max<Index>(n, 0));
        });
        if (from.record_read != sizeof from.record) continue;
        failure_ = from.record;
        tell();  // this rank may end before the one that failed has told all: who waits for both is to hear the reason
    }
}
RESHARD_INLINE void detail::StreamFamily::check(StreamRound const& round) {
    if (!failed()) return;
    under_way_.clear();
    raise_failure(failure_, "reshard::streams", round.me(), round.id(), false, told_);
}
RESHARD_INLINE void detail::StreamFamily::begin(StreamRound& round) {
    under_way_.push_back(&round);
    static_cast<void>(move_all(round));
}

RESHARD_INLINE bool detail::StreamFamily::write(StreamRound& round) {
    bool moved = false;
    for (int r = 0; r < round.size(); ++r) {
        if (r == round.me()) continue;
        StreamRound::Side& side = round.side(r);
        Peer& to = peer(round.outermost(r));
        if (side.written == side.out.size() || to.closed || (to.writer != nullptr && to.writer != &round)) continue;
        Index const n = streams_->write_some(round.outermost(r), transport::StreamChannel::data,
                                             std::span(std::as_const(side.out)).subspan(side.written));
        side.written += static_cast<std::size_t>(std::max<Index>(n, 0));
        // A peer that reads no more may have said why: what it wrote is read to its end, which closes it.
        to.writer = side.written == 0 || side.written == side.out.size() ? nullptr : &round;
        moved = moved || n > 0;
    }
    return moved;
}
RESHARD_INLINE bool detail::StreamFamily::read(int rank, StreamRound const& waiting) {
    Peer& from = peer(rank);
    bool moved = false;
    auto const fill = [&](std::span<std::byte> all, std::size_t& got) {
        while (got < all.size()) {
            Index const n = streams_->read_some(rank, transport::StreamChannel::data, all.subspan(got));
            if (n < 0) from.closed = true;
            if (n <= 0) return false;
            got += static_cast<std::size_t>(n);
            moved = true;
        }
        return true;
    };
    while (!from.closed) {
        if (!fill(std::as_writable_bytes(std::span(&from.head, 1)), from.head_read)) return moved;
        if (!from.in_body) {
            from.side = nullptr;
            for (StreamRound* round : under_way_)
                if (round->id() == from.head.group) from.side = round->waiting_for(rank);
            // It is ahead in the call that this rank waits in: it can wait, too.
            if (from.side == nullptr && from.head.group == waiting.id()) return moved;
            auto& body = from.side != nullptr ? from.side->in : from.early.bytes;
            body.resize(static_cast<std::size_t>(from.head.bytes));
            from.body_read = 0;
            from.in_body = true;
        }
        if (!fill(from.side != nullptr ? from.side->in : from.early.bytes, from.body_read)) return moved;
        if (from.side != nullptr) {
            from.side->head = from.head;
            from.side->arrived = true;
        } else {
            from.early.head = from.head;
            early_[{from.head.group, rank}] = std::exchange(from.early, {});
            // Its round may have begun meanwhile, and the next message may be there as well: this one is first.
            for (StreamRound* round : under_way_) take_early(*round);
        }
        from.in_body = false;
        from.head_read = 0;
    }
    return moved;
}
RESHARD_INLINE void detail::StreamFamily::take_early(StreamRound& round) {
    for (int r = 0; r < round.size() && !early_.empty(); ++r) {
        StreamRound::Side& side = round.side(r);
        auto const found = side.arrived ? early_.end() : early_.find({round.id(), round.outermost(r)});
        if (found == early_.end()) continue;
        side.head = found->second.head;
        side.in = std::move(found->second.bytes);
        side.arrived = true;
        early_.erase(found);
    }
}
RESHARD_INLINE bool detail::StreamFamily::move_all(StreamRound& waiting) {
    bool moved = false;
    for (StreamRound* round : under_way_) {
        moved = write(*round) || moved;
        take_early(*round);
    }
    for (int r = 0; r < streams_->size(); ++r)
        if (r != streams_->rank()) moved = read(r, waiting) || moved;
    return moved;
}
RESHARD_INLINE bool detail::StreamFamily::advance(StreamRound& round, bool may_block) {
    auto last = std::chrono::steady_clock::now();
    while (true) {
        hear();
        check(round);
        bool const moved = move_all(round);
        if (round.complete()) break;
        for (int r = 0; r < round.size(); ++r) {
            bool const over = round.side(r).arrived && round.side(r).written == round.side(r).out.size();
            if (over || !peer(round.outermost(r)).closed) continue;
            fail(ErrorCode::peer_failed,
                 concat("reshard::streams: rank ", round.outermost(r), " has ended and closed its streams, but rank ",
                        streams_->rank(), " waits for it in ", name(round.call()), ". Fix: see why it ended."),
                 round, -1, -1);
        }
        if (!may_block) return false;
        auto const now = std::chrono::steady_clock::now();
        if (moved) {
            last = now;
        } else if (now - last < deadline_) {
            streams_->idle();
        } else {
            int late = 0;
            while (late + 1 < round.size() && round.side(late).arrived) ++late;
            fail(ErrorCode::deadline,
                 concat("reshard::streams: rank ", round.outermost(late), " is late: rank ", streams_->rank(),
                        " has waited for ", deadline_.count(), " ms in ", name(round.call()),
                        ". Fix: see where it is, or set a longer deadline."),
                 round, -1, -1);
        }
    }
    std::erase(under_way_, &round);
    for (int r = 0; r < round.size(); ++r) {
        if (r == round.me() || round.side(r).head.call == round.call()) continue;
        fail(ErrorCode::mismatch,
             concat("reshard::streams: rank ", r, " is in ", name(round.side(r).head.call), ", but rank ", round.me(),
                    " is in ", name(round.call()), transport::other_call),
             round, r, round.me());
    }
    return true;
}

// ---- One group -------------------------------------------------------------------------------------------------

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
RESHARD_INLINE bool detail::StreamGroup::advance(bool may_block) {
    if (!family_->advance(round_, may_block)) return false;
    unpack();
    return true;
}
RESHARD_INLINE void detail::StreamGroup::pack() {
    for (int r = 0; r < round_.size(); ++r) {
        auto const mine = transfers_with(transfers_.sends, r);
        if (r == round_.me()) continue;
        auto const listing = TransferListing::of(mine, transfers_.number);
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
    TransferListing sent = TransferListing::of(transfers_with(transfers_.sends, peer), transfers_.number);
    if (peer != round_.me()) std::memcpy(&sent, round_.side(peer).in.data(), sizeof sent);
    std::string const text = mismatch_of(peer, sent, round_.me(), TransferListing::of(receives, transfers_.number));
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
