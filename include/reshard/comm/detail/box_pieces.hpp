// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/box_pieces.hpp
/// \brief  How transfers are cut into messages and rounds, and one box into pieces: rules both sides of a pair know.
/// \depends comm/detail/peers.hpp, memory/copy.hpp. No MPI.
///
/// The rule looks at extents and at bytes on the wire, never at strides: those are each side's own matter, and so is
/// whether it packs. Consecutive transfers share a message while they fit into `piece_bytes`; a longer transfer
/// travels alone, in pieces of at most that size, or longer ones where both sides have said that they do not pack. So
/// no message comes near the 2^31 bytes that MPI can count.
#pragma once

#include <reshard/comm/detail/peers.hpp>
#include <reshard/memory/copy.hpp>

#include <climits>  // INT_MAX
#include <span>
#include <vector>

namespace reshard::inline v0_1::detail {

/// A quarter of a second-level cache: what is packed here is still there when it is sent.
inline constexpr Index piece_bytes = Index{512} << 10;

/// Cuts the box of a long transfer: the dimensions before `at` are walked one index at a time, `at` in steps.
struct PieceRule {
    int at = 0;
    Index step = 1;
    Index parts = 1;  ///< along dimension `at`
    Index pieces = 1;
};

[[nodiscard]] constexpr PieceRule piece_rule_of(StridedBox const& box, Index wire_element_bytes, Index most) noexcept {
    PieceRule rule;
    Index inner = wire_element_bytes;
    rule.at = box.dims.size() - 1;
    while (rule.at > 0 && inner * box.dims[rule.at].extent <= most) inner *= box.dims[rule.at--].extent;
    if (rule.at < 0) return rule;
    Index const extent = box.dims[rule.at].extent;
    // Equal parts, not full ones and a rest.
    rule.parts = smaller(ceil_div(extent, larger<Index>(most / inner, 1)), extent);
    rule.step = ceil_div(extent, rule.parts);
    rule.parts = ceil_div(extent, rule.step);
    rule.pieces = rule.parts;
    for (int d = 0; d < rule.at; ++d) rule.pieces *= box.dims[d].extent;
    return rule;
}

template <class Byte>
[[nodiscard]] constexpr Transfer<Byte> piece_of(Transfer<Byte> const& whole, PieceRule const& rule,
                                                Index number) noexcept {
    StridedBox const& box = whole.box;
    Transfer<Byte> piece{whole.peer, whole.base, {{}, box.element_bytes}, whole.conversion};
    if (rule.at < 0) return piece;
    Index const start = number % rule.parts * rule.step;
    Index outer = number / rule.parts;
    for (int d = rule.at - 1; d >= 0; --d) {
        piece.base += outer % box.dims[d].extent * box.dims[d].stride;
        outer /= box.dims[d].extent;
    }
    piece.base += start * box.dims[rule.at].stride;
    piece.box.dims.push_back({smaller(rule.step, box.dims[rule.at].extent - start), box.dims[rule.at].stride});
    for (int d = rule.at + 1; d < box.dims.size(); ++d) piece.box.dims.push_back(box.dims[d]);
    return piece;
}

/// The same elements, dimensions in that order; one of another number of dimensions changes nothing.
template <class Byte>
[[nodiscard]] constexpr Transfer<Byte> in_order(Transfer<Byte> transfer, DimOrder order) noexcept {
    StridedBox const box = transfer.box;
    if (order.dims() != box.dims.size()) return transfer;
    for (int place = 0; place < box.dims.size(); ++place) transfer.box.dims[place] = box.dims[order[place]];
    return transfer;
}

/// Bytes that lie side by side in memory, in the order of the elements.
struct BoxRun {
    Index bytes;
    int dims_left;  ///< dimensions outside of them; 0: the whole box is one run
};
[[nodiscard]] constexpr BoxRun run_of(StridedBox const& box) noexcept {
    BoxRun run{box.element_bytes, box.dims.size()};
    while (run.dims_left > 0 &&
           (box.dims[run.dims_left - 1].stride == run.bytes || box.dims[run.dims_left - 1].extent == 1)) {
        run.bytes *= box.dims[--run.dims_left].extent;
    }
    return run;
}

/// The transfer as it lies at `at` before it is converted, or after: the same elements, without gaps.
template <class Byte, class Other>
[[nodiscard]] constexpr Transfer<Byte> dense_at(Byte* at, Transfer<Other> const& transfer,
                                                DimOrder order = {}) noexcept {
    return {transfer.peer, at, dense_box(transfer.box, transfer.box.element_bytes, order), transfer.conversion};
}

// ---- Exchanges in rounds ---------------------------------------------------------------------------------------
// What a pair of ranks moves in its next one, by a rule that looks at the transfers of the pair alone, at extents and
// types: never at strides, nor at where memory lies. Both of them know it.

/// Bytes an element counts for, the same on both sides: one that is converted takes room on the host on the way.
template <class Byte>
[[nodiscard]] constexpr Index wire_weight(Transfer<Byte> const& transfer) noexcept {
    return transfer.conversion.is_active() ? 16 : transfer.box.element_bytes;
}

/// What one pair may move in one round, one way.
struct PairShare {
    int messages = INT_MAX;
    Index bytes = 1;
    Index overhead = 0;  ///< bytes that a message counts for beside its elements

