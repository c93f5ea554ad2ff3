// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/dtype.hpp
/// \brief  Element types: the 22 of safetensors, their sizes and names, and the two 16-bit floats C++20 lacks.
/// \depends <string_view>. constexpr. (std::bit_cast is host-only under nvcc; the builtin is not.)
/// Source: github.com/huggingface/safetensors, `Dtype` in safetensors/src/tensor.rs (names and alignment order).
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

/// Enumerations whose functions are found by their arguments only: `using namespace reshard` brings in no name() and
/// no bytes(). Where something nearer has the name, call `enums::bytes(dtype)`.
namespace enums {
/// In safetensors' alignment order, which is also its sort order when writing.
enum class DType : std::uint8_t {
    boolean,
    f4,
    f6_e2m3,
    f6_e3m2,
    u8,
    i8,
    f8_e5m2,
    f8_e4m3,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    i16,
    u16,
    f16,
    bf16,
    i32,
    u32,
    f32,
    c64,
    f64,
    i64,
    u64,
};  // clang-format off
}  // namespace enums
using enums::DType;

namespace detail {
struct DTypeRow { std::string_view name; int bits; char kind = 0; };  // 'i': an integer, 'f': a float with arithmetic
inline constexpr DTypeRow dtype_rows[] = {
    {"BOOL", 8},      {"F4", 4},        {"F6_E2M3", 6},  {"F6_E3M2", 6},     {"U8", 8, 'i'},     {"I8", 8, 'i'},
    {"F8_E5M2", 8},   {"F8_E4M3", 8},   {"F8_E8M0", 8},  {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"I16", 16, 'i'}, {"U16", 16, 'i'}, {"F16", 16, 'f'}, {"BF16", 16, 'f'}, {"I32", 32, 'i'},   {"U32", 32, 'i'},
    {"F32", 32, 'f'}, {"C64", 64},      {"F64", 64, 'f'}, {"I64", 64, 'i'},  {"U64", 64, 'i'},
};
[[nodiscard]] constexpr DTypeRow const& row_of(DType dtype) noexcept { return dtype_rows[static_cast<int>(dtype)]; }
}  // namespace detail
// clang-format on

inline constexpr int dtype_count = 22;
static_assert(sizeof(detail::dtype_rows) / sizeof(detail::DTypeRow) == dtype_count);

namespace enums {
/// The name as safetensors writes it: "BF16", "F8_E4M3", "BOOL", ...
[[nodiscard]] constexpr std::string_view name(DType dtype) noexcept { return detail::row_of(dtype).name; }
[[nodiscard]] constexpr int bits(DType dtype) noexcept { return detail::row_of(dtype).bits; }
[[nodiscard]] constexpr bool is_integer(DType dtype) noexcept { return detail::row_of(dtype).kind == 'i'; }
/// F16, BF16, F32 and F64.
[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept { return detail::row_of(dtype).kind == 'f'; }

/// False for the 4- and 6-bit types: their elements have no address, so they can be stored but not cut.
[[nodiscard]] constexpr bool is_byte_sized(DType dtype) noexcept { return bits(dtype) % 8 == 0; }

/// Bytes of one element. \pre is_byte_sized(dtype).
[[nodiscard]] constexpr Index bytes(DType dtype) noexcept { return bits(dtype) / 8; }
}  // namespace enums

namespace detail {
/// Throws DTypeError, in the name of `who`, for elements that cannot be cut.
inline void check_byte_sized(std::string_view who, DType dtype, std::string_view verb = "view") {
    if (is_byte_sized(dtype)) return;
    raise_words(ErrorCode::dtype, {"reshard::", who, ": elements of ", name(dtype),
                                   " are smaller than a byte and cannot be cut. Fix: ", verb, " the storage as U8."});
}
}  // namespace detail

/// The dtype called `text`; false when safetensors knows none of that name.
[[nodiscard]] constexpr bool parse_dtype(std::string_view text, DType& dtype) noexcept {
    for (int i = 0; i < dtype_count; ++i) {
        if (detail::dtype_rows[i].name == text) {
            dtype = static_cast<DType>(i);
            return true;
        }
    }
    return false;
}

namespace detail {
/// Choices as arithmetic. Compilers turn comparisons that follow from each other into branches, and loops with
/// branches do not become vector instructions. below(): all ones where a < b, else zero. \pre both are below 2^31.
RESHARD_HOST_DEVICE constexpr std::uint32_t below(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
}
RESHARD_HOST_DEVICE constexpr std::uint32_t choose(std::uint32_t mask, std::uint32_t yes, std::uint32_t no) noexcept {
    return (yes & mask) | (no & ~mask);
}
}  // namespace detail

/// bfloat16 as stored: the upper half of a float. Arithmetic happens in float.
struct BFloat16 {
    std::uint16_t bits = 0;

