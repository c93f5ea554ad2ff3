// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/detail/normal_quantile.hpp
/// \brief  Where the standard normal distribution reaches a probability: the same bits on every IEEE 754 machine.
/// \depends <bit>. No libm function whose result is a library's own choice.
///
/// Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988): PPND7
/// (seven digits) for float, PPND16 for double. The logarithm is 2 atanh((m - 1) / (m + 1)) with a Taylor polynomial,
/// and for double that of fdlibm (e_log.c).
///
/// Why the bits are the same: +, -, *, / and sqrt are correctly rounded everywhere, but compilers may contract
/// a * b + c to one rounding where the machine can. So each product that is added to something is either exact (doubles
/// whose digits are few enough) or part of an explicit fma. This needs a compiler that keeps to IEEE 754: no
/// -ffast-math, no x87 arithmetic.
#pragma once

#include <bit>      // bit_cast
#include <cstdint>  // uint64_t

namespace reshard::inline v0_1::detail {

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "reshard: <reshard/init/initialize.hpp> promises the same bits everywhere, -ffast-math does not. Fix: drop it."
#elif defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "reshard: <reshard/init/initialize.hpp> needs floats that are computed as floats. Fix: -msse2 -mfpmath=sse."
#endif

/// The first 53 - Dropped digits of a double, towards zero.
template <int Dropped>
[[nodiscard]] inline double head(double value) noexcept {
    constexpr std::uint64_t mask = ~((std::uint64_t{1} << Dropped) - 1);
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & mask);
}

/// A polynomial, the coefficient of the highest power first, to 29 digits. x is a float, so each product is exact.
template <class... More>
[[nodiscard]] inline double polynomial(float x, double first, More... more) noexcept {
    auto const wide = static_cast<double>(x);
    double sum = head<24>(first);
    ((sum = head<24>(sum * wide + more)), ...);
    return sum;
}
/// The same to 53 digits.
template <class... More>
[[nodiscard]] inline double polynomial(double x, double first, More... more) noexcept {
    double sum = first;
    ((sum = __builtin_fma(sum, x, more)), ...);
    return sum;
}

/// x = mantissa * 2^exponent, with the mantissa between sqrt(1/2) and sqrt(2). \pre x is normal and positive.
struct SplitNumber {
    double mantissa;
    double exponent;

    explicit SplitNumber(double x) noexcept {
        // In 32 bits, where there are vector instructions for it.
        constexpr std::uint32_t root_half = 0x3fe6a09eU;
        auto const bits = std::bit_cast<std::uint64_t>(x);
        auto const steps = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits >> 32U) - root_half) >> 20;
        exponent = static_cast<double>(steps);
        mantissa = std::bit_cast<double>(bits - (std::uint64_t{static_cast<std::uint32_t>(steps)} << 52U));
    }
};
inline constexpr double ln2_high = 6.93147180369123816490e-01;  // 32 digits: times an exponent it is exact
inline constexpr double ln2_low = 1.90821492927058770002e-10;

/// The natural logarithm to about seven digits. \pre x is normal, positive and not near 1.
[[nodiscard]] inline double log_short(double x) noexcept {
    SplitNumber const number(x);
    auto const mantissa = static_cast<float>(number.mantissa);
    float const s = (mantissa - 1.0F) / (mantissa + 1.0F);
    float const z = s * s;
    auto const rest =
        static_cast<float>(static_cast<double>(z) * polynomial(z, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3));
    auto const twice = static_cast<double>(s + s);
    return number.exponent * ln2_high + (twice * static_cast<double>(rest) + twice);
}

/// The natural logarithm to less than one unit in the last place. \pre x is normal and positive.
[[nodiscard]] inline double log_full(double x) noexcept {
    SplitNumber const number(x);
    double const f = number.mantissa - 1.0;
    double const s = f / (2.0 + f);
    double const z = s * s;
    double const series = z * polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01,
                                         1.818357216161805012e-01, 2.222219843214978396e-01, 2.857142874366239149e-01,
                                         3.999999999940941908e-01, 6.666666666666735130e-01);
    double const half = 0.5 * f;
    double const inner = __builtin_fma(s, __builtin_fma(half, f, series), number.exponent * ln2_low);
    return number.exponent * ln2_high - (__builtin_fma(half, f, -inner) - f);
}

