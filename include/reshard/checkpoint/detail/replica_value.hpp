// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_value.hpp
/// \brief  Single values of any element type, from their bits: as text, and the bits that stand for all that are equal
///         (-0.0 and 0.0; all NaNs).
/// \depends core, <cmath>, <cstring>, <span>.
#pragma once

#include <reshard/core/detail/access.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/dtype.hpp>
#include <reshard/core/error.hpp>

#include <array>    // array
#include <cmath>    // ldexp
#include <cstring>  // memcpy
#include <limits>   // numeric_limits
#include <span>     // span

namespace reshard::inline v0_1::detail {

/// How a float's bits read: sign, exponent, mantissa. The rows of OCP "8-bit floating point specification" (E4M3 has
/// one NaN magnitude and no infinity), of the fnuz types (one NaN, where -0 would be; no infinity), and IEEE 754.
struct FloatFormat {
    int mantissa_bits = 0;
    int bias = 0;
    int digits = 0;             ///< decimal digits that tell any two values apart
    std::uint64_t sign = 0;     ///< the sign bit; 0: there is none
    std::uint64_t largest = 0;  ///< the largest magnitude that is not NaN
    bool has_infinity = false;  ///< ... is infinity
    bool one_nan = false;       ///< nothing has two representations
};

/// False for what is not a float (c64 is two of them).
[[nodiscard]] constexpr bool float_format(DType dtype, FloatFormat& format) noexcept {
    switch (dtype) {
        case DType::f16: format = {10, 15, 5, 0x8000U, 0x7c00U, true, false}; return true;
        case DType::bf16: format = {7, 127, 4, 0x8000U, 0x7f80U, true, false}; return true;
        case DType::f32: format = {23, 127, 9, 0x80000000U, 0x7f800000U, true, false}; return true;
        case DType::f64: format = {52, 1023, 17, 1ULL << 63U, 0x7ff0000000000000U, true, false}; return true;
        case DType::f8_e5m2: format = {2, 15, 4, 0x80U, 0x7cU, true, false}; return true;
        case DType::f8_e4m3: format = {3, 7, 4, 0x80U, 0x7eU, false, false}; return true;
        case DType::f8_e4m3fnuz: format = {3, 8, 4, 0x80U, 0x7fU, false, true}; return true;
        case DType::f8_e5m2fnuz: format = {2, 16, 4, 0x80U, 0x7fU, false, true}; return true;
        case DType::f8_e8m0: format = {0, 127, 4, 0, 0xfeU, false, true}; return true;
        default: return false;
    }
}

[[nodiscard]] constexpr bool is_nan(FloatFormat const& format, std::uint64_t bits) noexcept {
    bool const sign_alone = format.one_nan && format.sign != 0 && bits == format.sign;
    return sign_alone || (bits & ~format.sign) > format.largest;
}

/// Exact: every format here is part of f64.
[[nodiscard]] inline double float_value(FloatFormat const& format, std::uint64_t bits) noexcept {
    if (is_nan(format, bits)) return std::numeric_limits<double>::quiet_NaN();
    std::uint64_t const magnitude = bits & ~format.sign;
    auto const exponent = static_cast<int>(magnitude >> static_cast<unsigned>(format.mantissa_bits));
    std::uint64_t const one = std::uint64_t{1} << static_cast<unsigned>(format.mantissa_bits);
    std::uint64_t const mantissa = magnitude & (one - 1);
    std::uint64_t const wide = static_cast<std::uint64_t>(exponent - format.bias + 1023) << 52U |
                               mantissa << static_cast<unsigned>(52 - format.mantissa_bits);
    double value = __builtin_bit_cast(double, wide);  // the bits of an f64: ldexp takes ten times as long
    if (exponent == 0 && format.sign != 0)
        value = std::ldexp(static_cast<double>(mantissa), 1 - format.bias - format.mantissa_bits);
    if (format.has_infinity && magnitude == format.largest) value = std::numeric_limits<double>::infinity();
    return (bits & format.sign) != 0 ? -value : value;
}

/// The number that an integer's bits stand for, in 64 bits of two's complement.
[[nodiscard]] constexpr std::int64_t integer_value(DType dtype, std::uint64_t bits) noexcept {
    bool const is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
    if (!is_signed) return static_cast<std::int64_t>(bits);
    auto const shift = static_cast<unsigned>(64 - enums::bits(dtype));
    return static_cast<std::int64_t>(bits << shift) >> shift;
}

/// "1.25 (0x3fa00000)"; integers without their bits.
[[nodiscard]] inline std::string value_text(DType dtype, std::uint64_t bits) {
    if (dtype == DType::u64) return std::to_string(bits);
    if (is_integer(dtype) || dtype == DType::boolean) return std::to_string(integer_value(dtype, bits));
    std::string number;
    FloatFormat format;
    if (float_format(dtype, format)) {
        number = is_nan(format, bits) ? "NaN" : number_text(float_value(format, bits), format.digits);
    } else {
        auto const parts = __builtin_bit_cast(std::array<float, 2>, bits);
        auto const real = static_cast<double>(parts[0]);
        auto const imaginary = static_cast<double>(parts[1]);
        number = concat(number_text(real, 9), imaginary < 0.0 ? "" : "+", number_text(imaginary, 9), "i");
    }
    char raw[24];
    std::snprintf(raw, sizeof(raw), " (0x%0*llx)", enums::bits(dtype) / 4, static_cast<unsigned long long>(bits));
    return number + raw;
}

/// -0 becomes 0, every NaN the same one. Written for the vectoriser: no branches.
template <class Bits>
void canonicalise_floats(std::span<std::byte> elements, Bits sign, Bits largest) noexcept {
    for (std::size_t at = 0; at < elements.size(); at += sizeof(Bits)) {
        Bits value{};
        std::memcpy(&value, elements.data() + at, sizeof(Bits));
        auto const magnitude = static_cast<Bits>(value & static_cast<Bits>(~sign));
        value = magnitude == 0 ? magnitude : value;
        value = magnitude > largest ? static_cast<Bits>(~sign) : value;
        std::memcpy(elements.data() + at, &value, sizeof(Bits));
    }
}

/// Whether equal values of the type can have different bits.
[[nodiscard]] constexpr bool has_equal_bits_apart(DType dtype) noexcept {
    FloatFormat format;
    return dtype == DType::c64 || (float_format(dtype, format) && !format.one_nan);
}

/// Whole elements of a type, in place.
inline void canonicalise(DType dtype, std::span<std::byte> elements) noexcept {
    FloatFormat format;
    static_cast<void>(float_format(dtype == DType::c64 ? DType::f32 : dtype, format));
    if (!has_equal_bits_apart(dtype)) return;
    with_word(static_cast<int>(dtype == DType::c64 ? 4 : bytes(dtype)), [&]<class Bits>() {
        canonicalise_floats(elements, static_cast<Bits>(format.sign), static_cast<Bits>(format.largest));
    });
}

}  // namespace reshard::inline v0_1::detail