    BFloat16() = default;
    /// Rounds to nearest, ties to even; NaN stays NaN.
    RESHARD_HOST_DEVICE constexpr explicit BFloat16(float value) noexcept {
        // Both answers, then a choice: loops over this become vector instructions.
        auto const raw = __builtin_bit_cast(std::uint32_t, value);
        std::uint32_t const number = raw + 0x7fffU + ((raw >> 16U) & 1U);
        std::uint32_t const nan = raw | 0x00400000U;
        bits = static_cast<std::uint16_t>(((raw & 0x7fffffffU) > 0x7f800000U ? nan : number) >> 16U);
    }
    RESHARD_HOST_DEVICE constexpr explicit operator float() const noexcept {
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16U);
    }
    [[nodiscard]] static constexpr BFloat16 from_bits(std::uint16_t raw) noexcept {
        BFloat16 value;
        value.bits = raw;
        return value;
    }
    friend constexpr bool operator==(BFloat16 a, BFloat16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }
};

/// IEEE binary16 as stored. Arithmetic happens in float.
struct Float16 {
    std::uint16_t bits = 0;

    Float16() = default;
    /// Rounds to nearest, ties to even; overflow becomes infinity; NaN stays NaN and keeps the top of its payload.
    /// All cases, then a choice: loops over this become vector instructions. After Fabian Giesen's
    /// float_to_half_fast3_rtne and half_to_float (gist.github.com/rygorous/2156668).
    RESHARD_HOST_DEVICE constexpr explicit Float16(float value) noexcept {
        auto const raw = __builtin_bit_cast(std::uint32_t, value);
        std::uint32_t const sign = (raw >> 16U) & 0x8000U;
        std::uint32_t const magnitude = raw & 0x7fffffffU;
        // Normal: re-bias the exponent, round 13 bits away; 65520 and above carry into infinity.
        std::uint32_t const normal = (magnitude - 0x38000000U + 0x0fffU + ((magnitude >> 13U) & 1U)) >> 13U;
        // Subnormal: units of 2^-24, which is what the last bit of 0.5 is worth. Added to it, the value is rounded.
        std::uint32_t const is_tiny = detail::below(magnitude, 0x38800000U);
        std::uint32_t const tiny = magnitude & is_tiny;
        std::uint32_t const subnormal =
            __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, tiny) + 0.5F) - 0x3f000000U;
        std::uint32_t const nan = 0x7e00U | ((magnitude >> 13U) & 0x3ffU);
        std::uint32_t const beyond = detail::choose(detail::below(0x7f800000U, magnitude), nan, 0x7c00U);
        std::uint32_t const number = detail::choose(is_tiny, subnormal, normal);
        bits = static_cast<std::uint16_t>(sign | detail::choose(detail::below(magnitude, 0x47800000U), number, beyond));
    }
    RESHARD_HOST_DEVICE constexpr explicit operator float() const noexcept {
        std::uint32_t const sign = (bits & 0x8000U) << 16U;
        std::uint32_t const magnitude = (bits & 0x7fffU) << 13U;
        // Subnormal: the digits behind a one of 2^-14, less that one.
        std::uint32_t const digits = (magnitude & 0x007fe000U) | 0x38800000U;
        auto const subnormal = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, digits) - 0x1p-14F);
        std::uint32_t const normal = magnitude + 0x38000000U;
        std::uint32_t const beyond = magnitude | 0x7f800000U;
        std::uint32_t const number = detail::choose(detail::below(magnitude, 0x00800000U), subnormal, normal);
        return __builtin_bit_cast(float, sign | detail::choose(detail::below(magnitude, 0x0f800000U), number, beyond));
    }
    [[nodiscard]] static constexpr Float16 from_bits(std::uint16_t raw) noexcept {
        Float16 value;
        value.bits = raw;
        return value;
    }
    friend constexpr bool operator==(Float16 a, Float16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }
};

/// Maps a C++ element type to its DType. Specialise it for a type of your own that has one of the layouts, as
/// core/complex.hpp does for std::complex<float>.
template <class T>
struct DTypeOf;

// clang-format off
template <> struct DTypeOf<bool>          { static constexpr DType value = DType::boolean; };
template <> struct DTypeOf<std::int8_t>   { static constexpr DType value = DType::i8; };
template <> struct DTypeOf<std::uint8_t>  { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<std::byte>     { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<std::int16_t>  { static constexpr DType value = DType::i16; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType value = DType::u16; };
template <> struct DTypeOf<Float16>       { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<BFloat16>      { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<std::int32_t>  { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType value = DType::u32; };
template <> struct DTypeOf<float>         { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<double>        { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<long>          { static constexpr DType value = sizeof(long) == 8 ? DType::i64 : DType::i32; };
template <> struct DTypeOf<unsigned long> { static constexpr DType value = sizeof(long) == 8 ? DType::u64 : DType::u32; };
template <> struct DTypeOf<long long>     { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<unsigned long long> { static constexpr DType value = DType::u64; };
// clang-format on

/// The dtype of an element type: `dtype_of<float>`.
template <class T>
inline constexpr DType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;

/// A type whose values fill the bytes of exactly one dtype element.
template <class T>
concept Element = requires {
    DTypeOf<std::remove_cv_t<T>>::value;  // of std::complex<float>: #include <reshard/core/complex.hpp>
}
&&sizeof(T) == bytes(dtype_of<T>);

}  // namespace reshard::inline v0_1
