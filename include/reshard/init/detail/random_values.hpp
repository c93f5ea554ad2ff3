// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/detail/random_values.hpp
/// \brief  Random words to values of an element type: what initialize() writes, a block at a time.
/// \depends init/initializer, init/detail/normal_quantile, init/philox.
///
/// 16-bit floats are computed as float and rounded once. A float takes one word, a double two (the first is its lower
/// half). What is said in normal_quantile.hpp about products holds here as well.
#pragma once

#include <reshard/init/detail/normal_quantile.hpp>
#include <reshard/init/initializer.hpp>
#include <reshard/init/philox.hpp>

#include <cstring>  // memcpy
#include <limits>   // numeric_limits

namespace reshard::inline v0_1::detail {

/// Values are made this many at a time: they stay in the first cache.
inline constexpr Index value_block = 256;

template <class T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

// ---- Numbers of an element type ----------------------------------------------------------------------------------

template <class T>
[[nodiscard]] T nearest(double value) noexcept {
    return static_cast<T>(static_cast<Computed<T>>(value));
}
template <class T>
[[nodiscard]] double number(T value) noexcept {
    return static_cast<double>(static_cast<Computed<T>>(value));
}

/// The next number above or below. \pre value is finite, or infinite on the other side.
template <class T>
[[nodiscard]] T neighbour(T value, bool above) noexcept {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
    constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
    auto const bits = std::bit_cast<Bits>(value);
    if (number(value) == 0.0) return std::bit_cast<T>(static_cast<Bits>(above ? 1 : sign | 1U));
    bool const outwards = ((bits & sign) == 0) == above;
    return std::bit_cast<T>(static_cast<Bits>(outwards ? bits + 1U : bits - 1U));
}

/// The greatest number of T that is not above a bound, and the least that is not below it. Infinite bounds are numbers.
template <class T>
[[nodiscard]] T greatest_to(double bound) noexcept {
    T value = nearest<T>(bound);
    if (bound - bound != 0.0) return value;
    while (number(value) > bound) value = neighbour(value, false);
    while (number(neighbour(value, true)) <= bound) value = neighbour(value, true);
    return value;
}
template <class T>
[[nodiscard]] T least_from(double bound) noexcept {
    return nearest<T>(-number(greatest_to<T>(-bound)));
}
template <class T>
[[nodiscard]] T greatest_below(double bound) noexcept {
    T const value = greatest_to<T>(bound);
    return number(value) == bound ? neighbour(value, false) : value;
}
template <class T>
[[nodiscard]] double largest_number() noexcept {
    return number(neighbour(nearest<T>(std::numeric_limits<double>::infinity()), false));
}

// ---- Words to numbers --------------------------------------------------------------------------------------------

[[nodiscard]] inline std::uint64_t pair_of(std::uint32_t const* words) noexcept {
    return (std::uint64_t{words[1]} << 32U) | words[0];
}

/// The first `Digits` binary digits of a value's words, as a whole number.
template <class C, int Digits>
[[nodiscard]] double digits_of(std::uint32_t const* words, Index i) noexcept {
    if constexpr (sizeof(C) == 4) {
        // By way of a signed number, for which there is a vector instruction.
        if constexpr (Digits < 32) return static_cast<double>(static_cast<std::int32_t>(words[i] >> (32 - Digits)));
        return static_cast<double>(static_cast<std::int32_t>(words[i] ^ 0x80000000U)) + 0x1p31;
    } else {
        return static_cast<double>(static_cast<std::int64_t>(pair_of(words + 2 * i) >> (64 - Digits)));
    }
}

/// a * b + c, rounded once to a double: what floats are computed from has an exact product, doubles need an fma.
template <class C>
[[nodiscard]] double multiply_add(double a, double b, double c) noexcept {
    if constexpr (sizeof(C) == 4) return a * b + c;
    return __builtin_fma(a, b, c);
}

template <class C>
[[nodiscard]] C clamped(C value, C first, C last) noexcept {
    C const above = value < first ? first : value;
    return last < above ? last : above;
}

// ---- Values ------------------------------------------------------------------------------------------------------
// One class per initializer: made once per tensor, then called with the words of up to value_block values.

template <class T, class Law>
class RandomValues;

/// low + u * (high - low), u in [0, 1) of 24 digits (double: 53), not beyond the first and last number of T in
/// [low, high): rounding would reach `high`.
template <class T>
class RandomValues<T, Uniform> {
    using C = Computed<T>;

public:
    explicit RandomValues(Uniform const& uniform) noexcept
        : low_(uniform.low),
          step_(number(nearest<C>(uniform.high - uniform.low)) * (digits == 24 ? 0x1p-24 : 0x1p-53)),
          first_(static_cast<C>(least_from<T>(uniform.low))),
          last_(static_cast<C>(greatest_below<T>(uniform.high))) {}

