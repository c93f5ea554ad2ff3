// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/detail/value_kernels.hpp
/// \brief  What a thread of a kernel does to values: cast and multiply them on a copy, fill in one value, rescale.
/// \depends memory/detail/{cast,fold_kernels}.hpp. Compiles without CUDA, so that tests run the bodies
/// of kernels on the host.
///
/// The same bits as convert(), fill_identity() and scale() of the host, NaNs included where there is a choice of bits:
/// devices have one NaN, so a conversion carries NaNs over as integers. (scale() hands on a NaN of the device's.)
#pragma once

#include <reshard/memory/detail/cast.hpp>
#include <reshard/memory/detail/fold_kernels.hpp>

namespace reshard::inline v0_1::detail {

// ---- Cast and factor -----------------------------------------------------------------------------------------------

/// destination = source * factor. Addresses are those of element 0.
struct CastBox : CastRule {
    std::byte const* from = nullptr;
    std::byte* to = nullptr;
    BoxLoops loops;
};

/// \pre that of cast_rule(); the boxes have the same extents.
[[nodiscard]] inline CastBox cast_box(std::byte const* from, StridedBox const& from_box, DType from_type, std::byte* to,
                                      StridedBox const& to_box, DType to_type, double factor) noexcept {
    LoopNest const nest = loop_nest(from_box, to_box);
    return {cast_rule(from_type, to_type, factor), from + nest.from_offset, to + nest.to_offset, box_loops(nest)};
}

/// Bytes of an element that kernels convert. (The table of bytes() is the host's.)
[[nodiscard]] RESHARD_HOST_DEVICE constexpr bool is_float_on_device(DType dtype) noexcept {
    return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

template <class C>
[[nodiscard]] RESHARD_HOST_DEVICE inline C carry(DType dtype, std::byte const* at) noexcept {
    C value{};
    with_element(dtype, [&]<class S>() {
        if constexpr (is_carried<S, C>) value = carried<S, C>(load_as<S>(at));
    });
    return value;
}

template <class C>
RESHARD_HOST_DEVICE inline void settle(DType dtype, std::byte* at, C value) noexcept {
    with_element(dtype, [&]<class T>() { store_as(at, settled<T, C>(value)); });
}

/// A 64-bit integer as the nearest value of another integer type.
template <class S>
RESHARD_HOST_DEVICE inline void clamp_into(DType dtype, std::byte* at, S value) noexcept {
    with_number(dtype, [&]<class T>() {
        if constexpr (std::is_integral_v<T>) store_as(at, clamp_integer<T>(value));
    });
}

/// The bits of a NaN as those of a double, and back: what casts on the host make of them. Quiet, but for 16-bit floats
/// and those of 32 bits that stay so.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint64_t nan_of_float(std::uint32_t bits) noexcept {
    return static_cast<std::uint64_t>(bits & 0x80000000U) << 32U | 0x7ff8000000000000U |
           static_cast<std::uint64_t>(bits & 0x007fffffU) << 29U;
}
[[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint32_t nan_of_double(std::uint64_t bits) noexcept {
    return static_cast<std::uint32_t>(bits >> 32U & 0x80000000U) | 0x7fc00000U |
           static_cast<std::uint32_t>(bits >> 29U & 0x007fffffU);
}

/// Converts a NaN of a float into what is to be written. False: it is none.
[[nodiscard]] RESHARD_HOST_DEVICE inline bool cast_nan(CastRule const& rule, std::byte const* from,
                                                       std::byte* to) noexcept {
    constexpr std::uint32_t quiet = 0x00400000U;
    std::uint32_t number = 0;
    std::uint64_t wide = 0;
    if (rule.from_type == DType::f64) {
        wide = load_as<std::uint64_t>(from);
        if ((wide & 0x7fffffffffffffffU) <= 0x7ff0000000000000U) return false;
        wide |= 0x0008000000000000U;
        number = nan_of_double(wide);
    } else {
        if (rule.from_type == DType::f16) {
            number = __builtin_bit_cast(std::uint32_t, static_cast<float>(load_as<Float16>(from)));
        } else if (rule.from_type == DType::bf16) {
            number = static_cast<std::uint32_t>(load_as<std::uint16_t>(from)) << 16U;
        } else {
            number = load_as<std::uint32_t>(from);
        }
        if ((number & 0x7fffffffU) <= 0x7f800000U) return false;
        wide = nan_of_float(number);
        if (rule.scales) number |= quiet;
    }
    switch (rule.to_type) {
        case DType::f64: store_as(to, wide); return true;
        case DType::f32: store_as(to, number); return true;
        case DType::f16: store_as(to, Float16(__builtin_bit_cast(float, number))); return true;
        case DType::bf16: store_as(to, BFloat16(__builtin_bit_cast(float, number))); return true;
        default: return false;  // zero, or true
    }
}

RESHARD_HOST_DEVICE inline void cast_element(CastRule const& rule, std::byte const* from, std::byte* to) noexcept {
    if (is_float_on_device(rule.from_type) && cast_nan(rule, from, to)) return;
    switch (rule.way) {
        case CastWay::short_float: return settle(rule.to_type, to, carry<float>(rule.from_type, from));
        case CastWay::nearest:
            if (rule.from_type == DType::i64) return store_as(to, static_cast<double>(load_as<std::int64_t>(from)));
            return store_as(to, static_cast<double>(load_as<std::uint64_t>(from)));
        case CastWay::whole:
            if (rule.from_type == DType::i64) return clamp_into(rule.to_type, to, load_as<std::int64_t>(from));
            return clamp_into(rule.to_type, to, load_as<std::uint64_t>(from));
        case CastWay::wide: break;
    }
    double value = carry<double>(rule.from_type, from);
    if (rule.scales) {
        if (rule.keeps_double) {
            value = value * rule.product.factor;
        } else {
            value = rule.is_short ? rule.product.of_short(value) : rule.product.of(value);
        }
    }
    settle(rule.to_type, to, value);
}

/// Not part of the loops that call it, which are unrolled: a conversion of any type to any other is long.
[[nodiscard]] RESHARD_HOST_DEVICE __attribute__((noinline)) inline std::uint64_t cast_bits(
    CastRule const& rule, std::uint64_t bits) noexcept {
    alignas(8) std::byte given[8];
    alignas(8) std::byte made[8];
    store_as(given, bits);
    store_as(made, std::uint64_t{0});
    cast_element(rule, given, made);
    return load_as<std::uint64_t>(made);
}

/// What one thread does with a tile of a copy that converts.
RESHARD_HOST_DEVICE inline void copy_thread(CastBox const& box, Index tile, int thread) noexcept {
    move_units_of_thread<std::uint64_t>(
        box.loops, tile, thread, [&](Index from) { return load_bits(box.from_bytes, box.from + from); },
        [&](Index to, std::uint64_t bits) { store_bits(box.to_bytes, box.to + to, cast_bits(box, bits)); });
}

/// A fold, and a conversion of its results. They are rounded to the type of the addends first: the bits are those that
/// the one leaves after the other.
struct FoldCastBox {
    FoldBox fold;  ///< its destination is that of the conversion
    CastRule cast;
};

template <class A>
RESHARD_HOST_DEVICE inline void cast_folded(FoldCastBox const& box, A value, std::byte* to) noexcept {
    alignas(8) std::byte rounded[8];
    store_as(rounded, std::uint64_t{0});
    with_addend<A>(box.cast.from_type, [&]<class T>() { store_as(rounded, static_cast<T>(value)); });
    store_bits(box.cast.to_bytes, to, cast_bits(box.cast, load_as<std::uint64_t>(rounded)));
}

/// What one thread does with a tile of a fold that converts. A: with_carrier() of box.cast.from_type.
template <class A>
RESHARD_HOST_DEVICE inline void fold_cast_thread(FoldCastBox const& box, Index tile, int thread) noexcept {
    fold_any_of_thread<A>(box.fold, tile, thread, [&]<int Width>(Index to, A const(&values)[Width]) {
        RESHARD_UNROLL
        for (int e = 0; e < Width; ++e) cast_folded<A>(box, values[e], box.fold.to + to + Index{e} * box.cast.to_bytes);
    });
}

// ---- One value, everywhere
// -------------------------------------------------------------------------------------------

struct FillBox {
    std::byte* to = nullptr;
    std::uint64_t value = 0;  ///< its bits, in the lowest bytes
    int bytes = 1;            ///< of an element: 1, 2, 4 or 8
    BoxLoops loops;
};

/// As fill_identity(). \pre the same.
[[nodiscard]] inline FillBox identity_box(Reduce op, DType dtype, std::byte* to, StridedBox const& to_box) noexcept {
    LoopNest const nest = loop_nest(to_box, to_box);
    FillBox box{to + nest.to_offset, 0, static_cast<int>(bytes(dtype)), box_loops(nest)};
    with_number(dtype, [&]<class T>() {
        T const value = identity_element<T>(op, dtype);
        std::memcpy(&box.value, &value, sizeof(T));
    });
    return box;
}

RESHARD_HOST_DEVICE inline void fill_thread(FillBox const& box, Index tile, int thread) noexcept {
    for_units_of_thread(box.loops, tile, thread,
                        [&](Index, Index to) { store_bits(box.bytes, box.to + to, box.value); });
}

// ---- Sums and averages
// -----------------------------------------------------------------------------------------------

/// x = x * multiply / divide.
struct ScaleBox {
    std::byte* to = nullptr;
    DType dtype = DType::f32;
    Index multiply = 1;
    Index divide = 1;
    BoxLoops loops;
};

/// As scale(). \pre the same.
[[nodiscard]] inline ScaleBox scale_box(DType dtype, std::byte* to, StridedBox const& to_box, Index multiply,
                                        Index divide) noexcept {
    LoopNest const nest = loop_nest(to_box, to_box);
    return {to + nest.to_offset, dtype, multiply, divide, box_loops(nest)};
}

RESHARD_HOST_DEVICE inline void scale_thread(ScaleBox const& box, Index tile, int thread) noexcept {
    for_units_of_thread(box.loops, tile, thread, [&](Index, Index to) {
        std::byte* const at = box.to + to;
        if (box.dtype == DType::f64) {
            double const product = load_as<double>(at) * static_cast<double>(box.multiply);
            return store_as(at, product / static_cast<double>(box.divide));
        }
        with_addend<float>(box.dtype, [&]<class T>() {
            float const product = static_cast<float>(load_as<T>(at)) * static_cast<float>(box.multiply);
            store_as(at, static_cast<T>(product / static_cast<float>(box.divide)));
        });
    });
}

/// Whether every element has the alignment that device code needs.
[[nodiscard]] inline bool is_aligned(std::byte const* base, StridedBox const& box) noexcept {
    auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(base));
    for (StridedDim const& dim : box.dims)
        if (dim.extent > 1) bits |= static_cast<std::uint64_t>(dim.stride);
    return bits % static_cast<std::uint64_t>(box.element_bytes) == 0;
}

}  // namespace reshard::inline v0_1::detail
