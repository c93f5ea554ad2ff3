// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/watched.hpp
/// \brief  Sees an error pass without changing it: how policies learn what went wrong below them.
/// \depends core/error.hpp. Without exceptions an error never comes back from the call, so there is nothing to see.
#pragma once

#include <reshard/core/error.hpp>

#include <new>  // bad_alloc

namespace reshard::inline v0::detail {

/// Returns what body() returns. An error calls seen(code, text) and then goes on as it was thrown; `seen` is noexcept.
template <class Body, class Seen>
decltype(auto) watched(Body&& body, [[maybe_unused]] Seen&& seen) {
#if defined(__cpp_exceptions)
    try {
        return body();
    } catch (Error const& error) {
        seen(error.code(), std::string_view(error.message()));
        throw;
    } catch (std::bad_alloc const& error) {
        seen(ErrorCode::out_of_memory, std::string_view(error.what()));
        throw;
    } catch (std::exception const& error) {
        seen(ErrorCode::user, std::string_view(error.what()));
        throw;
    } catch (...) {
        seen(ErrorCode::user, std::string_view("an exception that is not a std::exception"));
        throw;
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