    void operator()(std::uint32_t const* words, Index count, C* values) const noexcept {
        for (Index i = 0; i < count; ++i) {
            auto const sum = static_cast<C>(multiply_add<C>(digits_of<C, digits>(words, i), step_, low_));
            values[i] = clamped(sum, first_, last_);
        }
    }

private:
    static constexpr int digits = sizeof(C) == 4 ? 24 : 53;
    double low_;
    double step_;
    C first_;
    C last_;
};

/// quantiles[i] = the quantile of p[i], for a block. Tails are few, and cost more: they have loops of their own,
/// without branches, because a branch per value would cost more than the value.
inline void normal_quantiles(double const* p, Index count, float* quantiles) noexcept {
    for (Index i = 0; i < count; ++i) quantiles[i] = central_quantile(p[i], 0.0F);
    Index tails[value_block];
    Index tail_count = 0;
    for (Index i = 0; i < count; ++i) {
        tails[tail_count] = i;
        tail_count += is_central(p[i]) ? 0 : 1;
    }
    double roots[value_block];
    float sizes[value_block];
    for (Index k = 0; k < tail_count; ++k) roots[k] = smaller(p[tails[k]], 1.0 - p[tails[k]]);
    for (Index k = 0; k < tail_count; ++k) roots[k] = -log_short(roots[k]);
    double longest = 0.0;
    for (Index k = 0; k < tail_count; ++k) {
        roots[k] = __builtin_sqrt(roots[k]);
        longest = larger(longest, roots[k]);
    }
    for (Index k = 0; k < tail_count; ++k) sizes[k] = near_tail(roots[k]);
    for (Index k = 0; k < tail_count && longest > quantile_split; ++k) {
        if (roots[k] > quantile_split) sizes[k] = far_tail(roots[k]);
    }
    for (Index k = 0; k < tail_count; ++k) {
        quantiles[tails[k]] = __builtin_copysignf(sizes[k], static_cast<float>(p[tails[k]] - 0.5));
    }
}
inline void normal_quantiles(double const* p, Index count, double* quantiles) noexcept {
    for (Index i = 0; i < count; ++i) quantiles[i] = normal_quantile<double>(p[i]);
}

/// values[i] = mean + deviation * quantile(p[i])
template <class C>
void normal_values(double const* p, Index count, double mean, C deviation, C* values) noexcept {
    normal_quantiles(p, count, values);
    for (Index i = 0; i < count; ++i) {
        values[i] =
            static_cast<C>(multiply_add<C>(static_cast<double>(values[i]), static_cast<double>(deviation), mean));
    }
}

/// mean + deviation * quantile(p), p = (n + 1/2) / 2^32 for a word n (double: the first 52 digits n, / 2^52).
template <class T>
class RandomValues<T, Normal> {
    using C = Computed<T>;

public:
    explicit RandomValues(Normal const& normal) noexcept
        : mean_(normal.mean), deviation_(static_cast<C>(normal.deviation)) {}

