// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/watched.hpp
/// \brief  Sees an error pass: how transports and policies learn what went wrong below them.
/// \depends core/{error,function_ref}.hpp. Without exceptions an error never comes back from the call, so there is
/// nothing to see.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/function_ref.hpp>

#include <new>  // bad_alloc

namespace reshard::inline v0_1::detail {

/// For destructors: the error is told elsewhere. Whether there was none.
template <class Body>
bool quietly(Body&& body) noexcept {
#if defined(__cpp_exceptions)
    try {
        body();
    } catch (...) {  // the communicator is poisoned and says so at its next call
        return false;
    }
#else
    body();
#endif
    return true;
}

#if defined(__cpp_exceptions)
/// Within a handler: tells of what was caught, and throws it on: std::bad_alloc as this library's, which callers of
/// collective calls look for. Once for all that watch.
[[noreturn, gnu::cold]] inline void tell_and_rethrow(FunctionRef<void(ErrorCode code, std::string_view text)> seen) {
    try {
        throw;
    } catch (Error const& error) {
        seen(error.code(), error.what());
        throw;
    } catch (std::bad_alloc const&) {
        seen(ErrorCode::out_of_memory, no_memory_text);
        std::string words;
        quietly([&] { words = no_memory_text; });  // what() has them if there is no memory for them
        raise(ErrorCode::out_of_memory, std::move(words));
    } catch (std::exception const& error) {
        seen(ErrorCode::user, error.what());
        throw;
    } catch (...) {
        seen(ErrorCode::user, "an exception that is not a std::exception");
        throw;
    }
}
#endif

/// Returns what body() returns. An error calls seen(code, text), within its handler, and then goes on as it was thrown,
/// std::bad_alloc as OutOfMemory; `seen` is noexcept.
template <class Body, class Seen>
decltype(auto) watched(Body&& body, [[maybe_unused]] Seen&& seen) {
#if defined(__cpp_exceptions)
    try {
        return body();
    } catch (...) {
        tell_and_rethrow(seen);
    }
#else
    return body();
#endif
}

/// The same for what a rank does while others wait for it, or will: they are told, by comm.abort().
template <class C, class Body>
decltype(auto) or_abort(C&& comm, Body&& body) {
    return watched(body, [&](ErrorCode code, std::string_view why) noexcept { comm.abort(code, why); });
}

}  // namespace reshard::inline v0_1::detail
