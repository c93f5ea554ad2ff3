// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/detail/box_kernels.hpp
/// \brief  Strided boxes as device kernels see them: one unit or element per number, and what a thread does with it.
/// \depends core, memory/detail. Compiles without CUDA, so that tests run the bodies of kernels on the host.
///
/// A box is worked on in tiles of box_tile units. A unit is what one load moves: up to 16 bytes, as alignment and
/// strides allow. Units are numbered innermost loop of the destination first, so neighbours in a warp are neighbours in
/// memory there. Where they are not in the source, a copy loads neighbours of the source at once and stores them one by
/// one, each beside those of the warp's other threads: whole sectors on both sides, without shared memory.
#pragma once

#include <reshard/core/detail/access.hpp>
#include <reshard/core/divider.hpp>
#include <reshard/memory/detail/arithmetic.hpp>
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0::detail {

inline constexpr int box_threads = 256;
inline constexpr int box_items = 8;
inline constexpr Index box_tile = Index{box_threads} * box_items;
inline constexpr int max_box_loops = max_rank + 2;

/// Loops over units, innermost first.
struct BoxLoops {
    struct Loop {
        Divider extent;
        Index from;
        Index to;
    };
    Index units = 0;
    int count = 0;
    Loop loops[max_box_loops];

    /// Byte offsets of a unit from the first one, on both sides. In 32 bits where all units have such numbers.
    RESHARD_HOST_DEVICE void locate(Index unit, Index& from, Index& to) const noexcept {
        units <= UINT32_MAX ? locate(static_cast<std::uint32_t>(unit), from, to)
                            : locate(static_cast<std::uint64_t>(unit), from, to);
    }

private:
    template <class Number>
    RESHARD_HOST_DEVICE void locate(Number rest, Index& from, Index& to) const noexcept {
        from = 0;
        to = 0;
        int const last = count - 1;
        RESHARD_NO_UNROLL
        for (int d = 0; d < last; ++d) {
            Number const next = loops[d].extent(rest);
            auto const at = static_cast<Index>(rest - next * static_cast<Number>(loops[d].extent.divisor()));
            from += at * loops[d].from;
            to += at * loops[d].to;
            rest = next;
        }
        if (last >= 0) {
            from += static_cast<Index>(rest) * loops[last].from;
            to += static_cast<Index>(rest) * loops[last].to;
        }
    }
};

/// One copy. Addresses are those of unit 0.
struct CopyBox {
    std::byte const* from = nullptr;
    std::byte* to = nullptr;
    int unit = 1;   ///< bytes of a load: 1, 2, 4, 8 or 16
    int parts = 1;  ///< stores of a unit, at part_stride bytes from each other
    Index part_stride = 0;
    BoxLoops loops;
};

/// The largest power of two up to 16 that divides all of `bits`, numbers joined by or.
[[nodiscard]] constexpr Index unit_of(std::uint64_t bits) noexcept {
    std::uint64_t const capped = bits | 16U;
    return static_cast<Index>(capped & (~capped + 1));
}

[[nodiscard]] constexpr BoxLoops box_loops(LoopNest const& nest) noexcept {
    BoxLoops loops;
    loops.units = nest.empty ? 0 : 1;
    for (int d = nest.dims.size() - 1; d >= 0; --d) {
        LoopDim const& dim = nest.dims[d];
        loops.loops[loops.count++] = {Divider(static_cast<std::uint64_t>(dim.extent)), dim.from, dim.to};
        loops.units *= dim.extent;
    }
    return loops;
}

/// Where neighbours of the source are not neighbours of the destination: as many as 16 bytes have become one unit.
/// \pre box.unit is the whole of what lies in a row on both sides.
inline void load_at_once(CopyBox& box, LoopNest& nest) noexcept {
    Index const width = box.unit;
    LoopDim* line = nullptr;  // along which they lie
    auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(box.from));
    for (LoopDim& dim : nest.dims) {
        bool const is_line = line == nullptr && dim.from == width;  // a second one is windows that overlap
        if (is_line) line = &dim;
        bits |= static_cast<std::uint64_t>(is_line ? dim.extent * width : dim.from);
    }
    Index const unit = unit_of(bits);
    // A warp has to fill sectors of 32 bytes in the destination.
    if (line == nullptr || unit <= width || nest.dims.back().to != width || nest.dims.back().extent * width < 32)
        return;
    box.unit = static_cast<int>(unit);
    box.parts = static_cast<int>(unit / width);
    box.part_stride = line->to;
    *line = {line->extent / box.parts, unit, line->to * box.parts};
}

