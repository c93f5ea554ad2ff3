// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/lanes.hpp
/// \brief  Exchanges in rounds: what a pair of ranks moves in its next one, by a rule that both of them know.
/// \depends comm/detail/{box_pieces,peers}.hpp.
///
/// The rule looks at the transfers of the pair alone, at extents and types: never at strides, nor at where memory lies.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/peers.hpp>

#include <climits>  // INT_MAX
#include <span>
#include <vector>

namespace reshard::inline v0::detail {

/// What one pair may move in one round, one way.
struct PairShare {
    int messages = INT_MAX;
    Index bytes = 1;
    Index overhead = 0;  ///< bytes that a message counts for beside its elements
};

/// The transfers of one peer, and how far they are.
struct TransferLane {
    int peer = 0;
    int distance = 0;    ///< ranks around: up for sends, down for receives
    std::size_t at = 0;  ///< next transfer
    std::size_t end = 0;
    Index piece = 0;  ///< next piece of it
    PieceRule rule{};
};

/// Bytes an element counts for, the same on both sides: one that is converted takes room on the host on the way.
template <class Byte>
[[nodiscard]] constexpr Index wire_weight(Transfer<Byte> const& transfer) noexcept {
    return transfer.conversion.is_active() ? 16 : transfer.box.element_bytes;
}

/// Calls body(transfer, piece of it) for what the lane moves in its next round, and advances it.
template <class Byte, class Body>
void take_round(std::span<Transfer<Byte> const> transfers, TransferLane& lane, PairShare const& share, Body&& body) {
    Index taken = 0;
    for (int n = 0; n < share.messages && lane.at < lane.end; ++n) {
        Transfer<Byte> const& transfer = transfers[lane.at];
        Index const weight = wire_weight(transfer);
        if (lane.piece == 0) lane.rule = piece_rule_of(transfer.box, weight, share.bytes - share.overhead);
        Transfer<Byte> const piece = piece_of(transfer, lane.rule, lane.piece);
        Index const load = piece.box.elements() * weight + share.overhead;
        if (n > 0 && taken + load > share.bytes) return;
        taken += load;
        body(transfer, piece);
        if (++lane.piece < lane.rule.pieces) continue;
        lane.piece = 0;
        ++lane.at;
    }
}

/// The transfers of an exchange one way, a lane per peer, and how far they are.
template <class Byte>
struct PeerLanes {
    std::span<Transfer<Byte> const> transfers;
    std::span<Transfer<Byte> const> own;  ///< what stays with the rank
    std::vector<TransferLane> all;
    std::vector<TransferLane> left;  ///< as far as they have come

    void lay(std::span<Transfer<Byte> const> given, int rank, int ranks) {
        transfers = given;
        own = transfers_with(given, rank);
        all.clear();
        for_each_peer(given, 0, [&](int peer, std::span<Transfer<Byte> const> theirs) {
            int const ahead = std::is_const_v<Byte> ? peer - rank : rank - peer;
            auto const at = static_cast<std::size_t>(theirs.data() - given.data());
            all.push_back({peer, (ahead + ranks) % ranks, at, at + theirs.size()});
        });
    }
    void leave_out_own() {
        std::erase_if(all, [](TransferLane const& lane) { return lane.distance == 0; });
    }
    /// Calls body(transfer, piece of it) for the next round of the lanes whose distance is in [first, last).
    template <class Body>
    void take_rounds(PairShare const& share, int first, int last, Body&& body) {
        for (TransferLane& lane : left)
            if (lane.distance >= first && lane.distance < last) take_round(transfers, lane, share, body);
    }
    /// Whether there is another round.
    [[nodiscard]] bool go_on() {
        std::erase_if(left, [](TransferLane const& lane) { return lane.at == lane.end; });
        return !left.empty();
    }
};

/// Both ways.
struct RoundLanes {
    PeerLanes<std::byte const> out;
    PeerLanes<std::byte> in;

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

}  // namespace reshard::inline v0::detail
