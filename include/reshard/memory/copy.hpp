// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/copy.hpp
/// \brief  Copies one strided box into another on the host: what packing, unpacking and direct pulls are made of; or
///         converts it, by what a transfer brings.
/// \depends core. No allocation, no exceptions.
#pragma once

#include <reshard/core/transfer.hpp>

namespace reshard::inline v0_1 {

/// Whether the destination should end up in the caches. `streaming` pays when everything that moves at the same
/// time exceeds about 16 MiB (the caller knows, the kernel cannot) and is ignored for rows below 512 bytes, unless they
/// are whole cache lines of the destination: block-cyclic rows are, and every second line of a row is slow to fetch.
enum class CopyHint : std::uint8_t { cached, streaming };

namespace detail {
/// The same extents without gaps, of elements of `element_bytes`: in that order, or, where it is of another number of
/// dimensions, as they are listed.
[[nodiscard]] constexpr StridedBox dense_box(StridedBox const& box, Index element_bytes, DimOrder order = {}) noexcept {
    StridedBox dense = box;
    dense.element_bytes = element_bytes;
    Index stride = element_bytes;
    bool const ordered = order.dims() == box.dims.size();
    for (int place = box.dims.size() - 1; place >= 0; --place) {
        int const d = ordered ? order[place] : place;
        dense.dims[d].stride = stride;
        stride *= box.dims[d].extent;
    }
    return dense;
}

/// Of elements that lie in memory as they travel.
[[nodiscard]] constexpr Conversion on_wire(Conversion conversion) noexcept {
    conversion.memory = conversion.wire;
    conversion.factor = 1.0;
    return conversion;
}
}  // namespace detail

/// What authors of transports, and of memory, call: the same namespace in comm/communicator.hpp.
namespace transport {
/// From this total of bytes that move together, transports pass CopyHint::streaming unless told otherwise.
inline constexpr Index streaming_payload_bytes = Index{16} << 20;
[[nodiscard]] constexpr CopyHint hint_for(Index bytes, Index threshold = streaming_payload_bytes) noexcept {
    return bytes >= threshold ? CopyHint::streaming : CopyHint::cached;
}

/// Element k of `from_box` becomes element k of `to_box`.
/// \pre Both boxes have the same extents and element_bytes; strides are free, but elements of the destination do not
///      overlap each other, nor the source. Bases may be aligned to nothing. A zero extent copies nothing.
void copy(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box,
          CopyHint hint = CopyHint::cached) noexcept;

/// From the sender's memory into the receiver's, for transports that reach both: the two conversions as one.
/// \pre transport::same_extents(send, receive). `hint` is for values that travel as they are.
inline void deliver(Send const& send, Receive const& receive, CopyHint hint = CopyHint::cached) noexcept {
    Conversion const& from = send.conversion;
    Conversion const& to = receive.conversion;
    if (from.is_plain() && to.is_plain()) return copy(send.base, send.box, receive.base, receive.box, hint);
    // The receiver's function: that of the sender may be an address of another process.
    to.convert(send.base, send.box, from.memory, receive.base, receive.box, to.memory, from.factor * to.factor);
}

/// The transfer as it lies packed at `at`: the same elements, without gaps, as they travel, payload_bytes() of them.
/// `deliver(send, packed_at(at, send, order))` packs, `deliver(packed_at(at, receive, order), receive)` unpacks, in the
/// order that the sender has told (TransferListing): its own, so that it copies rows, whichever dimension they lie
/// along. Without one, in the order in which dimensions are listed. Still active where it was, so that a transport can
/// tell both sides that they disagree.
template <class Byte, class Other>
[[nodiscard]] constexpr Transfer<Byte> packed_at(Byte* at, Transfer<Other> const& transfer,
                                                 DimOrder order = {}) noexcept {
    return {transfer.peer, at, detail::dense_box(transfer.box, transfer.wire_element_bytes(), order),
            detail::on_wire(transfer.conversion)};
}
}  // namespace transport

namespace detail {
using transport::copy, transport::deliver, transport::hint_for, transport::packed_at,
    transport::streaming_payload_bytes;
}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/memory/copy.ipp>
#endif