    void operator()(std::uint32_t const* words, Index count, C* values) const noexcept {
        constexpr int digits = sizeof(C) == 4 ? 32 : 52;
        constexpr double unit = sizeof(C) == 4 ? 0x1p-32 : 0x1p-52;
        double p[value_block];
        p[0] = 0;  // g++ 12 cannot see that there is one
        for (Index i = 0; i < count; ++i) p[i] = (digits_of<C, digits>(words, i) + 0.5) * unit;
        normal_values(p, count, mean_, deviation_, values);
    }

private:
    double mean_;
    C deviation_;
};

/// The same with p between the probabilities of the bounds: p = p_low + u * (p_high - p_low), u = (n + 1/2) / 2^28 for
/// the first 28 digits n of a word (double: 52). Bounds above the mean are mirrored, because p is finer near 0.
template <class T>
class RandomValues<T, TruncatedNormal> {
    using C = Computed<T>;

public:
    explicit RandomValues(TruncatedNormal const& normal) noexcept
        : mean_(normal.mean),
          deviation_(static_cast<C>(normal.deviation)),
          first_(static_cast<C>(least_from<T>(normal.low))),
          last_(static_cast<C>(greatest_to<T>(normal.high))) {
        double low = (normal.low - normal.mean) / normal.deviation;
        double high = (normal.high - normal.mean) / normal.deviation;
        if (low > 0) {
            double const other = -low;
            low = -high;
            high = other;
            deviation_ = -deviation_;
        }
        low_ = normal_probability(low);
        double const range = normal_probability(high) - low_;
        range_ = sizeof(C) == 4 ? head<29>(range) : range;  // towards zero: not beyond the bound
    }

    /// Whether a double can tell the probability of the interval from none.
    [[nodiscard]] bool has_mass() const noexcept { return low_ + range_ > 0.0; }

    void operator()(std::uint32_t const* words, Index count, C* values) const noexcept {
        constexpr int digits = sizeof(C) == 4 ? 28 : 52;
        constexpr double unit = sizeof(C) == 4 ? 0x1p-28 : 0x1p-52;
        constexpr double most = 1.0 - 0x1p-53;
        double p[value_block];
        p[0] = 0;  // g++ 12 cannot see that there is one
        for (Index i = 0; i < count; ++i) {
            double const u = (digits_of<C, digits>(words, i) + 0.5) * unit;  // of floats 29 digits, the range 24
            p[i] = clamped(multiply_add<C>(u, range_, low_), 1e-300, most);
        }
        normal_values(p, count, mean_, deviation_, values);
        for (Index i = 0; i < count; ++i) values[i] = clamped(values[i], first_, last_);
    }

private:
    double mean_;
    double low_ = 0.0;
    double range_ = 0.0;
    C deviation_;
    C first_;
    C last_;
};

/// Values first, first + 1, ... of a tensor, `stride` bytes apart. The tensor's stream is the digest of its name, its
/// value i is in block i / 4 of the stream (double: i / 2).
template <class T, class Values>
void write_values(Values const& values, std::uint64_t seed, std::uint64_t stream, Index first, Index count,
                  std::byte* to, Index stride) noexcept {
    using C = Computed<T>;
    constexpr Index words_each = sizeof(C) / 4;
    constexpr Index values_each = 4 / words_each;  // per Philox block
    std::uint32_t words[as_size(value_block * words_each)];
    C block[value_block];
    while (count > 0) {
        Index const skipped = first % values_each;
        Index const n = smaller(count, value_block - skipped);
        philox4x32_blocks(static_cast<std::uint64_t>(first / values_each), ceil_div(skipped + n, values_each), stream,
                          seed, words);
        values(words + skipped * words_each, n, block);
        if (std::is_same_v<T, C> && stride == Index{sizeof(T)}) {
            std::memcpy(to, block, as_size(n) * sizeof(T));
        } else {
            for (Index i = 0; i < n; ++i) {
                auto const value = static_cast<T>(block[i]);
                std::memcpy(to + i * stride, &value, sizeof(T));
            }
        }
        to += n * stride;
        first += n;
        count -= n;
    }
}

}  // namespace reshard::inline v0_1::detail
