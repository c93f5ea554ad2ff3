// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/detail/cast.hpp
/// \brief  One value from one element type to another, rounded once, and dense rows of them.
/// \depends memory/detail/arithmetic.hpp. No allocation, no exceptions, no <cmath>.
///
/// A row passes through carriers, a block at a time: float where every source value fits one exactly, else double. So
/// there is a loop per type, not one per pair of types, and the second loop finds its block in the first cache.
/// Kernels (memory/detail/value_kernels.hpp) share what concerns one value.
#pragma once

#include <reshard/memory/detail/arithmetic.hpp>

namespace reshard::inline v0_1::detail {

/// `inexact` is what lies between `value` and the exact result, of which `value` is the nearest double: of the two
/// doubles around the exact result, the odd one. Rounding that one once more, to a narrower type, is then the same as
/// rounding the exact result (Boldo, Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms
/// using rounding to odd", IEEE Transactions on Computers 57, 2008).
[[nodiscard]] RESHARD_HOST_DEVICE inline double round_to_odd(double value, double inexact) noexcept {
    auto const bits = __builtin_bit_cast(std::uint64_t, value);
    bool const away = (inexact > 0) == (value > 0);
    std::uint64_t const neighbour = away ? bits + 1 : bits - 1;
    bool const keep = !(inexact > 0 || inexact < 0) || (bits & 1U) != 0;  // a NaN comes from infinities: keep those
    return __builtin_bit_cast(double, keep ? bits : neighbour);
}

/// a * b + c, rounded once.
[[nodiscard]] RESHARD_HOST_DEVICE inline double fused(double a, double b, double c) noexcept {
#if defined(__CUDA_ARCH__)
    return __fma_rn(a, b, c);
#else
    return __builtin_fma(a, b, c);
#endif
}

/// value * factor, as the double to round to a narrower type: rounded to odd. `Short`: value has at most 24 digits.
struct OddProduct {
    double factor;
    double high;  ///< 26 digits of the factor; the others are its rest
    double rest;

    RESHARD_HOST_DEVICE explicit OddProduct(double by) noexcept
        : factor(by),
          high(__builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, by) & ~std::uint64_t{0x7ffffff})),
          rest(by - high) {}

    /// Whether value * factor is exact for every value of at most 24 digits, or as good: of a factor below 2^-1047 all
    /// but infinities become zeros.
    [[nodiscard]] RESHARD_HOST_DEVICE bool is_exact() const noexcept {
        return high == 0 || (__builtin_bit_cast(std::uint64_t, factor) & 0xffffffU) == 0;
    }
    /// \pre value has at most 24 digits, and !is_exact(): neither part is 0, which infinities would make a NaN of. Both
    /// products are exact, so contraction changes nothing.
    [[nodiscard]] RESHARD_HOST_DEVICE double of_short(double value) const noexcept {
        double const most = value * high;
        double const least = value * rest;
        double const sum = most + least;
        return round_to_odd(sum, least - (sum - most));
    }
    [[nodiscard]] RESHARD_HOST_DEVICE double of(double value) const noexcept {
        double const product = value * factor;
        return round_to_odd(product, fused(value, factor, -product));
    }
};

/// A double rounded to a 16-bit float at once: by way of float it would be rounded twice. `Dropped` digits of 53 are
/// dropped; below `smallest`, the least normal number, the last digit is worth that of `grid`.
template <int Dropped>
[[nodiscard]] RESHARD_HOST_DEVICE inline float narrow(double value, double smallest, double grid) noexcept {
    auto const raw = __builtin_bit_cast(std::uint64_t, value);
    std::uint64_t const sign = raw & 0x8000000000000000U;
    std::uint64_t const bits = raw ^ sign;
    double const magnitude = __builtin_bit_cast(double, bits);
    std::uint64_t const half = (std::uint64_t{1} << (Dropped - 1)) - 1 + ((bits >> Dropped) & 1U);
    std::uint64_t const normal = (bits + half) >> Dropped << Dropped;
    auto const subnormal = __builtin_bit_cast(std::uint64_t, (magnitude + grid) - grid);
    std::uint64_t const number = magnitude < smallest ? subnormal : normal;
    return static_cast<float>(__builtin_bit_cast(double, sign | (magnitude == magnitude ? number : bits)));
}

