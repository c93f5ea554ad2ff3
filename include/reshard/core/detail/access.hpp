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

namespace reshard::inline v0_1::detail {

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

/// 16 bytes in one access.
struct alignas(16) Unit16 {
    std::uint64_t low;
    std::uint64_t high;
};

/// What so many bytes are moved in.
template <int Bytes>
using UnitOf = std::conditional_t<
    Bytes == 16, Unit16,
    std::conditional_t<
        Bytes == 8, std::uint64_t,
        std::conditional_t<Bytes == 4, std::uint32_t, std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>>;

/// store_as() of what nobody reads for a while: caches let go of it first. For 1, 2, 4 or 8 bytes.
template <class T>
RESHARD_HOST_DEVICE inline void store_for_later(void* at, T value) noexcept {
#if defined(__CUDA_ARCH__)
    __stcs(static_cast<T*>(at), value);
#else
    store_as(at, value);
#endif
}

/// Calls body.template operator()<U>() with the unsigned type of 1, 2, 4 or 8 bytes.
template <class Body>
RESHARD_HOST_DEVICE inline auto with_word(int bytes, Body&& body) noexcept {
    switch (bytes) {
        case 1: return body.template operator()<std::uint8_t>();
        case 2: return body.template operator()<std::uint16_t>();
        case 4: return body.template operator()<std::uint32_t>();
        default: return body.template operator()<std::uint64_t>();
    }
}
/// The bits of an element, in the lowest bytes.
[[nodiscard]] RESHARD_HOST_DEVICE inline std::uint64_t load_bits(int bytes, std::byte const* at) noexcept {
    return with_word(bytes, [&]<class U>() -> std::uint64_t { return load_as<U>(at); });
}
RESHARD_HOST_DEVICE inline void store_bits(int bytes, std::byte* at, std::uint64_t bits) noexcept {
    with_word(bytes, [&]<class U>() { store_as(at, static_cast<U>(bits)); });
}
/// Those of a value of 1, 2, 4 or 8 bytes.
template <class T>
[[nodiscard]] RESHARD_HOST_DEVICE inline std::uint64_t bits_of(T const& value) noexcept {
    return __builtin_bit_cast(UnitOf<sizeof(T)>, value);
}

}  // namespace reshard::inline v0_1::detail
