// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/watched.hpp
/// \brief  Sees an error pass without changing it: how policies learn what went wrong below them.
/// \depends core/{error,function_ref}.hpp. Without exceptions an error never comes back from the call, so there is
/// nothing to see.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/function_ref.hpp>

#include <new>  // bad_alloc

namespace reshard::inline v0::detail {

#if defined(__cpp_exceptions)
/// Within a handler: tells of what was caught, and throws it on. Once for all that watch.
[[noreturn, gnu::cold]] inline void tell_and_rethrow(FunctionRef<void(ErrorCode code, std::string_view text)> seen) {
    try {
        throw;
    } catch (Error const& error) {
        seen(error.code(), error.message());
        throw;
    } catch (std::bad_alloc const& error) {
        seen(ErrorCode::out_of_memory, error.what());
        throw;
    } catch (std::exception const& error) {
        seen(ErrorCode::user, error.what());
        throw;
    } catch (...) {
        seen(ErrorCode::user, "an exception that is not a std::exception");
        throw;
    }
}
#endif

/// Returns what body() returns. An error calls seen(code, text) and then goes on as it was thrown; `seen` is noexcept.
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

/// For destructors: the error is told elsewhere.
template <class Body>
void quietly(Body&& body) noexcept {
#if defined(__cpp_exceptions)
    try {
        body();
    } catch (...) {  // the communicator is poisoned and says so at its next call
    }
#else
    body();
#endif
}

}  // namespace reshard::inline v0::detail