/// The ends of an integer type. (Functions of std::numeric_limits are the host's.)
template <class T>
inline constexpr T lowest_of = std::numeric_limits<T>::lowest();
template <class T>
inline constexpr T highest_of = std::numeric_limits<T>::max();

/// To the nearest integer, ties to even; beyond the ends of T, the end; NaN becomes 0.
template <class T>
[[nodiscard]] RESHARD_HOST_DEVICE inline T round_to_integer(double value) noexcept {
    constexpr T lowest = lowest_of<T>;
    constexpr T highest = highest_of<T>;
    constexpr double magic = 0x1.8p52;  // its last digit is worth one
    double const number = value == value ? value : 0.0;
    if constexpr (sizeof(T) < 8) {
        constexpr auto first = static_cast<double>(lowest);
        constexpr auto last = static_cast<double>(highest);
        double const above = number < first ? first : number;
        double const within = above > last ? last : above;
        return static_cast<T>(static_cast<std::int64_t>((within + magic) - magic));
    } else {
        constexpr double end = std::is_signed_v<T> ? 0x1p63 : 0x1p64;  // one beyond the highest
        if (number >= end) return highest;
        if (number <= static_cast<double>(lowest)) return lowest;
        bool const whole = number >= 0x1p51 || number <= -0x1p51;
        if (!whole) return static_cast<T>(static_cast<std::int64_t>((number + magic) - magic));
        if (number >= 0x1p52 || number <= -0x1p52) return static_cast<T>(number);
        auto const floor = static_cast<std::int64_t>(number);  // between, halves are the only fractions
        double const part = number - static_cast<double>(floor);
        std::int64_t const up = part > 0 ? 1 : -1;
        return static_cast<T>(part != 0 && (floor & 1) != 0 ? floor + up : floor);
    }
}

/// The nearest value of another integer type.
template <class T, class S>
[[nodiscard]] RESHARD_HOST_DEVICE inline T clamp_integer(S value) noexcept {
    constexpr T lowest = lowest_of<T>;
    constexpr T highest = highest_of<T>;
    if constexpr (std::is_signed_v<S>) {
        if (value < 0) {
            if constexpr (!std::is_signed_v<T>) return T{0};
            return static_cast<std::int64_t>(value) < static_cast<std::int64_t>(lowest) ? lowest
                                                                                        : static_cast<T>(value);
        }
    }
    return static_cast<std::uint64_t>(value) > static_cast<std::uint64_t>(highest) ? highest : static_cast<T>(value);
}

/// The element type of a boolean in memory: any byte but zero is true.
struct Truth {
    std::uint8_t byte;
};

/// As with_number, with booleans as what they are.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Body>
RESHARD_HOST_DEVICE void with_element(DType dtype, Body&& body) noexcept {
    if (dtype == DType::boolean) return body.template operator()<Truth>();
    with_number(dtype, body);
}

/// Whether values of S pass through carriers of type C.
template <class S, class C>
inline constexpr bool is_carried = std::is_same_v<C, double> || sizeof(S) <= 2 || std::is_same_v<S, float>;

/// A value of memory as a carrier. 64-bit integers keep what they lose as an odd last digit, as in round_to_odd.
template <class S, class C>
[[nodiscard]] RESHARD_HOST_DEVICE inline C carried(S value) noexcept {
    if constexpr (std::is_same_v<S, Truth>) {
        return static_cast<C>(value.byte != 0);
    } else if constexpr (std::is_integral_v<S> && sizeof(S) == 8) {
        bool negative = false;
        if constexpr (std::is_signed_v<S>) negative = value < 0;
        std::uint64_t const bits =
            negative ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
        std::uint64_t const lost = bits & 0x7ffU;
        std::uint64_t const odd = (bits ^ lost) | (lost != 0 ? 0x800U : 0U);
        auto const size = static_cast<C>(bits >> 53U == 0 ? bits : odd);
        return negative ? -size : size;
    } else if constexpr (std::is_arithmetic_v<S>) {
        return static_cast<C>(value);
    } else {
        return static_cast<C>(static_cast<float>(value));
    }
}

