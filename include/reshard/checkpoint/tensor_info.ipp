// SPDX-License-Identifier: Apache-2.0
// How checkpoint/tensor_info.hpp is done.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/checkpoint/text.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE SafetensorsRule safetensors_rule(Error const& error) noexcept {
    if (error.code() != ErrorCode::format) return SafetensorsRule::none;
    std::string_view const message = error.message();
    std::string_view const head = message.substr(0, message.find(':'));
    for (int i = 1; i < detail::safetensors_rule_count; ++i) {
        if (detail::safetensors_rule_names[i] == head) return static_cast<SafetensorsRule>(i);
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
[[nodiscard]] inline bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
}  // namespace detail

RESHARD_INLINE std::string detail::quote_name(std::string_view text) {
    std::size_t length = smaller(text.size(), quoted_bytes);
    if (length < text.size()) {  // never cut a UTF-8 sequence
        while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U) --length;
    }
    std::string result = "'";
    for (char const c : text.substr(0, length)) {
        if (is_control(c)) {
            result += concat("\\x", hex_text(static_cast<unsigned char>(c), 2));
        } else {
            result += c;
        }
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
    bool plain = !text.empty();
    for (char const c : text) plain = plain && !is_control(c);
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

}  // namespace reshard::inline v0
