// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/transfer.hpp
/// \brief  What a transport is asked to move: a strided box of local memory, to or from one peer.
/// \depends core only. Plain data, in the namespace of those who write transports and memory policies.
#pragma once

#include <reshard/core/dtype.hpp>
#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

namespace transport {
/// One dimension of a strided box: `extent` steps of `stride` bytes.
struct StridedDim {
    Index extent = 0;
    Index stride = 0;  ///< bytes; may be zero (a source only) or negative
    friend constexpr bool operator==(StridedDim const&, StridedDim const&) = default;
};

/// Elements of `element_bytes` bytes, dimensions outer to inner. Both sides of a transfer list the same extents
/// in the same order, so element k of the sent box is element k of the received one. One more dimension than a
/// tensor has: the addends of a partial tensor are a dimension here.
struct StridedBox {
    InlineList<StridedDim, max_dims + 1> dims;
    Index element_bytes = 1;

    [[nodiscard]] constexpr Index elements() const noexcept {
        Index product = 1;
        for (auto const& dim : dims) product *= dim.extent;
        return product;
    }
    [[nodiscard]] constexpr Index payload_bytes() const noexcept { return elements() * element_bytes; }
};

/// The dimensions of a box in some order, outer to inner: four bits each, counted from 1. Plain data, which ranks tell
/// each other.
struct DimOrder {
    static_assert(max_dims + 1 < 16);
    std::uint64_t word = 0;

    [[nodiscard]] constexpr int operator[](int place) const noexcept {
        return static_cast<int>(word >> (4 * place) & 15U) - 1;
    }
    /// Of how many it is an order; -1: of none.
    [[nodiscard]] constexpr int dims() const noexcept {
        int count = 0;
        unsigned seen = 0;
        for (std::uint64_t left = word; left != 0; left >>= 4U, ++count) seen |= 1U << (left & 15U);
        return seen == (2U << count) - 2 ? count : -1;
    }
    friend constexpr bool operator==(DimOrder, DimOrder) = default;
};

/// As they lie in memory: the longest steps outermost. Dimensions of one element stay where they are.
[[nodiscard]] constexpr DimOrder order_of(StridedBox const& box) noexcept {
    int const dims = box.dims.size();
    int at[max_dims + 1] = {};
    for (int d = 0; d < dims; ++d) at[d] = d;
    auto const is_shorter = [&](int a, int b) {
        if (box.dims[a].extent <= 1 || box.dims[b].extent <= 1) return false;
        Index const one = box.dims[a].stride;
        Index const other = box.dims[b].stride;
        return one != 0 && (other == 0 || (one < 0 ? -one : one) < (other < 0 ? -other : other));
    };
    for (int a = 0; a < dims; ++a)
        for (int b = a + 1; b < dims; ++b)
            if (is_shorter(at[a], at[b])) std::swap(at[a], at[b]);
    DimOrder order;
    for (int d = dims; d-- > 0;) order.word = order.word << 4U | static_cast<unsigned>(at[d] + 1);
    return order;
}

/// Element k of `from_box`, times `factor`, becomes element k of `to_box`: convert of memory/convert.hpp.
using ConvertBox = void (*)(std::byte const* from, StridedBox const& from_box, DType from_type, std::byte* to,
                            StridedBox const& to_box, DType to_type, double factor) noexcept;

/// What becomes of values between memory and the wire: value = round_to_nearest_even(value * factor). Both sides of a
/// transfer have one or neither has, and `wire` is the same on both; at most one side changes anything, so that values
/// are rounded once and no transport gets other bits. On the wire an element takes bytes(wire).
///
/// Conversions bring the function that carries them out, so that transports need not know it. It is an address of the
/// process that made the conversion: what comes from another process is converted by the receiver's own.
struct Conversion {
    DType memory = DType::u8;  ///< element_bytes of the box is bytes(memory)
    DType wire = DType::u8;
    double factor = 1.0;           ///< of floating types only
    ConvertBox convert = nullptr;  ///< null: the elements travel as they are, and the other members say nothing

    [[nodiscard]] constexpr bool is_active() const noexcept { return convert != nullptr; }
    /// Whether this side moves the bytes as they lie in memory.
    [[nodiscard]] constexpr bool is_plain() const noexcept { return !is_active() || (memory == wire && factor == 1.0); }
    friend constexpr bool operator==(Conversion const& a, Conversion const& b) noexcept {
        return a.memory == b.memory && a.wire == b.wire && a.factor == b.factor && a.is_active() == b.is_active();
    }
};

/// A box of this rank's memory and the peer it goes to (Byte = std::byte const) or comes from (std::byte).
template <class Byte>
struct Transfer {
    int peer = 0;
    Byte* base = nullptr;  ///< address of the box's first element
    StridedBox box;
    Conversion conversion{};

    /// Bytes of one element on the wire, and of all of them: the same on both sides.
    [[nodiscard]] constexpr Index wire_element_bytes() const noexcept {
        return conversion.is_active() ? bytes(conversion.wire) : box.element_bytes;
    }
    [[nodiscard]] constexpr Index payload_bytes() const noexcept { return box.elements() * wire_element_bytes(); }
};

using Send = Transfer<std::byte const>;
using Receive = Transfer<std::byte>;
}  // namespace transport

namespace detail {
using transport::Conversion, transport::ConvertBox, transport::DimOrder, transport::order_of, transport::Receive,
    transport::Send, transport::StridedBox, transport::StridedDim, transport::Transfer;

/// The floats of complex numbers: two each, in a dimension of their own.
[[nodiscard]] constexpr StridedBox floats_of(StridedBox box) noexcept {
    box.element_bytes /= 2;
    box.dims.push_back({2, box.element_bytes});
    return box;
}
}  // namespace detail

}  // namespace reshard::inline v0_1
