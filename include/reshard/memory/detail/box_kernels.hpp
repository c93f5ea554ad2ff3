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
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0_1::detail {

inline constexpr int box_threads = 256;
inline constexpr int box_items = 8;
inline constexpr Index box_tile = Index{box_threads} * box_items;
inline constexpr int max_box_loops = max_dims + 2;

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
            auto const at = as_index(rest - next * static_cast<Number>(loops[d].extent.divisor()));
            from += at * loops[d].from;
            to += at * loops[d].to;
            rest = next;
        }
        if (last >= 0) {
            from += as_index(rest) * loops[last].from;
            to += as_index(rest) * loops[last].to;
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
    return as_index(capped & (~capped + 1));
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
    if (box.unit == 16) return copy_units_of_thread<Unit16>(box, tile, thread);
    with_word(box.unit, [&]<class Unit>() { copy_units_of_thread<Unit>(box, tile, thread); });
}

}  // namespace reshard::inline v0_1::detail
