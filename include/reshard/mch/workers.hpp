// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/workers.hpp
/// \brief  A team of threads that stay alive between kernels, so that a kernel starts none and allocates nothing.
/// \depends core/error, <type_traits>.
#pragma once

#include <reshard/core/error.hpp>

#include <type_traits>  // remove_reference

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
    Workers(Workers const&) = delete;
    Workers& operator=(Workers const&) = delete;
    ~Workers();

    [[nodiscard]] int threads() const noexcept { return threads_; }

    template <class Body>
    void operator()(int parts, Body&& body) {
        using Plain = std::remove_reference_t<Body>;
        run(parts, const_cast<void*>(static_cast<void const*>(&body)),
            [](void* what, int part) { (*static_cast<Plain*>(what))(part); });
    }

private:
    void run(int parts, void* body, void (*call)(void* body, int part));

    int threads_;
    detail::WorkerPool* pool_ = nullptr;
};

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/mch/workers.ipp>
#endif