/// A carrier as a value of memory: the only rounding.
template <class T, class C>
[[nodiscard]] RESHARD_HOST_DEVICE inline T settled(C value) noexcept {
    if constexpr (std::is_same_v<T, Truth>) {
        return T{static_cast<std::uint8_t>(value != C{})};
    } else if constexpr (std::is_integral_v<T>) {
        return round_to_integer<T>(static_cast<double>(value));
    } else if constexpr (std::is_same_v<C, double> && std::is_same_v<T, Float16>) {
        return T(narrow<42>(value, 0x1p-14, 0x1p28));  // the last digit of 2^28 is worth 2^-24
    } else if constexpr (std::is_same_v<C, double> && std::is_same_v<T, BFloat16>) {
        return T(narrow<45>(value, 0x1p-126, 0x1p-81));  // and that of 2^-81, 2^-133
    } else {
        return static_cast<T>(value);
    }
}

template <class S, class T, class Body>
void for_row(std::byte const* from, std::byte* to, Index count, Body&& body) noexcept {
    for (Index i = 0; i < count; ++i) {
        S value;
        std::memcpy(&value, from + i * Index{sizeof(S)}, sizeof(S));
        T const result = body(value);
        std::memcpy(to + i * Index{sizeof(T)}, &result, sizeof(T));
    }
}

using RowKernel = void (*)(std::byte const*, std::byte*, Index) noexcept;

template <class S, class T>
void cast_row(std::byte const* from, std::byte* to, Index count) noexcept {
    for_row<S, T>(from, to, count, [](S value) { return static_cast<T>(value); });
}
template <class S, class C>
void load_row(std::byte const* from, std::byte* to, Index count) noexcept {
    for_row<S, C>(from, to, count, [](S value) { return carried<S, C>(value); });
}
template <class T, class C>
void settle_row(std::byte const* from, std::byte* to, Index count) noexcept {
    for_row<C, T>(from, to, count, [](C value) { return settled<T, C>(value); });
}
template <class T, class S>
void clamp_row(std::byte const* from, std::byte* to, Index count) noexcept {
    for_row<S, T>(from, to, count, [](S value) { return clamp_integer<T>(value); });
}

/// Whether `dtype` carries every value exactly in a float.
[[nodiscard]] constexpr bool fits_float(DType dtype) noexcept { return bits(dtype) <= 16 || dtype == DType::f32; }

/// What values pass through between two types.
enum class CastWay : std::uint8_t {
    short_float,  ///< float: the source fits one exactly, and there is no factor
    wide,         ///< double
    nearest,      ///< none: a 64-bit integer becomes the nearest double
    whole,        ///< none: a 64-bit integer becomes the nearest integer
};

/// A value * factor as a value of another type.
struct CastRule {
    OddProduct product{1.0};
    DType from_type = DType::f32;
    DType to_type = DType::f32;
    std::uint8_t from_bytes = 4;  ///< of an element
    std::uint8_t to_bytes = 4;
    CastWay way = CastWay::wide;
    bool scales = false;
    bool keeps_double = false;  ///< the product is the result, or exact: it is rounded as any product is
    bool is_short = false;      ///< the source has at most 24 digits
};

/// \pre can_convert(from_type, to_type, factor), and something changes.
[[nodiscard]] inline CastRule cast_rule(DType from_type, DType to_type, double factor) noexcept {
    CastRule rule{OddProduct(factor), from_type, to_type, static_cast<std::uint8_t>(bytes(from_type)),
                  static_cast<std::uint8_t>(bytes(to_type))};
    rule.scales = factor != 1.0;
    rule.is_short = fits_float(from_type);
    if (rule.is_short && !rule.scales) rule.way = CastWay::short_float;
    if (from_type == DType::i64 || from_type == DType::u64) {
        if (is_integer(to_type)) rule.way = CastWay::whole;
        if (to_type == DType::f64) rule.way = CastWay::nearest;
    }
    // For a double the product is rounded right away; a narrower type gets that rounding at the end.
    rule.keeps_double = to_type == DType::f64 || (rule.is_short && rule.product.is_exact());
    return rule;
}

