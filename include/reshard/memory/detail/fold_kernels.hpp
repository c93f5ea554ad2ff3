// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/detail/fold_kernels.hpp
/// \brief  Addends that lie in slots, folded on a device: what a thread of a kernel does.
/// \depends memory/detail/{arithmetic,box_kernels}. Compiles without CUDA, so that tests run the bodies of kernels on
/// the host.
///
/// A thread folds units of several elements where these lie side by side on both sides, and loads some addends before
/// the first of them is added: a copy as fast as memory is does little else.
#pragma once

#include <reshard/memory/detail/arithmetic.hpp>
#include <reshard/memory/detail/box_kernels.hpp>

namespace reshard::inline v0_1::detail {

/// destination = op over the slots, divided. Addresses are those of element 0.
struct FoldBox {
    std::byte const* from = nullptr;
    std::byte* to = nullptr;
    Index slot_stride = 0;  ///< bytes between addends of an element
    Index slots = 1;
    Index divisor = 1;
    Reduce op = Reduce::sum;
    DType dtype = DType::f32;
    int width = 1;  ///< elements of a unit: they lie side by side on both sides
    int unit = 1;   ///< bytes of an addend's unit: one load
    BoxLoops loops;

    [[nodiscard]] Index elements() const noexcept { return loops.units * width; }
};

/// What addends of a type are accumulated in. Integers narrower than 64 bits wrap alike in 64.
template <class T>
using Carrier = std::conditional_t<std::is_floating_point_v<Accumulator<T>>, Accumulator<T>,
                                   std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

/// body.template operator()<A>(), A the type of that carrier. \pre it throws nothing
template <class Body>
void with_carrier(DType dtype, Body&& body) noexcept {
    with_number(dtype, [&]<class T>() { body.template operator()<Carrier<T>>(); });
}

/// Elements of a unit that is accumulated in A's, where they lie side by side: a load is 16 bytes at most.
template <class A>
inline constexpr int fold_width = sizeof(A) == 4 ? 4 : 2;

/// An element at a time: widen() has more at once.
[[nodiscard]] inline FoldBox fold_box(Reduce op, DType dtype, std::byte const* from, StridedBox const& from_box,
                                      Index slot_stride, Index slots, std::byte* to, StridedBox const& to_box,
                                      Index divisor) noexcept {
    LoopNest const nest = loop_nest(from_box, to_box);
    auto const unit = static_cast<int>(bytes(dtype));
    return {from + nest.from_offset, to + nest.to_offset, slot_stride, slots, divisor, op, dtype, 1, unit,
            box_loops(nest)};
}

/// Makes units of several elements where these lie side by side and aligned, `to_bytes` each in the destination.
/// Returns a fold of those that are left over, at the end of a single row: of none, if there are none.
[[nodiscard]] inline FoldBox widen(FoldBox& box, Index to_bytes) noexcept {
    FoldBox rest = box;
    rest.loops.units = 0;
    if (box.loops.count == 0) return rest;
    Index width = 1;
    with_carrier(box.dtype, [&]<class A>() { width = fold_width<A>; });
    BoxLoops::Loop& row = box.loops.loops[0];
    auto const extent = as_index(row.extent.divisor());
    Index const over = extent % width;
    auto from_bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(box.from)) |
                     static_cast<std::uint64_t>(box.slot_stride);
    auto to_bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(box.to));
    for (int d = 1; d < box.loops.count; ++d) {
        from_bits |= static_cast<std::uint64_t>(box.loops.loops[d].from);
        to_bits |= static_cast<std::uint64_t>(box.loops.loops[d].to);
    }
    bool const fits = row.from == box.unit && row.to == to_bytes && extent >= width &&
                      (over == 0 || box.loops.count == 1) && unit_of(from_bits) >= width * box.unit &&
                      (to_bytes != box.unit || unit_of(to_bits) >= width * to_bytes);  // others are stored one by one
    if (!fits) return rest;
    if (over != 0) {
        rest.loops.units = over;
        rest.loops.loops[0].extent = Divider(static_cast<std::uint64_t>(over));
        rest.from += (extent - over) * row.from;
        rest.to += (extent - over) * row.to;
    }
    box.loops.units = (box.loops.units - over) / width;
    row = {Divider(static_cast<std::uint64_t>(extent / width)), width * row.from, width * row.to};
    box.width = static_cast<int>(width);
    box.unit *= static_cast<int>(width);
    return rest;
}

/// Calls body.template operator()<T>() with the type of `dtype`, one of those accumulated in A's.
template <class A, class Body>
RESHARD_HOST_DEVICE inline void with_addend(DType dtype, Body&& body) noexcept {
    with_number(dtype, [&]<class T>() {
        if constexpr (std::is_same_v<Carrier<T>, A>) body.template operator()<T>();
    });
}

