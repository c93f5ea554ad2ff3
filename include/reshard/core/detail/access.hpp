// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/detail/access.hpp
/// \brief  Reads and writes of kernel bodies, which compile for the host as well, and how their loops are unrolled.
/// \depends core, <cstring>.
#pragma once

#include <reshard/core/index.hpp>

#include <cstring>  // memcpy

#if defined(__CUDA_ARCH__)
#define RESHARD_UNROLL _Pragma("unroll")
#define RESHARD_NO_UNROLL _Pragma("unroll 1")
#elif defined(__SANITIZE_THREAD__)  // of g++: tests that watch kernels tell accesses apart by their instructions
#define RESHARD_UNROLL _Pragma("GCC unroll 16")
#define RESHARD_NO_UNROLL
#else
#define RESHARD_UNROLL
#define RESHARD_NO_UNROLL
#endif

namespace reshard::inline v0::detail {

/// One access of the size of T. \pre `at` is aligned as T: device code has no others.
template <class T>
[[nodiscard]] RESHARD_HOST_DEVICE inline T load_as(void const* at) noexcept {
#if defined(__CUDA_ARCH__)
    return *static_cast<T const*>(at);
#else
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
#endif
}
template <class T>
RESHARD_HOST_DEVICE inline void store_as(void* at, T const& value) noexcept {
#if defined(__CUDA_ARCH__)
    *static_cast<T*>(at) = value;
#else
    std::memcpy(at, &value, sizeof(T));
#endif
}

}  // namespace reshard::inline v0::detail
