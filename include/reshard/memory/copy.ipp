// SPDX-License-Identifier: Apache-2.0
// How memory/copy.hpp is done.
#pragma once

#include <reshard/memory/copy.hpp>
#include <reshard/memory/loop_nest.hpp>
#include <reshard/memory/stream_copy.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// Elements on each side of what is transposed at a time.
inline constexpr Index transpose_tile = 64;

/// A nest whose innermost two loops are taken together, in tiles.
struct TiledNest {
    LoopNest const& nest;
    LoopPair pair;
    Index tile;  ///< of the inner loop; a few lines in a row per row of a tile are what prefetchers notice
    Index rows;  ///< of the outer one, at a time

    /// Takes them out of `whole`, which is kept.
    explicit TiledNest(LoopNest& whole) noexcept
        : nest(whole),
          pair(take_pair(whole)),
          tile(pair.transposes ? transpose_tile : pair.inner.extent),
          rows(pair.transposes ? transpose_tile : pair.outer.extent) {}
};

/// Runs of a size the compiler knows: one to a few register moves each. Reads and writes go through memcpy, so that
/// neither alignment nor aliasing matters.
template <std::size_t Bytes>
void copy_units(TiledNest const& tiled, std::byte const* from, std::byte* to) noexcept {
    LoopDim const inner = tiled.pair.inner;
    LoopDim const second = tiled.pair.outer;
    Index const tile = tiled.tile;
    Index const rows = tiled.rows;
    for_each_origin(tiled.nest, tiled.nest.dims.size(), from, to, [&](std::byte const* source, std::byte* destination) {
        for (Index start = 0; start < inner.extent; start += tile) {
            Index const stop = smaller(start + tile, inner.extent);
            for (Index row = 0; row < second.extent; row += rows) {
                Index const last = smaller(row + rows, second.extent);
                for (Index j = row; j < last; ++j) {
                    std::byte const* read = source + j * second.from;
                    std::byte* write = destination + j * second.to;
                    for (Index i = start; i < stop; ++i) {
                        std::memcpy(write + i * inner.to, read + i * inner.from, Bytes);
                    }
                }
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
    if (!is_unit) return detail::copy_runs(nest, from, to, run);
    detail::TiledNest const tiled(nest);
    switch (run) {
        case 1: return detail::copy_units<1>(tiled, from, to);
        case 2: return detail::copy_units<2>(tiled, from, to);
        case 4: return detail::copy_units<4>(tiled, from, to);
        case 8: return detail::copy_units<8>(tiled, from, to);
        case 16: return detail::copy_units<16>(tiled, from, to);
        case 32: return detail::copy_units<32>(tiled, from, to);
        default: return detail::copy_units<64>(tiled, from, to);
    }
}

}  // namespace reshard::inline v0_1
