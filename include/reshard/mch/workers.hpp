// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/workers.hpp
/// \brief  A team of threads for the kernels of this room.
/// \depends core/{error,function_ref}, core/detail/workers.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/function_ref.hpp>

namespace reshard::inline v0 {

/// The calling thread and up to `threads - 1` more, which live as long as a call. `workers(parts, body)` calls
/// body(part) once for every part in [0, parts) and returns when all are done. Where bodies throw, no other part is
/// begun, and what the first of them threw is thrown when all threads have ended. Where the system starts no more
/// threads, those that there are do everything.
class Workers {
public:
    /// Throws MeshError for less than one thread.
    explicit Workers(int threads);

    [[nodiscard]] int threads() const noexcept { return threads_; }

    void operator()(int parts, detail::FunctionRef<void(int part)> body) const;

private:
    int threads_;
};

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/mch/workers.ipp>
#endif
