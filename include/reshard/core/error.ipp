// SPDX-License-Identifier: Apache-2.0
// How core/error.hpp is done.
#pragma once

#include <reshard/core/error.hpp>

namespace reshard::inline v0_1 {

namespace detail {

template <ErrorCode Code>
[[noreturn]] void raise_as(Said& said) {
#if defined(__cpp_exceptions)
    throw CodedError<Code>(said);
#else
    if (failure_hook() != nullptr) {
        failure_hook()(Code, said.message.c_str());
    } else {
        std::fputs(said.message.c_str(), stderr);
        std::fputc('\n', stderr);
    }
    std::abort();
#endif
}
/// The codes count from 1 to that of the user, which is what any other number means.
template <int... Before>
[[noreturn]] void raise_among(ErrorCode code, Said& said, std::integer_sequence<int, Before...>) {
    ((static_cast<int>(code) == Before + 1 ? raise_as<ErrorCode{Before + 1}>(said) : void()), ...);
    raise_as<ErrorCode::user>(said);
}

}  // namespace detail

RESHARD_INLINE void detail::append(std::string& text, std::initializer_list<Part> parts) {
    for (Part const& part : parts) {
        if (part.kind <= Part::Kind::text) {
            text.append(part.text, part.kind == Part::Kind::text ? part.number : std::string_view(part.text).size());
            continue;
        }
        bool const negative = part.kind == Part::Kind::integer && static_cast<long long>(part.number) < 0;
        char digits[20];
        char* const end = digits + sizeof digits;
        char* first = end;
        std::uint64_t rest = negative ? 0 - part.number : part.number;
        for (; first == end || rest != 0; rest /= 10) *--first = static_cast<char>('0' + rest % 10);
        if (negative) *--first = '-';
        text.append(first, static_cast<std::size_t>(end - first));
    }
}

[[noreturn]] RESHARD_INLINE void detail::raise_agreed(ErrorCode code, std::string&& message, bool agreed) {
    // A name or path of the user's may hold a NUL, which would end what(), or what a terminal obeys.
    for (char* at = message.data(); at != message.data() + message.size(); ++at) {
        auto const c = static_cast<unsigned char>(*at);
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) *at = '?';
    }
    Said said{std::move(message), agreed};
    raise_among(code, said, std::make_integer_sequence<int, static_cast<int>(ErrorCode::user)>());
}
[[noreturn]] RESHARD_INLINE void errors::raise(ErrorCode code, std::string message) {
    detail::raise_agreed(code, std::move(message), false);
}

[[noreturn]] RESHARD_INLINE void detail::raise_words(ErrorCode code, std::initializer_list<Part> words) {
    std::string text;
    append(text, words);
    raise(code, std::move(text));
}

}  // namespace reshard::inline v0_1