/// \pre Both boxes have the same extents and element_bytes.
[[nodiscard]] inline CopyBox copy_box(std::byte const* from, StridedBox const& from_box, std::byte* to,
                                      StridedBox const& to_box) noexcept {
    CopyBox box;
    LoopNest nest = loop_nest(from_box, to_box);
    if (nest.empty) return box;
    box.from = from + nest.from_offset;
    box.to = to + nest.to_offset;
    Index const run = take_row(nest, to_box.element_bytes);
    std::uint64_t bits = static_cast<std::uint64_t>(run) | reinterpret_cast<std::uintptr_t>(box.from) |
                         reinterpret_cast<std::uintptr_t>(box.to);
    for (LoopDim const& dim : nest.dims)
        bits |= static_cast<std::uint64_t>(dim.from) | static_cast<std::uint64_t>(dim.to);
    Index const unit = unit_of(bits);
    box.unit = static_cast<int>(unit);
    if (run == unit && !nest.dims.empty()) load_at_once(box, nest);
    BoxLoops const outer = box_loops(nest);
    if (run != unit) {
        box.loops.loops[0] = {Divider(static_cast<std::uint64_t>(run / unit)), unit, unit};
        box.loops.count = 1;
    }
    for (int d = 0; d < outer.count; ++d) box.loops.loops[box.loops.count++] = outer.loops[d];
    box.loops.units = outer.units * (run / unit);
    return box;
}

/// Moves those units of a tile that are one thread's: value = load(from offset), store(to offset, value). All loads
/// come before the first store.
template <class Value, class Load, class Store>
RESHARD_HOST_DEVICE inline void move_units_of_thread(BoxLoops const& loops, Index tile, int thread, Load&& load,
                                                     Store&& store) noexcept {
    Index const first = tile * box_tile + thread;
    Value values[box_items] = {};
    Index to[box_items] = {};
    RESHARD_UNROLL
    for (int i = 0; i < box_items; ++i) {
        Index const unit = first + Index{i} * box_threads;
        if (unit >= loops.units) continue;
        Index from = 0;
        loops.locate(unit, from, to[i]);
        values[i] = load(from);
    }
    RESHARD_UNROLL
    for (int i = 0; i < box_items; ++i) {
        if (first + Index{i} * box_threads < loops.units) store(to[i], values[i]);
    }
}
/// Calls body(from offset, to offset) for those units of a tile that are one thread's.
template <class Body>
RESHARD_HOST_DEVICE inline void for_units_of_thread(BoxLoops const& loops, Index tile, int thread,
                                                    Body&& body) noexcept {
    Index unit = tile * box_tile + thread;
    RESHARD_NO_UNROLL
    for (int i = 0; i < box_items && unit < loops.units; ++i, unit += box_threads) {
        Index from = 0;
        Index to = 0;
        loops.locate(unit, from, to);
        body(from, to);
    }
}
/// Units in several parts: those of a number, little-endian.
RESHARD_HOST_DEVICE inline void copy_parts_of_thread(CopyBox const& box, Index tile, int thread) noexcept {
    int const width = box.unit / box.parts;
    for_units_of_thread(box.loops, tile, thread, [&](Index from, Index to) {
        Unit16 value{0, 0};
        if (box.unit == 16) {
            value = load_as<Unit16>(box.from + from);
        } else {
            value.low = load_bits(box.unit, box.from + from);
        }
        std::byte* at = box.to + to;
        RESHARD_NO_UNROLL
        for (int part = 0; part < box.parts; ++part, at += box.part_stride) {
            store_bits(width, at, value.low);
            int const bits = 8 * width;
            value.low = width == 8 ? value.high : value.low >> bits | value.high << (64 - bits);
            value.high = width == 8 ? 0 : value.high >> bits;
        }
    });
}
template <class Unit>
RESHARD_HOST_DEVICE inline void copy_units_of_thread(CopyBox const& box, Index tile, int thread) noexcept {
    move_units_of_thread<Unit>(
        box.loops, tile, thread, [&](Index from) { return load_as<Unit>(box.from + from); },
        [&](Index to, Unit const& value) { store_as<Unit>(box.to + to, value); });
}

/// What one thread does with a tile of a copy.
RESHARD_HOST_DEVICE inline void copy_thread(CopyBox const& box, Index tile, int thread) noexcept {
    if (box.parts != 1) return copy_parts_of_thread(box, tile, thread);
    switch (box.unit) {
        case 16: return copy_units_of_thread<Unit16>(box, tile, thread);
        case 8: return copy_units_of_thread<std::uint64_t>(box, tile, thread);
        case 4: return copy_units_of_thread<std::uint32_t>(box, tile, thread);
        case 2: return copy_units_of_thread<std::uint16_t>(box, tile, thread);
        default: return copy_units_of_thread<std::uint8_t>(box, tile, thread);
    }
}

// ---- Reduction ---------------------------------------------------------------------------------------------------

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
    auto const extent = static_cast<Index>(row.extent.divisor());
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

}  // namespace reshard::inline v0::detail
