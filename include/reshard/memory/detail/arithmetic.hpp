// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/detail/arithmetic.hpp
/// \brief  One reduction of two values, for every type values are accumulated in, and the values that change nothing.
/// \depends core, <cstring>, <limits>. No undefined behaviour: integers wrap, minima of floats are total.
#pragma once

#include <reshard/core/reduce.hpp>

#include <cstring>  // memcpy
#include <limits>   // numeric_limits

// Refuses options of the compiler under which sums and conversions would silently have other values. Rounding adds a
// constant and takes it away again, minima compare NaN with itself, and a sum of nothing is -0.0: under -ffast-math, or
// a part of it, float 2.7 became int 2. (clang names no macro for -fassociative-math, -freciprocal-math and
// -fno-signed-zeros by themselves, nor nvcc for --use_fast_math: those go unnoticed.)
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error \
    "reshard: folds and conversions need IEEE 754. Fix: compile this file without -ffast-math, -Ofast and their parts."
#elif defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "reshard: folds and conversions need floats that are computed as floats. Fix: -msse2 -mfpmath=sse."
#endif

namespace reshard::inline v0_1::detail {

/// The type an element is accumulated in: 16-bit floats in float, everything else in itself.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

template <class T>
[[nodiscard]] Accumulator<T> load_element(std::byte const* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return static_cast<Accumulator<T>>(value);
}
template <class T>
void store_element(std::byte* to, Accumulator<T> value) noexcept {
    T const rounded = static_cast<T>(value);
    std::memcpy(to, &rounded, sizeof(T));
}

/// The unsigned type that wraps like T but does not promote to int, whose overflow would be undefined.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;

/// min and max of floats: NaN if either is NaN (the first of two), and -0.0 < +0.0. So the result depends on the
/// set of addends, never on the instruction a compiler chose.
template <Reduce Op, class A>
[[nodiscard]] RESHARD_HOST_DEVICE A extremum(A a, A b) noexcept {
    if constexpr (std::is_floating_point_v<A>) {
        using Bits = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;
        auto const x = __builtin_bit_cast(Bits, a);
        auto const y = __builtin_bit_cast(Bits, b);
        // Equal numbers have equal bits unless they are zeros of two signs: joining the bits picks the sign.
        Bits const equal = Op == Reduce::min ? (x | y) : (x & y);
        bool const first = Op == Reduce::min ? a < b : a > b;
        Bits const ordered = first ? x : y;
        Bits const number = a == b ? equal : ordered;
        return __builtin_bit_cast(A, a != a ? x : number);  // NaN in b alone: nothing compares, so `ordered` is y
    } else {
        bool const first = Op == Reduce::min ? a < b : a > b;
        return first ? a : b;
    }
}

/// op(a, b). avg accumulates like sum; the division comes once, at the end.
template <Reduce Op, class A>
[[nodiscard]] RESHARD_HOST_DEVICE A combine(A a, A b) noexcept {
    if constexpr (Op == Reduce::min || Op == Reduce::max) {
        return extremum<Op>(a, b);
    } else if constexpr (std::is_floating_point_v<A>) {
        if constexpr (Op == Reduce::product) return a * b;
        return a + b;
    } else {
        auto const x = static_cast<Wrapping<A>>(a);
        auto const y = static_cast<Wrapping<A>>(b);
        if constexpr (Op == Reduce::product) return static_cast<A>(x * y);
        if constexpr (Op == Reduce::band) return static_cast<A>(x & y);
        if constexpr (Op == Reduce::bor) return static_cast<A>(x | y);
        if constexpr (Op == Reduce::bxor) return static_cast<A>(x ^ y);
        return static_cast<A>(x + y);
    }
}

/// Calls body.template operator()<Op>() with the op that folds values of type A by `op`: sums for averages, and for
/// bits of floats, of which supports() says no. On the side that `body` is for.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class A, class Body>
RESHARD_HOST_DEVICE auto with_op(Reduce op, Body&& body) noexcept {
    if constexpr (!std::is_floating_point_v<A>) {
        if (op == Reduce::band) return body.template operator()<Reduce::band>();
        if (op == Reduce::bor) return body.template operator()<Reduce::bor>();
        if (op == Reduce::bxor) return body.template operator()<Reduce::bxor>();
    }
    switch (op) {
        case Reduce::min: return body.template operator()<Reduce::min>();
        case Reduce::max: return body.template operator()<Reduce::max>();
        case Reduce::product: return body.template operator()<Reduce::product>();
        case Reduce::sum:
        case Reduce::avg:
        case Reduce::band:
        case Reduce::bor:
        case Reduce::bxor: break;
    }
    return body.template operator()<Reduce::sum>();
}

/// The value e with op(e, x) == x for every x, bit for bit. avg has none; it gets that of sum.
template <class A>
[[nodiscard]] A identity_of(Reduce op) noexcept {
    using Limits = std::numeric_limits<A>;
    bool constexpr floating = std::is_floating_point_v<A>;
    switch (op) {
        case Reduce::product: return A{1};
        case Reduce::min: return floating ? Limits::infinity() : Limits::max();
        case Reduce::max: return floating ? static_cast<A>(-Limits::infinity()) : Limits::lowest();
        case Reduce::band:
            if constexpr (floating)
                return A{};
            else
                return static_cast<A>(~Wrapping<A>{});
        case Reduce::sum:
        case Reduce::avg: return static_cast<A>(-A{});  // +0.0 would turn a sum of -0.0 into +0.0
        case Reduce::bor:
        case Reduce::bxor: break;
    }
    return A{};
}

/// The same as an element of `dtype`, which T is to with_number(): of a boolean, a byte, one bit counts.
template <class T>
[[nodiscard]] T identity_element(Reduce op, DType dtype) noexcept {
    if (dtype == DType::boolean && op == Reduce::band) return static_cast<T>(1);
    return static_cast<T>(identity_of<Accumulator<T>>(op));
}

/// Calls body.template operator()<T>() with the element type of `dtype`; bool counts as u8. Nothing for other dtypes.
/// On the side that `body` is for.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Body>
RESHARD_HOST_DEVICE void with_number(DType dtype, Body&& body) noexcept {
    switch (dtype) {
        case DType::boolean:
        case DType::u8: return body.template operator()<std::uint8_t>();
        case DType::i8: return body.template operator()<std::int8_t>();
        case DType::i16: return body.template operator()<std::int16_t>();
        case DType::u16: return body.template operator()<std::uint16_t>();
        case DType::i32: return body.template operator()<std::int32_t>();
        case DType::u32: return body.template operator()<std::uint32_t>();
        case DType::i64: return body.template operator()<std::int64_t>();
        case DType::u64: return body.template operator()<std::uint64_t>();
        case DType::f16: return body.template operator()<Float16>();
        case DType::bf16: return body.template operator()<BFloat16>();
        case DType::f32: return body.template operator()<float>();
        case DType::f64: return body.template operator()<double>();
        default: return;
    }
}

}  // namespace reshard::inline v0_1::detail
