// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/crc32_iscsi.hpp
/// \brief  ISA-L's CRC-32C for programs that are carried to machines without ISA-L: included by one file of a program,
///         in place of the library.
#pragma once

#include <reshard/checkpoint/checksum.hpp>

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace reshard::test {

inline constexpr auto crc_table = [] {
    std::array<unsigned, 256> made{};
    for (unsigned i = 0; i < 256; ++i) {
        made[i] = i;
        for (int bit = 0; bit < 8; ++bit) made[i] = (made[i] >> 1U) ^ ((made[i] & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    return made;
}();
inline unsigned crc_by_bytes(unsigned char const* data, std::size_t count, unsigned state) {
    for (std::size_t i = 0; i < count; ++i) state = crc_table[(state ^ data[i]) & 0xffU] ^ (state >> 8U);
    return state;
}

#if defined(__x86_64__)
/// The instruction takes three cycles and starts in each: three runs of 16 KiB at once, then their sums are put
/// together.
__attribute__((target("sse4.2"))) inline unsigned crc_by_words(unsigned char const* data, std::size_t count,
                                                               unsigned state) {
    constexpr std::size_t words = 2048;
    auto const word = [](unsigned char const* at) {
        unsigned long long value = 0;
        std::memcpy(&value, at, 8);
        return value;
    };
    for (; count >= 24 * words; count -= 24 * words, data += 24 * words) {
        unsigned long long first = state;
        unsigned long long second = 0;
        unsigned long long third = 0;
        for (unsigned char const* at = data; at != data + 8 * words; at += 8) {
            first = _mm_crc32_u64(first, word(at));
            second = _mm_crc32_u64(second, word(at + 8 * words));
            third = _mm_crc32_u64(third, word(at + 16 * words));
        }
        state = crc32c_combine(static_cast<unsigned>(first), static_cast<unsigned>(second), 8 * words);
        state = crc32c_combine(state, static_cast<unsigned>(third), 8 * words);
    }
    for (; count >= 8; count -= 8, data += 8) state = static_cast<unsigned>(_mm_crc32_u64(state, word(data)));
    return crc_by_bytes(data, count, state);
}
#endif

}  // namespace reshard::test

/// ISA-L's CRC-32C without ISA-L, which is seldom there as an archive.
extern "C" unsigned int crc32_iscsi(unsigned char* data, int count, unsigned int state) {
#if defined(__x86_64__)
    static bool const by_words = __builtin_cpu_supports("sse4.2") != 0;
    if (by_words) return reshard::test::crc_by_words(data, static_cast<std::size_t>(count), state);
#endif
    return reshard::test::crc_by_bytes(data, static_cast<std::size_t>(count), state);
}
