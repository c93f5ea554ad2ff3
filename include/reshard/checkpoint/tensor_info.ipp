// SPDX-License-Identifier: Apache-2.0
// How checkpoint/tensor_info.hpp is done.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/checkpoint/text.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE SafetensorsRule safetensors_rule(Error const& error) noexcept {
    std::string_view message = error.message();
    if (auto const mark = message.find(": "); message.starts_with("rank ") && mark != std::string_view::npos)
        message.remove_prefix(mark + 2);  // "rank 0 of 2: "
    std::string_view const head = message.substr(0, message.find(':'));
    for (int i = 1; i < detail::safetensors_rule_count; ++i) {
        auto const rule = static_cast<SafetensorsRule>(i);
        ErrorCode const code = rule == SafetensorsRule::missing_files ? ErrorCode::io : ErrorCode::format;
        if (error.code() == code && name(rule) == head) return rule;
    }
    return SafetensorsRule::none;
}

RESHARD_INLINE void detail::raise_rule(SafetensorsRule rule, std::initializer_list<Part> words) {
    std::string text = concat(name(rule), ": ");
    append(text, words);
    raise(ErrorCode::format, std::move(text));
}

namespace detail {
inline constexpr std::size_t quoted_bytes = 160;  ///< of a name, at most
/// Bytes of the first character of a text where a terminal would not show it, or the text in another order for it:
/// controls, blanks of other widths, marks of direction and of byte order. 0 for others.
[[nodiscard]] inline std::size_t hidden_bytes(std::string_view text) noexcept {
    auto const byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : '\0'; };
    auto const is_from = [](int low, int value, int high) { return low <= value && value <= high; };
    int const second = byte(1);
    int const third = byte(2);
    switch (int const first = byte(0)) {
        case 0xc2: return is_from(0x80, second, 0xa0) || second == 0xad ? 2 : 0;
        case 0xd8: return second == 0x9c ? 2 : 0;  // U+061C
        case 0xe2:
            if (second == 0x80) return is_from(0x80, third, 0x8f) || is_from(0xa8, third, 0xaf) ? 3 : 0;  // U+202E
            return second == 0x81 && is_from(0x9f, third, 0xaf) ? 3 : 0;                                  // U+2066
        case 0xef: return second == 0xbb && third == 0xbf ? 3 : 0;                                        // U+FEFF
        default: return first < 0x20 || first == 0x7f ? 1 : 0;
    }
}
}  // namespace detail

RESHARD_INLINE std::string detail::quote_name(std::string_view text) {
    std::size_t length = smaller(text.size(), quoted_bytes);
    if (length < text.size()) {  // never cut a UTF-8 sequence
        while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U) --length;
    }
    std::string result = "'";
    for (std::size_t i = 0; i < length;) {
        std::size_t hidden = hidden_bytes(text.substr(i, length - i));
        if (hidden == 0) result += text[i++];
        for (; hidden > 0; --hidden) result += concat("\\x", hex_text(static_cast<unsigned char>(text[i++]), 2));
    }
    if (length < text.size()) result += "...";
    return result + "'";
}
RESHARD_INLINE std::string detail::renames_text(std::vector<std::pair<std::string, std::string>> const& renames) {
    std::string text;
    for (auto const& [name, other] : renames) {
        text += concat(text.empty() ? "" : ", ", quote_name(name), " to ", quote_name(other));
        if (larger(name.size(), other.size()) > quoted_bytes)
            text += concat(" (digest ", detail::Digest{}.add_text(name).add_text(other).value(), ")");
    }
    return concat("[", text, "]");
}
RESHARD_INLINE std::string detail::list_name(std::string_view text) {
    bool plain = text.find_first_not_of(' ') != std::string_view::npos;
    for (std::size_t i = 0; i < text.size(); ++i) plain = plain && hidden_bytes(text.substr(i)) == 0;
    return plain ? std::string(text) : quote_name(text);
}

RESHARD_INLINE SafetensorsRule detail::count_stored_bytes(DType dtype, Indices const& extents,
                                                          Index& byte_count) noexcept {
    Index bit_count = bits(dtype);
    bool empty = false;
    for (Index const extent : extents) {
        if (extent == 0) {
            empty = true;
        } else if (!multiply_fits(bit_count, extent, bit_count)) {
            return SafetensorsRule::validation_overflow;
        }
    }
    if (empty) bit_count = 0;
    byte_count = bit_count / 8;
    return bit_count % 8 == 0 ? SafetensorsRule::none : SafetensorsRule::misaligned_slice;
}

RESHARD_INLINE void detail::raise_stored_bytes(SafetensorsRule rule, std::string_view who, DType dtype,
                                               Indices const& extents) {
    raise_rule(rule, who, " of shape ", to_string(extents), " and dtype ", name(dtype),
               rule == SafetensorsRule::misaligned_slice
                   ? " does not fill its last byte. Fix: pad the tensor."
                   : " has more bits than a 64-bit integer counts. Fix: correct the shape.");
}

RESHARD_INLINE Index stored_bytes(TensorSpec const& tensor) {
    Index byte_count = 0;
    auto const rule = detail::count_stored_bytes(tensor.dtype, tensor.shape.extents(), byte_count);
    if (rule != SafetensorsRule::none) {
        detail::raise_stored_bytes(rule, errors::concat("tensor ", detail::quote_name(tensor.name)), tensor.dtype,
                                   tensor.shape.extents());
    }
    return byte_count;
}

}  // namespace reshard::inline v0_1