/// The elements of a unit, the first in the lowest bytes, and back.
template <class T, class A, int Width>
RESHARD_HOST_DEVICE inline void take_apart(Unit16 const& unit, A (&values)[Width]) noexcept {
    constexpr int bits = 8 * static_cast<int>(sizeof(T));
    RESHARD_UNROLL
    for (int e = 0; e < Width; ++e) {
        std::uint64_t const word = e * bits < 64 ? unit.low : unit.high;
        auto const part = static_cast<UnitOf<sizeof(T)>>(word >> static_cast<unsigned>(e * bits % 64));
        values[e] = static_cast<A>(static_cast<Accumulator<T>>(__builtin_bit_cast(T, part)));
    }
}
template <class T, class A, int Width>
RESHARD_HOST_DEVICE inline void store_unit(std::byte* at, A const (&values)[Width]) noexcept {
    constexpr int bits = 8 * static_cast<int>(sizeof(T));
    Unit16 unit{0, 0};
    RESHARD_UNROLL
    for (int e = 0; e < Width; ++e) {
        std::uint64_t const part = __builtin_bit_cast(UnitOf<sizeof(T)>, static_cast<T>(values[e]));
        (e * bits < 64 ? unit.low : unit.high) |= part << static_cast<unsigned>(e * bits % 64);
    }
    if constexpr (Width * bits == 128) {
        store_as(at, unit);
    } else {
        store_as(at, static_cast<UnitOf<Width * sizeof(T)>>(unit.low));
    }
}

/// Folds those units of a tile that are one thread's; store(to offset, values) has each. A: the type of the
/// accumulator, that of with_carrier(box.dtype). Addends are taken in the order of slots: the same bits as the host's.
template <class A, int Width, class Store>
RESHARD_HOST_DEVICE inline void fold_units_of_thread(FoldBox const& box, Index tile, int thread,
                                                     Store&& store) noexcept {
    constexpr int items = box_items / Width;
    // Addends that are loaded before the first of them is added: as many as three blocks at once have registers for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    constexpr int most_ahead = 3;
#else
    constexpr int most_ahead = 4;
#endif
    constexpr int ahead = Width == 1 ? 1 : sizeof(A) == 4 ? most_ahead : 2;
    Index const first = tile * (box_tile / Width) + thread;
    A sums[items][Width] = {};
    Index from[items] = {};
    Index to[items] = {};
    RESHARD_UNROLL
    for (int i = 0; i < items; ++i) {
        Index const unit = first + Index{i} * box_threads;
        if (unit < box.loops.units) box.loops.locate(unit, from[i], to[i]);
    }
    RESHARD_NO_UNROLL
    for (Index slot = 0; slot < box.slots; slot += ahead) {
        Unit16 units[ahead][items] = {};
        with_addend<A>(box.dtype, [&]<class T>() {
            using Unit = UnitOf<Width * sizeof(T)>;
            RESHARD_UNROLL
            for (int a = 0; a < ahead; ++a) {
                RESHARD_UNROLL
                for (int i = 0; i < items; ++i) {
                    if (slot + a >= box.slots || first + Index{i} * box_threads >= box.loops.units) continue;
                    Unit const unit = load_as<Unit>(box.from + from[i] + a * box.slot_stride);
                    if constexpr (sizeof(Unit) == 16) {
                        units[a][i] = unit;
                    } else {
                        units[a][i].low = unit;
                    }
                }
            }
        });
        RESHARD_UNROLL
        for (int a = 0; a < ahead; ++a) {
            if (slot + a >= box.slots) break;
            A values[items][Width] = {};
            with_addend<A>(box.dtype, [&]<class T>() {
                RESHARD_UNROLL
                for (int i = 0; i < items; ++i) take_apart<T>(units[a][i], values[i]);
            });
            bool const is_first = slot + a == 0;
            with_op<A>(box.op, [&]<Reduce Op>() {
                RESHARD_UNROLL
                for (int i = 0; i < items; ++i) {
                    RESHARD_UNROLL
                    for (int e = 0; e < Width; ++e)
                        sums[i][e] = is_first ? values[i][e] : combine<Op>(sums[i][e], values[i][e]);
                }
            });
        }
        RESHARD_UNROLL
        for (int i = 0; i < items; ++i) from[i] += ahead * box.slot_stride;
    }
    RESHARD_UNROLL
    for (int i = 0; i < items; ++i) {
        if (first + Index{i} * box_threads >= box.loops.units) continue;
        if constexpr (std::is_floating_point_v<A>) {
            if (box.divisor != 1) {
                RESHARD_UNROLL
                for (int e = 0; e < Width; ++e) sums[i][e] /= static_cast<A>(box.divisor);
            }
        }
        store(to[i], sums[i]);
    }
}
template <class A, class Store>
RESHARD_HOST_DEVICE inline void fold_any_of_thread(FoldBox const& box, Index tile, int thread, Store&& store) noexcept {
    if (box.width == 1) return fold_units_of_thread<A, 1>(box, tile, thread, store);
    fold_units_of_thread<A, fold_width<A>>(box, tile, thread, store);
}

/// What one thread does with a tile of a fold.
template <class A>
RESHARD_HOST_DEVICE inline void fold_thread(FoldBox const& box, Index tile, int thread) noexcept {
    fold_any_of_thread<A>(box, tile, thread, [&]<int Width>(Index to, A const(&values)[Width]) {
        with_addend<A>(box.dtype, [&]<class T>() { store_unit<T>(box.to + to, values); });
    });
}

}  // namespace reshard::inline v0_1::detail
