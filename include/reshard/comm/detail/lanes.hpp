// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/lanes.hpp
/// \brief  Exchanges in rounds: what a pair of ranks moves in its next one, by a rule that both of them know.
/// \depends comm/detail/box_pieces.hpp.
///
/// The rule looks at the transfers of the pair alone, at extents and types: never at strides, nor at where memory lies.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>

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
    int distance = 0;
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

/// Calls body(transfer, piece) for what the lane moves in its next round, and advances it.
template <class Byte, class Body>
void take_round(std::span<Transfer<Byte> const> transfers, TransferLane& lane, PairShare const& share, Body&& body) {
    Index taken = 0;
    for (int n = 0; n < share.messages && lane.at < lane.end; ++n) {
        Transfer<Byte> const& transfer = transfers[lane.at];
        Index const weight = wire_weight(transfer);
        if (lane.piece == 0) lane.rule = piece_rule_of(transfer.box, weight, share.bytes - share.overhead);
        BoxPiece const piece = piece_of(transfer.box, lane.rule, lane.piece);
        Index const load = piece.box.elements() * weight + share.overhead;
        if (n > 0 && taken + load > share.bytes) return;
        taken += load;
        body(transfer, piece);
        if (++lane.piece < lane.rule.pieces) continue;
        lane.piece = 0;
        ++lane.at;
    }
}

}  // namespace reshard::inline v0::detail
