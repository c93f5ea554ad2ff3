// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/text.hpp
/// \brief  What texts in files are made of: hexadecimal digits in lower case, numbers in names, strings of JSON; is it
///         UTF-8?
/// \depends core/index.hpp.
#pragma once

#include <reshard/core/index.hpp>

#include <cstring>  // memcpy
#include <vector>   // vector

namespace reshard::inline v0_1::detail {

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

/// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard, gnu::noinline]] inline bool is_utf8(std::string_view text) noexcept {
    std::size_t i = 0;
    auto const byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    while (i < text.size()) {
        std::uint64_t eight = 0;
        while (text.size() - i >= sizeof(eight)) {  // nearly all of it is ASCII
            std::memcpy(&eight, text.data() + i, sizeof(eight));
            if ((eight & 0x8080808080808080U) != 0) break;
            i += sizeof(eight);
        }
        if (i == text.size()) break;
        unsigned char const first = byte(i);
        if (first < 0x80) {
            ++i;
            continue;
        }
        std::size_t length = 0;
        unsigned char low = 0x80;  // the range of the second byte is what rules out the ill-formed sequences
        unsigned char high = 0xbf;
        if (first >= 0xc2 && first <= 0xdf) {
            length = 2;
        } else if (first >= 0xe0 && first <= 0xef) {
            length = 3;
            if (first == 0xe0) low = 0xa0;
            if (first == 0xed) high = 0x9f;
        } else if (first >= 0xf0 && first <= 0xf4) {
            length = 4;
            if (first == 0xf0) low = 0x90;
            if (first == 0xf4) high = 0x8f;
        } else {
            return false;
        }
        if (text.size() - i < length || byte(i + 1) < low || byte(i + 1) > high) return false;
        for (std::size_t k = 2; k < length; ++k) {
            if (byte(i + k) < 0x80 || byte(i + k) > 0xbf) return false;
        }
        i += length;
    }
    return true;
}

/// `text` as a JSON string with its quotes, escaped as Rust's serde_json does (only what must be). \pre is_utf8(text).
inline void append_json_string(std::string& json, std::string_view text) {
    json += '"';
    for (char const c : text) {
        switch (c) {
            case '"': json += "\\\""; break;
            case '\\': json += "\\\\"; break;
            case '\b': json += "\\b"; break;
            case '\f': json += "\\f"; break;
            case '\n': json += "\\n"; break;
            case '\r': json += "\\r"; break;
            case '\t': json += "\\t"; break;
            default:
                if (static_cast<unsigned char>(c) >= 0x20) {
                    json += c;
                } else {
                    json += "\\u" + hex_text(static_cast<unsigned char>(c), 4);
                }
        }
    }
    json += '"';
}

}  // namespace reshard::inline v0_1::detail
