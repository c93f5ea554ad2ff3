// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/workers.hpp
/// \brief  A team of threads that stay alive between kernels, so that a kernel starts none and allocates nothing.
/// \depends core/{error,function_ref}, <memory>.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/function_ref.hpp>

#include <memory>  // unique_ptr

namespace reshard::inline v0 {

namespace detail {
class WorkerPool;
}

/// The calling thread and `threads - 1` more. `workers(parts, body)` calls body(part) once for every part in
/// [0, parts) and returns when all are done. Where bodies throw, one of these exceptions is thrown, when all threads
/// have ended; a thread that threw begins no other part. Used by one thread at a time.
class Workers {
public:
    /// Throws MeshError for less than one thread, OutOfMemory when the system refuses to start them, std::bad_alloc.
    explicit Workers(int threads);
    ~Workers();

    [[nodiscard]] int threads() const noexcept { return threads_; }

    void operator()(int parts, detail::FunctionRef<void(int part)> body) const;

private:
    int threads_;
    std::unique_ptr<detail::WorkerPool> pool_;
};

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/mch/workers.ipp>
#endif