template <class C>
[[nodiscard]] RowKernel load_kernel(DType dtype) noexcept {
    RowKernel kernel = nullptr;
    with_element(dtype, [&]<class S>() {
        if constexpr (is_carried<S, C>) kernel = load_row<S, C>;
    });
    return kernel;
}
template <class C>
[[nodiscard]] RowKernel settle_kernel(DType dtype) noexcept {
    RowKernel kernel = nullptr;
    with_element(dtype, [&]<class T>() { kernel = settle_row<T, C>; });
    return kernel;
}

/// How dense rows of one type become dense rows of another. Made once per box.
class RowConverter {
public:
    /// \pre can_convert(from, to, factor), and something changes.
    RowConverter(DType from, DType to, double factor) noexcept : rule_(cast_rule(from, to, factor)) {
        if (!rule_.scales) direct_ = direct(rule_);
        if (direct_ != nullptr) return;
        bool const narrow = rule_.way == CastWay::short_float;
        load_ = narrow ? load_kernel<float>(from) : load_kernel<double>(from);
        settle_ = narrow ? settle_kernel<float>(to) : settle_kernel<double>(to);
    }

    void operator()(std::byte const* from, std::byte* to, Index count) const noexcept {
        if (direct_ != nullptr) return direct_(from, to, count);
        constexpr Index block = 256;
        alignas(64) std::byte carriers[block * sizeof(double)];
        for (Index start = 0; start < count; start += block) {
            Index const n = smaller(block, count - start);
            load_(from + start * rule_.from_bytes, carriers, n);
            if (rule_.scales) scale(carriers, n);
            settle_(carriers, to + start * rule_.to_bytes, n);
        }
    }

private:
    /// The pairs that weights and gradients travel as, and those no carrier serves; else nullptr.
    [[nodiscard]] static RowKernel direct(CastRule const& rule) noexcept {
        auto const pair = [&](DType a, DType b) { return rule.from_type == a && rule.to_type == b; };
        bool const is_signed = rule.from_type == DType::i64;
        if (pair(DType::f32, DType::bf16)) return cast_row<float, BFloat16>;
        if (pair(DType::bf16, DType::f32)) return cast_row<BFloat16, float>;
        if (pair(DType::f32, DType::f16)) return cast_row<float, Float16>;
        if (pair(DType::f16, DType::f32)) return cast_row<Float16, float>;
        if (pair(DType::f32, DType::f64)) return cast_row<float, double>;
        if (pair(DType::f64, DType::f32)) return cast_row<double, float>;
        if (rule.way == CastWay::nearest)
            return is_signed ? cast_row<std::int64_t, double> : cast_row<std::uint64_t, double>;
        RowKernel kernel = nullptr;
        if (rule.way == CastWay::whole) {
            with_number(rule.to_type, [&]<class T>() {
                if constexpr (std::is_integral_v<T>)
                    kernel = is_signed ? clamp_row<T, std::int64_t> : clamp_row<T, std::uint64_t>;
            });
        }
        return kernel;
    }

    void scale(std::byte* carriers, Index count) const noexcept {
        OddProduct const product = rule_.product;  // a copy: the stores below cannot change it
        auto const apply = [&](auto&& body) { for_row<double, double>(carriers, carriers, count, body); };
        if (rule_.keeps_double) {
            apply([product](double value) { return value * product.factor; });
        } else if (rule_.is_short) {
            apply([product](double value) { return product.of_short(value); });
        } else {
            apply([product](double value) { return product.of(value); });
        }
    }

    CastRule rule_;
    RowKernel direct_ = nullptr;
    RowKernel load_ = nullptr;
    RowKernel settle_ = nullptr;
};

}  // namespace reshard::inline v0_1::detail