    /// Of the pair that a peer is in: here, the same of all.
    [[nodiscard]] constexpr PairShare const& with(int /*peer*/) const noexcept { return *this; }
    /// How a transfer is cut where this is the share.
    template <class Byte>
    [[nodiscard]] constexpr PieceRule rule_of(Transfer<Byte> const& transfer) const noexcept {
        return piece_rule_of(transfer.box, wire_weight(transfer), bytes - overhead);
    }
};

/// The transfers of one peer, and how far they are.
struct PeerQueue {
    int peer = 0;
    int distance = 0;    ///< ranks around: up for sends, down for receives
    std::size_t at = 0;  ///< next transfer
    std::size_t end = 0;
    Index piece = 0;  ///< next piece of it
    PieceRule rule{};
};

/// Calls body(transfer, piece of it) for what the queue moves in its next round, and advances it.
template <class Byte, class Body>
void take_round(std::span<Transfer<Byte> const> transfers, PeerQueue& queue, PairShare const& share, Body&& body) {
    Index taken = 0;
    for (int n = 0; n < share.messages && queue.at < queue.end; ++n) {
        Transfer<Byte> const& transfer = transfers[queue.at];
        Index const weight = wire_weight(transfer);
        if (queue.piece == 0) queue.rule = share.rule_of(transfer);
        Transfer<Byte> const piece = piece_of(transfer, queue.rule, queue.piece);
        Index const load = piece.box.elements() * weight + share.overhead;
        if (n > 0 && taken + load > share.bytes) return;
        taken += load;
        body(transfer, piece);
        if (++queue.piece < queue.rule.pieces) continue;
        queue.piece = 0;
        ++queue.at;
    }
}

/// The transfers of an exchange one way, a queue per peer, and how far they are.
template <class Byte>
struct PeerQueues {
    std::span<Transfer<Byte> const> transfers;
    std::span<Transfer<Byte> const> own;  ///< what stays with the rank
    std::vector<PeerQueue> all;
    std::vector<PeerQueue> left;  ///< as far as they have come

    void lay(std::span<Transfer<Byte> const> given, int rank, int ranks) {
        transfers = given;
        own = transfers_with(given, rank);
        all.clear();
        for_each_peer(given, 0, [&](int peer, std::span<Transfer<Byte> const> theirs) {
            int const ahead = std::is_const_v<Byte> ? peer - rank : rank - peer;
            auto const at = as_size(theirs.data() - given.data());
            all.push_back({peer, (ahead + ranks) % ranks, at, at + theirs.size()});
        });
    }
    void leave_out_own() {
        std::erase_if(all, [](PeerQueue const& queue) { return queue.distance == 0; });
    }
    /// Calls body(transfer, piece of it) for the next round of the queues whose distance is in [first, last).
    /// shares.with(peer): what a pair moves in it.
    template <class Shares, class Body>
    void take_rounds(Shares const& shares, int first, int last, Body&& body) {
        for (PeerQueue& queue : left)
            if (queue.distance >= first && queue.distance < last)
                take_round(transfers, queue, shares.with(queue.peer), body);
    }
    /// Whether there is another round.
    [[nodiscard]] bool go_on() {
        std::erase_if(left, [](PeerQueue const& queue) { return queue.at == queue.end; });
        return !left.empty();
    }
};

/// Both ways.
struct RoundQueues {
    PeerQueues<std::byte const> out;
    PeerQueues<std::byte> in;

    void leave_out_own() {
        out.leave_out_own();
        in.leave_out_own();
    }
    void rewind() {
        out.left = out.all;
        in.left = in.all;
    }
    [[nodiscard]] bool go_on() {
        bool const sends = out.go_on();
        return in.go_on() || sends;
    }
};

}  // namespace reshard::inline v0_1::detail
