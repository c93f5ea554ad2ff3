// SPDX-License-Identifier: Apache-2.0
// How core/error.hpp is done.
#pragma once

#include <reshard/core/error.hpp>

namespace reshard::inline v0 {

namespace detail {

template <ErrorCode Code>
[[noreturn]] inline void raise_as(std::string message) {
#if defined(__cpp_exceptions)
    throw CodedError<Code>(std::move(message));
#else
    if (failure_hook() != nullptr) {
        failure_hook()(Code, message.c_str());
    } else {
        std::fputs(message.c_str(), stderr);
        std::fputc('\n', stderr);
    }
    std::abort();
#endif
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

[[noreturn]] RESHARD_INLINE void raise(ErrorCode code, std::string message) {
    switch (code) {
        case ErrorCode::shape: detail::raise_as<ErrorCode::shape>(std::move(message));
        case ErrorCode::mesh: detail::raise_as<ErrorCode::mesh>(std::move(message));
        case ErrorCode::placement: detail::raise_as<ErrorCode::placement>(std::move(message));
        case ErrorCode::notation: detail::raise_as<ErrorCode::notation>(std::move(message));
        case ErrorCode::mismatch: detail::raise_as<ErrorCode::mismatch>(std::move(message));
        case ErrorCode::buffer: detail::raise_as<ErrorCode::buffer>(std::move(message));
        case ErrorCode::dtype: detail::raise_as<ErrorCode::dtype>(std::move(message));
        case ErrorCode::transition: detail::raise_as<ErrorCode::transition>(std::move(message));
        case ErrorCode::peer_failed: detail::raise_as<ErrorCode::peer_failed>(std::move(message));
        case ErrorCode::deadline: detail::raise_as<ErrorCode::deadline>(std::move(message));
        case ErrorCode::transport: detail::raise_as<ErrorCode::transport>(std::move(message));
        case ErrorCode::format: detail::raise_as<ErrorCode::format>(std::move(message));
        case ErrorCode::io: detail::raise_as<ErrorCode::io>(std::move(message));
        case ErrorCode::out_of_memory: detail::raise_as<ErrorCode::out_of_memory>(std::move(message));
        case ErrorCode::none:
        case ErrorCode::user: break;
    }
    detail::raise_as<ErrorCode::user>(std::move(message));
}

}  // namespace reshard::inline v0
