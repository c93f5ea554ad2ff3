// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/checksum.hpp
/// \brief  CRC-32C of bytes in memory, and of two runs from the sums of each: what the extents of a checkpoint carry.
/// \depends core, ISA-L (isa-l/crc.h). No allocation, no I/O.
/// Source: RFC 3720, section 12.1 and appendix B.4 (the CRC of iSCSI); zlib's crc32_combine (sums of runs).
///
/// Sums combine, so that ranks may read or write parts of an extent in any order, each summing its own part, and the
/// sum of the whole follows without reading a byte again.
#pragma once

#include <reshard/checkpoint/detail/mode.hpp>
#include <reshard/core/index.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

namespace detail {

/// Polynomials over GF(2) modulo that of CRC-32C, reflected: bit 31 is the coefficient of x^0.
inline constexpr std::uint32_t crc32c_polynomial = 0x82f63b78U;

[[nodiscard]] constexpr std::uint32_t crc32c_multiply(std::uint32_t a, std::uint32_t b) noexcept {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1U) {
        if ((a & bit) != 0) product ^= b;
        b = (b & 1U) != 0 ? (b >> 1U) ^ crc32c_polynomial : b >> 1U;  // b times x
    }
    return product;
}

struct Crc32cPowers {
    std::uint32_t of_bytes[63]{};  ///< [k]: x^(8 * 2^k), what 2^k zero bytes multiply a sum by
};
[[nodiscard]] constexpr Crc32cPowers crc32c_squares() noexcept {
    Crc32cPowers powers;
    std::uint32_t power = 0x80000000U >> 8U;
    for (std::uint32_t& entry : powers.of_bytes) {
        entry = power;
        power = crc32c_multiply(power, power);
    }
    return powers;
}
inline constexpr Crc32cPowers crc32c_powers = crc32c_squares();

}  // namespace detail

/// The CRC-32C of the bytes that `before` is the sum of, followed by `bytes`. Of nothing: 0; of "123456789":
/// 0xe3069283.
[[nodiscard]] std::uint32_t crc32c(std::span<std::byte const> bytes, std::uint32_t before = 0) noexcept;

/// The sum of two runs one after the other, from the sum of each and the length of the second. \pre second_bytes >= 0.
/// \post crc32c_combine(crc32c(a), crc32c(b), size of b) == crc32c(b, crc32c(a))
/// At most 63 multiplications of 32 steps; lengths with few binary digits need few.
[[nodiscard]] constexpr std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second,
                                                     Index second_bytes) noexcept {
    auto left = static_cast<std::uint64_t>(second_bytes);
    for (std::size_t k = 0; left != 0; ++k, left >>= 1U) {
        if ((left & 1U) != 0) first = detail::crc32c_multiply(detail::crc32c_powers.of_bytes[k], first);
    }
    return first ^ second;
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/checksum.ipp>
#endif
