// SPDX-License-Identifier: Apache-2.0
// How memory/copy.hpp is done.
#pragma once

#include <reshard/memory/copy.hpp>
#include <reshard/memory/loop_nest.hpp>
#include <reshard/memory/stream_copy.hpp>

#include <bit>  // countr_zero

namespace reshard::inline v0_1 {

namespace detail {

/// Elements of what is transposed at a time: some of each row of the destination, of many rows.
inline constexpr Index transpose_columns = 8;
inline constexpr Index transpose_rows = 64;

/// Two loops over runs of a size that the compiler knows: one to a few register moves each. Reads and writes go through
/// memcpy, so that neither alignment nor aliasing matters.
template <std::size_t Bytes>
void copy_tile(LoopDim const& its_columns, LoopDim const& its_rows, std::byte const* from, std::byte* to) noexcept {
    LoopDim const columns = its_columns;  // which no write can change, for all the compiler knows
    LoopDim const rows = its_rows;
    if (Bytes <= 16 && columns.extent == transpose_columns && columns.to == Index{Bytes}) {
        for (Index row = 0; row < rows.extent; ++row, from += rows.from, to += rows.to) {
            std::byte const* read = from;
#if !defined(__CUDACC__)
#pragma GCC unroll 8
#endif
            for (Index i = 0; i < transpose_columns; ++i, read += columns.from) {
                std::memcpy(to + i * Index{Bytes}, read, Bytes);
            }
        }
        return;
    }
    for (Index row = 0; row < rows.extent; ++row, from += rows.from, to += rows.to) {
#if defined(__clang__)
#pragma clang loop vectorize(disable)  // it looks for overlaps first, which takes longer than short loops
#endif
        for (Index i = 0; i < columns.extent; ++i) std::memcpy(to + i * columns.to, from + i * columns.from, Bytes);
    }
}
/// Runs of so many bytes, for which there is a copy_tile(). The innermost two loops are taken together.
inline void copy_units(LoopNest& nest, std::byte const* from, std::byte* to, Index run) noexcept {
    using CopyTile = void (*)(LoopDim const&, LoopDim const&, std::byte const*, std::byte*) noexcept;
    constexpr CopyTile tiles[] = {copy_tile<1>,  copy_tile<2>,  copy_tile<4>, copy_tile<8>,
                                  copy_tile<16>, copy_tile<32>, copy_tile<64>};
    CopyTile const copy_one = tiles[std::countr_zero(static_cast<std::size_t>(run))];
    LoopPair const pair = take_pair(nest);
    LoopDim const& inner = pair.inner;
    LoopDim const& outer = pair.outer;
    for_each_origin(nest, nest.dims.size(), from, to, [&](std::byte const* source, std::byte* destination) {
        if (!pair.transposes) return copy_one(inner, outer, source, destination);
        for (Index column = 0; column < inner.extent; column += transpose_columns) {
            Index const columns = smaller(transpose_columns, inner.extent - column);
            for (Index row = 0; row < outer.extent; row += transpose_rows) {
                Index const rows = smaller(transpose_rows, outer.extent - row);
                copy_one({columns, inner.from, inner.to}, {rows, outer.from, outer.to},
                         source + column * inner.from + row * outer.from,
                         destination + column * inner.to + row * outer.to);
            }
        }
    });
}

/// Runs of any size.
inline void copy_runs(LoopNest const& nest, std::byte const* from, std::byte* to, Index run) noexcept {
    LoopDim const inner = nest.dims.back();
    for_each_origin(nest, nest.dims.size() - 1, from, to, [&](std::byte const* source, std::byte* destination) {
        for (Index i = 0; i < inner.extent; ++i) {
            copy_bytes(source + i * inner.from, destination + i * inner.to, run);
        }
    });
}

/// Whether all rows of `run` bytes are whole cache lines of the destination.
[[nodiscard]] inline bool writes_whole_lines(LoopNest const& nest, std::byte const* to, Index run) noexcept {
    bool whole = run % cache_line == 0 && reinterpret_cast<std::uintptr_t>(to) % cache_line == 0;
    for (LoopDim const& dim : nest.dims) whole = whole && dim.to % cache_line == 0;
    return whole;
}

}  // namespace detail

RESHARD_INLINE void transport::copy(std::byte const* from, transport::StridedBox const& from_box, std::byte* to,
                                    transport::StridedBox const& to_box, CopyHint hint) noexcept {
    detail::LoopNest nest = detail::loop_nest(from_box, to_box);
    if (nest.empty) return;
    from += nest.from_offset;
    to += nest.to_offset;
    Index const run = detail::take_row(nest, to_box.element_bytes);
    bool const stream = hint == CopyHint::streaming && run >= detail::streaming_row_bytes;
    if (nest.dims.empty()) return stream ? detail::stream_copy(from, to, run) : detail::copy_bytes(from, to, run);
    if (stream) {
        detail::RowStreamer streamer(run);
        detail::for_each_origin(nest, nest.dims.size(), from, to, [&](std::byte const* source, std::byte* destination) {
            streamer.add(source, destination);
        });
        return streamer.finish();
    }
    if (hint == CopyHint::streaming && detail::writes_whole_lines(nest, to, run)) {
        detail::for_each_origin(nest, nest.dims.size(), from, to, [&](std::byte const* source, std::byte* destination) {
            detail::stream_lines(source, destination, run);
        });
        return detail::stream_fence();
    }
    bool const is_unit = run <= 64 && (run & (run - 1)) == 0;
    is_unit ? detail::copy_units(nest, from, to, run) : detail::copy_runs(nest, from, to, run);
}

}  // namespace reshard::inline v0_1
