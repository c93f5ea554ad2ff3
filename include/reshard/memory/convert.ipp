// SPDX-License-Identifier: Apache-2.0
// How memory/convert.hpp is done.
#pragma once

#include <reshard/memory/convert.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/detail/cast.hpp>
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0_1 {

namespace detail {

inline constexpr Index convert_tile_elements = 1024;

/// Two loops of a nest, so many elements at a time.
struct ConvertTile : LoopPair {
    Index columns;
    Index rows;

    explicit ConvertTile(LoopPair const& pair) noexcept
        : LoopPair(pair),
          columns(smaller<Index>(inner.extent, transposes ? 32 : convert_tile_elements)),
          rows(smaller(outer.extent, convert_tile_elements / columns)) {}
};

/// `rows` times `columns` elements of `element` bytes, `row` and `column` bytes apart.
[[nodiscard]] inline StridedBox tile_box(Index element, Index rows, Index row, Index columns, Index column) noexcept {
    StridedBox box;
    box.element_bytes = element;
    box.dims.push_back({rows, row});
    box.dims.push_back({columns, column});
    return box;
}

/// One tile: gathered into a dense one where the source is not, converted, scattered where the destination is not.
inline void convert_tile(RowConverter const& converter, ConvertTile const& tile, Index rows, Index columns,
                         std::byte const* from, Index from_bytes, std::byte* to, Index to_bytes) noexcept {
    alignas(64) std::byte gathered[convert_tile_elements * 8];
    alignas(64) std::byte converted[convert_tile_elements * 8];
    Index from_row = tile.outer.from;
    Index to_row = tile.outer.to;
    std::byte const* source = from;
    std::byte* target = to;
    if (tile.inner.from != from_bytes) {
        from_row = columns * from_bytes;
        source = gathered;
        copy(from, tile_box(from_bytes, rows, tile.outer.from, columns, tile.inner.from), gathered,
             tile_box(from_bytes, rows, from_row, columns, from_bytes));
    }
    bool const scatters = tile.inner.to != to_bytes;
    if (scatters) {
        to_row = columns * to_bytes;
        target = converted;
    }
    if (from_row == columns * from_bytes && to_row == columns * to_bytes) {
        converter(source, target, rows * columns);
    } else {
        for (Index r = 0; r < rows; ++r) converter(source + r * from_row, target + r * to_row, columns);
    }
    if (scatters) {
        copy(converted, tile_box(to_bytes, rows, to_row, columns, to_bytes), to,
             tile_box(to_bytes, rows, tile.outer.to, columns, tile.inner.to));
    }
}

}  // namespace detail

RESHARD_INLINE void transport::convert(std::byte const* from, transport::StridedBox const& from_box, DType from_type,
                                       std::byte* to, transport::StridedBox const& to_box, DType to_type,
                                       double factor) noexcept {
    if (from_type == to_type && factor == 1.0) return copy(from, from_box, to, to_box);
    detail::LoopNest nest = detail::loop_nest(from_box, to_box);
    if (nest.empty) return;
    from += nest.from_offset;
    to += nest.to_offset;
    detail::RowConverter const converter(from_type, to_type, factor);
    Index const from_bytes = from_box.element_bytes;
    Index const to_bytes = to_box.element_bytes;
    detail::ConvertTile const tile(detail::take_pair(nest));
    bool const dense = tile.inner.extent == 1 || (tile.inner.from == from_bytes && tile.inner.to == to_bytes);
    bool const whole_rows = dense && tile.inner.extent >= 64;  // long enough to go without tiles
    detail::for_each_origin(nest, nest.dims.size(), from, to, [&](std::byte const* source, std::byte* target) {
        if (whole_rows) {
            for (Index r = 0; r < tile.outer.extent; ++r) {
                converter(source + r * tile.outer.from, target + r * tile.outer.to, tile.inner.extent);
            }
            return;
        }
        for (Index r = 0; r < tile.outer.extent; r += tile.rows) {
            Index const rows = detail::smaller(tile.rows, tile.outer.extent - r);
            for (Index c = 0; c < tile.inner.extent; c += tile.columns) {
                Index const columns = detail::smaller(tile.columns, tile.inner.extent - c);
                detail::convert_tile(converter, tile, rows, columns, source + r * tile.outer.from + c * tile.inner.from,
                                     from_bytes, target + r * tile.outer.to + c * tile.inner.to, to_bytes);
            }
        }
    });
}

}  // namespace reshard::inline v0_1
