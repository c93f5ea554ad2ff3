// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/hex_text.hpp
/// \brief  Ids and sums in files: hexadecimal digits in lower case; numbers in names of files.
/// \depends core/index.hpp.
#pragma once

#include <reshard/core/index.hpp>

#include <vector>  // vector

namespace reshard::inline v0::detail {

/// The last `digits` hexadecimal digits of a number.
[[nodiscard]] inline std::string hex_text(std::uint64_t value, int digits) {
    constexpr char const* alphabet = "0123456789abcdef";
    std::string text;
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
        text += alphabet[(value >> static_cast<unsigned>(shift)) & 15U];
    return text;
}

/// A number of so many decimal digits, or more.
[[nodiscard]] inline std::string decimal_text(Index value, std::size_t digits) {
    std::string const text = std::to_string(value);
    return std::string(text.size() < digits ? digits - text.size() : 0, '0') + text;
}

/// `digits` hexadecimal digits, in lower case. False for anything else.
[[nodiscard]] inline bool parse_hex(std::string_view text, std::size_t digits, std::uint64_t& value) noexcept {
    value = 0;
    for (char const c : text) {
        bool const decimal = c >= '0' && c <= '9';
        if (!decimal && (c < 'a' || c > 'f')) return false;
        value = (value << 4U) | static_cast<unsigned>(decimal ? c - '0' : c - 'a' + 10);
    }
    return text.size() == digits;
}

/// Eight digits of each of `count` sums. False for anything else: sums.size() is the place of the first that is none.
[[nodiscard]] inline bool parse_sums(std::string_view text, std::size_t count, std::vector<std::uint32_t>& sums) {
    for (std::size_t at = 0; at < text.size(); at += 8) {
        std::uint64_t sum = 0;
        if (!parse_hex(text.substr(at, 8), 8, sum)) return false;
        sums.push_back(static_cast<std::uint32_t>(sum));
    }
    return sums.size() == count;
}

}  // namespace reshard::inline v0::detail