/// Within these distances from 1/2 a quotient of polynomials does without a logarithm.
inline constexpr double quantile_centre = 0.425;

/// The quantile where |p - 0.5| <= quantile_centre.
[[nodiscard]] inline float central_quantile(double p, float /*type*/) noexcept {
    auto const q = static_cast<float>(p - 0.5);
    auto const wide = static_cast<double>(q);
    auto const r = static_cast<float>(0.180625 - wide * wide);
    double const above = polynomial(r, 59.109374720, 159.29113202, 50.434271938, 3.3871327179);
    double const below = polynomial(r, 67.187563600, 78.757757664, 17.895169469, 1.0);
    return static_cast<float>(wide * above) / static_cast<float>(below);
}
[[nodiscard]] inline double central_quantile(double p, double /*type*/) noexcept {
    double const q = p - 0.5;
    double const r = __builtin_fma(-q, q, 0.180625);
    double const above = polynomial(r, 2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                                    4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                    1.3314166789178437745e+2, 3.3871328727963666080e0);
    double const below = polynomial(r, 5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
                                    2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                    4.2313330701600911252e+1, 1.0);
    return q * above / below;
}

/// Elsewhere: minus the quantile of p, given sqrt(-log(p)), where that is at most quantile_split and where it is more.
inline constexpr double quantile_split = 5.0;
[[nodiscard]] inline float near_tail(double root) noexcept {
    auto const r = static_cast<float>(root - 1.6);
    return static_cast<float>(polynomial(r, 0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777)) /
           static_cast<float>(polynomial(r, 0.12021132975, 0.73700164250, 1.0));
}
[[nodiscard]] inline float far_tail(double root) noexcept {
    auto const r = static_cast<float>(root - quantile_split);
    return static_cast<float>(polynomial(r, 0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150)) /
           static_cast<float>(polynomial(r, 0.012258202635, 0.24197894225, 1.0));
}
/// All of that. \pre 0 < p < 1, and p and 1 - p are normal numbers.
[[nodiscard]] inline float tail_quantile(double p, float /*type*/) noexcept {
    double const root = __builtin_sqrt(-log_short(p < 0.5 ? p : 1.0 - p));
    float const size = root <= quantile_split ? near_tail(root) : far_tail(root);
    return __builtin_copysignf(size, static_cast<float>(p - 0.5));
}
[[nodiscard]] inline double tail_quantile(double p, double /*type*/) noexcept {
    double const root = __builtin_sqrt(-log_full(p < 0.5 ? p : 1.0 - p));
    double size = 0;
    if (root <= quantile_split) {
        double const r = root - 1.6;
        size = polynomial(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                          1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
                          4.63033784615654529590, 1.42343711074968357734) /
               polynomial(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                          1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
                          2.05319162663775882187, 1.0);
    } else {
        double const r = root - quantile_split;
        size = polynomial(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                          2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
                          5.46378491116411436990, 6.65790464350110377720) /
               polynomial(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                          7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                          5.99832206555887937690e-1, 1.0);
    }
    return __builtin_copysign(size, p - 0.5);
}

[[nodiscard]] inline bool is_central(double p) noexcept { return __builtin_fabs(p - 0.5) <= quantile_centre; }

/// z with probability p that a standard normal value is less, computed in C: float or double.
template <class C>
[[nodiscard]] C normal_quantile(double p) noexcept {
    return is_central(p) ? central_quantile(p, C{}) : tail_quantile(p, C{});
}

/// The probability that a standard normal value is less than z: the quantile, solved for p by bisection; relative error
/// about z * z * 1e-16. 0 below -37. For bounds, not for elements: it takes microseconds.
[[nodiscard]] inline double normal_probability(double z) noexcept {
    if (z > 0) return 1.0 - normal_probability(-z);
    auto low = std::bit_cast<std::uint64_t>(1e-300);
    auto high = std::bit_cast<std::uint64_t>(0.5);
    if (normal_quantile<double>(1e-300) >= z) return 0.0;
    while (high - low > 1) {
        std::uint64_t const middle = low + (high - low) / 2;
        (normal_quantile<double>(std::bit_cast<double>(middle)) < z ? low : high) = middle;
    }
    return std::bit_cast<double>(high);
}

}  // namespace reshard::inline v0_1::detail
