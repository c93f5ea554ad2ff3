// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/packed.hpp
/// \brief  Where a column lies in the packed block of entries that one rank sends to another.
/// \depends core. constexpr: sender, receiver and kernels compute the same places from counts and widths.
///
/// A block holds its columns one after the other, each with all of its rows. Columns of 8 bytes are dense; the bytes of
/// any other width are padded with zeros to a multiple of 16, so every column starts at a multiple of 8.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// Bytes of one column of `rows` entries. \pre they fit 64 bits: packed_block_bytes() has checked it.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr Index packed_column_bytes(Index rows, Index width) noexcept {
    return width == 8 ? rows * 8 : (rows * width + 15) / 16 * 16;
}

/// Where column c begins in a block of `rows` entries.
[[nodiscard]] constexpr Index packed_column_begin(Index rows, std::span<Index const> widths, std::size_t c) noexcept {
    Index begin = 0;
    for (Index width : widths.first(c)) begin += packed_column_bytes(rows, width);
    return begin;
}

/// Bytes of a block of `rows` entries of columns of `widths` bytes. Throws ShapeError when rows are negative, a width
/// is below 1 or the bytes do not fit 64 bits.
[[nodiscard]] constexpr Index packed_block_bytes(Index rows, std::span<Index const> widths) {
    Index total = 0;
    for (Index width : widths) {
        if (rows < 0 || width < 1) {
            errors::raise(ErrorCode::shape, "reshard: a packed block of ", rows, " rows has a column of ", width,
                          " bytes a row. Fix: give 0 or more rows and columns of 1 byte or more.");
        }
        Index bytes = 0;
        bool const fits = detail::multiply_fits(rows, width, bytes) && bytes <= INT64_MAX - 15;
        bytes = fits ? packed_column_bytes(rows, width) : 0;
        if (!fits || bytes > INT64_MAX - total) {
            errors::raise(ErrorCode::shape, "reshard: a packed block of ", rows, " rows of ", widths.size(),
                          " columns has more bytes than 64 bits count. Fix: send fewer rows at once.");
        }
        total += bytes;
    }
    return total;
}

}  // namespace reshard::inline v0_1
