// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/explain_text.hpp
/// \brief  Numbers, counts and bytes in words.
/// \depends core.
#pragma once

#include <reshard/core/dtype.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <charconv>  // to_chars

namespace reshard::inline v0_1::detail {

/// A number of so many significant digits: 12.3, 0.45, 1.20e+06; or fixed, with so many behind the point. In every
/// locale alike.
[[nodiscard, gnu::cold]] inline std::string number_text(double value, int digits,
                                                        std::chars_format format = std::chars_format::general) {
    char text[340];  // the largest double has 309 digits before the point
    return {text, std::to_chars(text, text + sizeof text, value, format, digits).ptr};
}

/// 1536 -> "1.5 KiB".
[[nodiscard]] inline std::string bytes_text(Index count) {
    constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    Index scaled = count;
    Index tenths = 0;
    while (scaled >= 1024 && unit < 6) {
        tenths = scaled % 1024 * 10 / 1024;
        scaled /= 1024;
        ++unit;
    }
    if (unit == 0) return concat(count, " B");
    return concat(scaled, ".", tenths, " ", units[unit]);
}

/// Whole bytes of so many elements. False if they do not fit 64 bits; their bits need not.
[[nodiscard]] inline bool bytes_fit(Index elements, DType dtype, Index& bytes) {
    return multiply_fits(elements / 8, bits(dtype), bytes) &&
           add_fits(bytes, ceil_div(elements % 8 * bits(dtype), Index{8}));
}
[[nodiscard]] inline std::string bytes_text(Index elements, DType dtype) {
    Index count = 0;
    return bytes_fit(elements, dtype, count) ? bytes_text(count) : concat(elements, " elements");
}
[[nodiscard]] inline std::string count_text(Index count, std::string_view what) {
    return concat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace reshard::inline v0_1::detail
