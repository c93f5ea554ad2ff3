// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/convert.hpp
/// \brief  Copies one strided box into another of a different element type, times a factor, each value rounded once.
/// \depends core. No allocation, no exceptions.
///
/// result = the value of the destination's type nearest to value * factor, ties to even, whatever the two types:
///   - nothing is rounded on the way: not the product, not by way of a type in between;
///   - floats beyond the largest become infinities; NaN stays NaN and keeps its sign;
///   - integers end at their ends: 300 becomes u8 255, -1 becomes u8 0, NaN becomes 0. (C++, NumPy and torch cut
///     fractions off and let integers wrap; rounding and ending keep the error at half a unit, or the least there is.)
///   - a boolean is 0 or 1; to a boolean, everything but 0 is true.
///
/// The same type and factor 1 is a copy of bits.
#pragma once

#include <reshard/core/transfer.hpp>

namespace reshard::inline v0_1 {

namespace transport {
/// Whether convert() is defined. Numbers of at least a byte and booleans convert into each other; a factor other than
/// 1 is for floats on both sides (f16, bf16, f32, f64), and finite. Complex numbers and 8-bit floats are moved as they
/// are, and elements smaller than a byte have no address to convert them at.
[[nodiscard]] constexpr bool can_convert(DType from, DType to, double factor = 1.0) noexcept {
    if (!is_byte_sized(from) || !is_byte_sized(to)) return false;
    if (factor != 1.0) return is_floating(from) && is_floating(to) && factor - factor == 0.0;
    auto const is_number = [](DType dtype) {
        return is_floating(dtype) || is_integer(dtype) || dtype == DType::boolean;
    };
    return from == to || (is_number(from) && is_number(to));
}

/// Element k of `from_box`, times `factor`, becomes element k of `to_box`.
/// \pre can_convert(from_type, to_type, factor); the boxes have the same extents, and element_bytes is that of their
///      types. For the rest as copy(): strides are free, alignment is not needed, boxes do not overlap.
void convert(std::byte const* from, StridedBox const& from_box, DType from_type, std::byte* to,
             StridedBox const& to_box, DType to_type, double factor = 1.0) noexcept;
}  // namespace transport

namespace detail {
using transport::can_convert, transport::convert;
}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/memory/convert.ipp>
#endif
