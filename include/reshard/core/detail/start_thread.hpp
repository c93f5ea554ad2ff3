// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/start_thread.hpp
/// \brief  A thread, or an error that says what helps.
/// \depends core/error.hpp, threads.
#pragma once

#include <reshard/core/error.hpp>

#include <thread>  // thread

namespace reshard::inline v0_1::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_thread(std::string_view who, char const* why) {
    raise(ErrorCode::out_of_memory, who, ": the system gives no thread (", why,
          "). Fix: raise the limit on processes and threads (ulimit -u; pids.max in a container), or start fewer.");
}
/// A thread that does it. Throws OutOfMemory, which begins with `who`, where the system gives none.
template <class Work>
[[nodiscard]] std::thread start_thread(Work&& work, [[maybe_unused]] std::string_view who) {
#if defined(__cpp_exceptions)
    try {
        return std::thread(std::forward<Work>(work));
    } catch (std::exception const& error) {
        refuse_thread(who, error.what());
    }
#else
    return std::thread(std::forward<Work>(work));
#endif
}

}  // namespace reshard::inline v0_1::detail
