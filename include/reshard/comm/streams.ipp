// SPDX-License-Identifier: Apache-2.0
// How comm/streams.hpp is done.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/peers.hpp>
#include <reshard/comm/detail/team.hpp>
#include <reshard/comm/detail/version_word.hpp>
#include <reshard/comm/streams.hpp>
#include <reshard/comm/transfer_listing.hpp>
#include <reshard/core/detail/waiting.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/copy.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

namespace reshard::inline v0_1 {

RESHARD_INLINE transport::Streams::~Streams() = default;
RESHARD_INLINE void transport::Streams::idle() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

namespace detail {

RESHARD_INLINE std::string_view name(StreamCall call) noexcept {
    return call == StreamCall::exchange ? "an exchange" : call == StreamCall::agree ? "agree()" : "split()";
}
RESHARD_INLINE StreamMessage* StreamPeer::next_of(std::uint64_t group) noexcept {
    for (StreamMessage& message : inbox)
        if (message.head.group == group) return &message;
    return nullptr;
}

// ---- What all groups of a rank share ---------------------------------------------------------------------------

inline constexpr std::string_view hint_text =
    "rank() is right, and that write_some() and read_some() move bytes of the peer they are given, in order, once, and "
    "return how many.";

RESHARD_INLINE StreamFamily::StreamFamily(std::unique_ptr<transport::Streams> streams,
                                          std::chrono::milliseconds its_deadline, bool (*interrupted)())
    : streams_(std::move(streams)), peers_(as_size(streams_->size())) {
    deadline = check_deadline("StreamCommunicator", its_deadline);
    interruption.asked = interrupted;
    rank = streams_->rank();
}

/// How many of `bytes` the transport says it has moved: no more than there are.
[[nodiscard]] inline Index counted(Index n, std::span<std::byte const> bytes, int other) {
    if (n <= as_index(bytes.size())) return n;
    raise(ErrorCode::transport, "reshard::streams: the transport was given ", bytes.size(), " bytes, with rank ", other,
          " as peer, and says that it has moved ", n, ": it is at fault. Fix: see that its ", hint_text);
}
RESHARD_INLINE void StreamFamily::compare_versions(int other) {
    StreamPeer const& from = peer(other);
    std::uint64_t const word = from.reading.head.group;
    if (from.came > 0 || from.head_read < sizeof word || word == version_word) return;
    if (!is_version_word(word) && word != outermost_group) return;  // that is what older versions say there
    std::string const text = versions_differ_text("streams", rank, concat("rank ", other), word);
    poison(ErrorCode::mismatch, rank, text, outermost_group, -1, -1);
    raise(ErrorCode::mismatch, text);
}
RESHARD_INLINE void StreamFamily::expect(int other, StreamHead const& head, std::uint64_t mark) {
    std::uint64_t const next = peer(other).came + 1;
    bool const whole = mark == stream_mark && (next > 1 || head.group == version_word);
    if (whole && head.from == other && head.to == rank && head.number == next) return;
    std::string const came = concat("message ", head.number, " from rank ", head.from, " to rank ", head.to, " came");
    raise(ErrorCode::transport, "reshard::streams: message ", next, " from rank ", other, " to rank ", rank,
          " was expected, but ", whole ? came : "in it bytes are missing, or too many",
          ": the transport is at fault. Fix: see that its ", hint_text);
}
RESHARD_INLINE std::string StreamFamily::hint(int other) {
    StreamPeer const& from = peer(other);
    std::size_t const part = from.head_read + from.body_read;
    if (from.came > 0 && part == 0) return {};
    if (from.closed && part == 0) return " Where the transport is new, see also that its rank() is right.";
    return concat(" Of message ", from.came + 1, " from it ", part,
                  " bytes have come: where the transport is new, see also that its ", hint_text);
}

RESHARD_INLINE void StreamFamily::poison(ErrorCode code, int who, std::string_view reason, std::uint64_t group,
                                         int first, int second) noexcept {
    if (poisoned) return;
    record(failure_record(code, who, group, first, second, reason));
    reported = true;
    tell();
}
RESHARD_INLINE void StreamFamily::tell() noexcept {
    auto const words = std::as_bytes(std::span(&failure, 1));
    for (int r = 0; r < streams_->size(); ++r) {
        if (r == rank) continue;
        // Whoever does not take this much for a while has gone, or will see that this rank is gone.
        quietly([&] {
            auto const limit = Clock::now() + std::chrono::milliseconds(100);
            for (auto left = words; !left.empty();) {
                Index const n = counted(streams_->write_some(r, transport::StreamChannel::control, left), left, r);
                if (n < 0 || (n == 0 && Clock::now() > limit)) return;
                if (n == 0) streams_->idle();
                left = left.subspan(as_size(n));
            }
        });
    }
}
RESHARD_INLINE void StreamFamily::hear() noexcept {
    for (int r = 0; r < streams_->size() && !poisoned; ++r) {
        if (r == rank) continue;
        StreamPeer& from = peer(r);
        auto const bytes = std::as_writable_bytes(std::span(&from.record, 1)).subspan(from.record_read);
        quietly([&] {
            Index const n = counted(streams_->read_some(r, transport::StreamChannel::control, bytes), bytes, r);
            from.record_read += as_size(std::max<Index>(n, 0));
        });
        if (from.record_read != sizeof from.record) continue;
        record(from.record);
        tell();  // this rank may end before the one that failed has told all: who waits for both is to hear the reason
    }
}

RESHARD_INLINE std::span<std::byte> StreamFamily::message_to(int other, StreamHead head) {
    StreamPeer& to = peer(other);
    head.number = ++to.sent;
    if (head.number == 1) head.group = version_word;
    head.from = rank;
    head.to = other;
    std::size_t const whole = sizeof head + as_size(head.bytes) + sizeof head.mark;
    if (to.listed == to.written) to.out.clear();
    std::size_t const at = to.out.size();
    to.out.resize(at + whole);
    std::memcpy(to.out.data() + at, &head, sizeof head);
    std::memcpy(to.out.data() + at + whole - sizeof head.mark, &head.mark, sizeof head.mark);
    to.listed += whole;
    return std::span(to.out).subspan(at + sizeof head, as_size(head.bytes));
}
RESHARD_INLINE bool StreamFamily::move(std::uint64_t waiting) {
    bool moved = false;
    for (int r = 0; r < streams_->size(); ++r) {
        if (r == rank) continue;
        moved = write(r) || moved;
        moved = read(r, waiting) || moved;
    }
    return moved;
}
RESHARD_INLINE bool StreamFamily::write(int other) {
    StreamPeer& to = peer(other);
    if (to.listed == to.written || to.closed) return false;
    auto const left = std::span(std::as_const(to.out)).last(as_size(to.listed - to.written));
    // A peer that reads no more may have said why: what it wrote is read to its end, which closes it.
    Index const n = counted(streams_->write_some(other, transport::StreamChannel::data, left), left, other);
    to.written += as_size(std::max<Index>(n, 0));
    return n > 0;
}
RESHARD_INLINE bool StreamFamily::read(int other, std::uint64_t waiting) {
    StreamPeer& from = peer(other);
    bool moved = false;
    auto const fill = [&](std::span<std::byte> all, std::size_t& got) {
        while (got < all.size()) {
            auto const left = all.subspan(got);
            Index const n = counted(streams_->read_some(other, transport::StreamChannel::data, left), left, other);
            if (n < 0) from.closed = true;
            if (n <= 0) return false;
            got += as_size(n);
            moved = true;
        }
        return true;
    };
    auto& [head, body] = from.reading;
    while (!from.closed) {
        bool const whole = fill(std::as_writable_bytes(std::span(&head, 1)), from.head_read);
        compare_versions(other);  // as soon as it can be: what another version says may be shorter
        if (!whole) return moved;
        expect(other, head, head.mark);
        // It is ahead in the call that this rank waits in: it can wait, too.
        if (head.group == waiting && from.next_of(waiting) != nullptr) return moved;
        body.resize(as_size(head.bytes) + sizeof head.mark);
        if (!fill(body, from.body_read)) return moved;
        std::uint64_t mark = 0;
        std::memcpy(&mark, body.data() + head.bytes, sizeof mark);
        expect(other, head, mark);
        if (++from.came == 1) head.group = outermost_group;
        from.inbox.push_back({head, std::exchange(body, std::exchange(from.spare, {}))});
        from.head_read = 0;
        from.body_read = 0;
    }
    return moved;
}

// ---- One group -------------------------------------------------------------------------------------------------

/// Bytes that a transfer takes in a message: elements begin where the processor likes to find them.
[[nodiscard]] constexpr Index slot_of(Index payload_bytes) noexcept { return (payload_bytes + 7) / 8 * 8; }

RESHARD_INLINE void StreamGroup::check(bool waiting, int late) {
    if (!family_->poisoned) return;
    FailureRecord failure = family_->failure;
    std::string const whom = late < 0 ? std::string() : concat(" for rank ", outermost(late));
    if (waiting) failure = told_to_waiting(failure, family_->rank, name(call_), whom);
    raise_failure(failure, "reshard::streams", rank_, id_, waiting, family_->reported);
}
RESHARD_INLINE void StreamGroup::fail(ErrorCode code, std::string const& reason, int first, int second, int late) {
    family_->hear();
    check(true, late);  // the first failure counts
    int const who = late < 0 ? family_->rank : outermost(late);
    family_->poison(code, who, reason, id_, first, second);
    raise(code, reason);
}
RESHARD_INLINE std::span<std::byte> StreamGroup::message_to(int r, std::size_t bytes) {
    auto const body = family_->message_to(outermost(r), {id_, call_, bytes});
    listed_[as_size(r)] = peer(r).listed;
    return body;
}
RESHARD_INLINE bool StreamGroup::meet(bool may_block, std::chrono::milliseconds patience) {
    auto last = Clock::now();
    auto seen = last;
    auto limit = Clock::time_point::max();
    while (true) {
        bool const moved = family_->move(id_);
        int late = -1;
        for (int r = size() - 1; r >= 0; --r) {
            bool const gone = r == rank_ || peer(r).written >= listed_[as_size(r)];
            if (r == rank_ || (gone && peer(r).next_of(id_) != nullptr)) continue;
            late = r;
            if (!peer(r).closed) continue;
            fail(ErrorCode::peer_failed,
                 concat("reshard::streams: rank ", outermost(r), " has ended and closed its streams, but rank ",
                        family_->rank, " waits for it in ", name(call_), ". Fix: see why it ended.",
                        family_->hint(outermost(r))),
                 -1, -1, r);
        }
        if (late < 0) break;
        family_->hear();
        auto const now = look_at_clock(last, seen);
        if (family_->poisoned) {
            limit = std::min(limit, now + std::min(patience, family_->deadline));
            if (now >= limit) check(true, late);
        }
        if (!may_block) return false;
        if (family_->interruption.wanted(now)) fail(ErrorCode::user, interrupted_text("streams", name(call_)), -1, -1);
        if (moved) {
            last = now;
        } else if (now - last < family_->deadline) {
            family_->streams().idle();
        } else {
            fail(ErrorCode::deadline,
                 concat("reshard::streams: rank ", outermost(late), " is late: rank ", family_->rank,
                        " has waited for ", family_->deadline.count(), " ms in ", name(call_),
                        ". Fix: see where it is, or set a longer deadline.", family_->hint(outermost(late))),
                 -1, -1, late);
        }
    }
    for (int r = 0; r < size(); ++r) {
        if (r == rank_) continue;
        StreamPeer& from = peer(r);
        StreamMessage* const message = from.next_of(id_);
        StreamCall const theirs = message->head.call;
        in(r).swap(message->body);
        from.spare = std::move(message->body);
        from.inbox.erase(from.inbox.begin() + (message - from.inbox.data()));
        if (theirs == call_) continue;
        fail(ErrorCode::mismatch,
             concat("reshard::streams: rank ", r, " is in ", name(theirs), ", but rank ", rank_, " is in ", name(call_),
                    ". Fix: ", same_calls, transport::who_agrees),
             r, rank_);
    }
    return true;
}
RESHARD_INLINE void StreamGroup::gather(StreamCall call, std::span<std::byte const> mine,
                                        std::chrono::milliseconds patience) {
    call_ = call;
    for (int r = 0; r < size(); ++r) {
        if (r == rank_) {
            in(r).assign(mine.begin(), mine.end());
        } else {
            std::copy(mine.begin(), mine.end(), message_to(r, mine.size()).begin());
        }
    }
    static_cast<void>(meet(true, patience));
}

RESHARD_INLINE void StreamGroup::start(transport::BoundTransfers const& transfers) {
    begin();
    transfers_ = transfers;
    call_ = StreamCall::exchange;
    guarded([&, this] {
        pack();
        family_->move(id_);
    });
}
RESHARD_INLINE bool StreamGroup::advance(bool may_block) {
    return guarded([&, this] {
        if (!meet(may_block, {})) return false;
        unpack();
        return true;
    });
}
RESHARD_INLINE void StreamGroup::pack() {
    for (int r = 0; r < size(); ++r) {
        auto const mine = transfers_with(transfers_.sends, r);
        if (r == rank_) continue;
        auto const listing = TransferListing::of(mine, transfers_.number);
        std::size_t bytes = sizeof listing;
        for (Send const& send : mine) bytes += as_size(slot_of(send.payload_bytes()));
        std::byte* at = message_to(r, bytes).data();
        std::memcpy(at, &listing, sizeof listing);
        at += sizeof listing;
        for (Send const& send : mine) {
            deliver(send, packed_at(at, send, listing.order));
            at += slot_of(send.payload_bytes());
        }
    }
}
RESHARD_INLINE void StreamGroup::compare(int peer) {
    auto const receives = transfers_with(transfers_.receives, peer);
    TransferListing sent = TransferListing::of(transfers_with(transfers_.sends, peer), transfers_.number);
    if (peer != rank_) std::memcpy(&sent, in(peer).data(), sizeof sent);
    std::string const text = mismatch_of(peer, sent, rank_, TransferListing::of(receives, transfers_.number));
    if (!text.empty()) fail(ErrorCode::mismatch, text, peer, rank_);
}
RESHARD_INLINE void StreamGroup::unpack() {
    for (int r = 0; r < size(); ++r) compare(r);
    for_each_pair(transfers_.sends, transfers_.receives, [&, this](int peer, auto sends, auto receives) {
        Index const sent = payload_of(sends);
        if (peer == rank_) {
            for (std::size_t k = 0; k < sends.size(); ++k) deliver(sends[k], receives[k]);
            traffic_.bytes_local += sent;
            return;
        }
        TransferListing listing;
        std::memcpy(&listing, in(peer).data(), sizeof listing);
        std::byte const* at = in(peer).data() + sizeof listing;
        for (Receive const& receive : receives) {
            deliver(packed_at(at, receive, listing.order), receive);
            at += slot_of(receive.payload_bytes());
        }
        traffic_ += Traffic{sends.empty() ? 0 : 1, sent, receives.empty() ? 0 : 1, payload_of(receives), 0};
    });
}
RESHARD_INLINE Verdict StreamGroup::agree(Verdict const& mine) {
    auto const maximum = [&, this](std::span<std::uint64_t> words, std::chrono::milliseconds patience) {
        gather(StreamCall::agree, std::as_bytes(words), patience);
        for (int r = 0; r < size(); ++r) {
            std::uint64_t theirs[most_words] = {};
            std::memcpy(theirs, in(r).data(), words.size_bytes());
            for (std::size_t i = 0; i < words.size(); ++i) words[i] = larger(words[i], theirs[i]);
        }
    };
    finish();
    return guarded([&, this] {
        begin();
        return agree_in_words(mine, rank_, size(), maximum);
    });
}
RESHARD_INLINE std::shared_ptr<GroupEngine> StreamGroup::split(int colour, int key) {
    finish();
    return guarded([&, this] {
        begin();
        transport::MeshLine const mine{colour, key};
        gather(StreamCall::split, std::as_bytes(std::span(&mine, 1)), {});
        auto const at = [&, this](int r) {
            transport::MeshLine one;
            std::memcpy(&one, in(r).data(), sizeof one);
            return one;
        };
        std::vector<int> ranks = ranks_of_part(rank_, size(), at);
        auto const me = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
        for (int& r : ranks) r = outermost(r);
        Digest id;  // ranks alone are not of one group, and share no errors
        id.add(id_).add(++splits_).add_signed(colour < 0 ? -1 - rank_ : colour);
        return std::make_shared<StreamGroup>(family_, id.value(), std::move(ranks), static_cast<int>(me));
    });
}

}  // namespace detail

RESHARD_INLINE StreamCommunicator::StreamCommunicator(std::unique_ptr<transport::Streams> streams,
                                                      std::chrono::milliseconds deadline, bool (*interrupted)())
    : GroupCommunicator(nullptr) {
    int const me = streams->rank();
    if (me < 0 || me >= streams->size())
        errors::raise(ErrorCode::transport, "reshard::streams: the transport says that it is rank ", me, " of ",
                      streams->size(), ": it is at fault. Fix: see what its rank() and size() return.");
    std::vector<int> everybody(detail::as_size(streams->size()));
    std::iota(everybody.begin(), everybody.end(), 0);
    auto family = std::make_shared<detail::StreamFamily>(std::move(streams), deadline, interrupted);
    engine_ =
        std::make_shared<detail::StreamGroup>(std::move(family), detail::outermost_group, std::move(everybody), me);
}

}  // namespace reshard::inline v0_1
