// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/box_pieces.hpp
/// \brief  How transfers are cut into messages, and one box into pieces: a rule both sides of a pair know.
/// \depends core, memory. No MPI, no allocation.
///
/// The rule looks at extents and at bytes on the wire, never at strides: those are each side's own matter, and so is
/// whether it packs. Consecutive transfers share a message while they fit into `piece_bytes`; a longer transfer
/// travels alone, in pieces of at most that size. So no message comes near the 2^31 bytes that MPI can count.
#pragma once

#include <reshard/memory/copy.hpp>

namespace reshard::inline v0::detail {

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

/// The same extents without gaps, of elements of `element_bytes`.
[[nodiscard]] constexpr StridedBox dense_box(StridedBox const& box, Index element_bytes) noexcept {
    StridedBox dense = box;
    dense.element_bytes = element_bytes;
    Index stride = element_bytes;
    for (int d = box.dims.size() - 1; d >= 0; --d) {
        dense.dims[d].stride = stride;
        stride *= box.dims[d].extent;
    }
    return dense;
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
[[nodiscard]] constexpr Transfer<Byte> dense_at(Byte* at, Transfer<Other> const& transfer) noexcept {
    return {transfer.peer, at, dense_box(transfer.box, transfer.box.element_bytes), transfer.conversion};
}

/// Of elements that lie in memory as they travel.
[[nodiscard]] constexpr Conversion on_wire(Conversion conversion) noexcept {
    conversion.memory = conversion.wire;
    conversion.factor = 1.0;
    return conversion;
}

/// The transfer as it lies packed at `at`: the same elements, without gaps, as they travel. Still active where it was,
/// so that a transport can tell both sides that they disagree.
template <class Byte, class Other>
[[nodiscard]] constexpr Transfer<Byte> packed_at(Byte* at, Transfer<Other> const& transfer) noexcept {
    return {transfer.peer, at, dense_box(transfer.box, transfer.wire_element_bytes()), on_wire(transfer.conversion)};
}

}  // namespace reshard::inline v0::detail
