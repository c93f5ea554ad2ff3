// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/scatter.hpp
/// \brief  The inner loops of the partition: entry by entry for few destinations, tile by tile for many.
/// \depends core, memory/stream_copy.
#pragma once

#include <reshard/core/detail/access.hpp>
#include <reshard/memory/stream_copy.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0_1 {

/// A column of entries: `width` bytes an entry, one after the other.
struct PartitionColumn {
    std::byte const* data = nullptr;
    Index width = 8;
};

namespace detail {

/// Entries of a tile: its columns of 8 bytes stay in a second-level cache of 512 KiB, and 64 destinations still get
/// runs of 1 KiB.
inline constexpr Index tile_entries = 8192;

/// Up to this many streams (destinations x columns) are written entry by entry. Beyond, each store meets a line that
/// no cache holds and a page that few translations remember: tiles win from about 100 streams.
inline constexpr Index most_streams = 96;

/// How far ahead of its cursor a stream asks for the lines it will write: processors follow few streams by themselves.
inline constexpr Index prefetch_bytes = 256;

/// Packed bytes from which tiles are written past the caches; below, the transport reads them from there.
inline constexpr Index streaming_partition_bytes = Index{8} << 20;

/// Where the next entry for one destination goes. What is dropped goes to a word nobody reads: stride and step 0.
struct StreamCursor {
    std::byte* at;  ///< column 0
    Index stride;   ///< bytes from a column to the next
    Index step;     ///< 8 bytes
    Index unused;   ///< a cursor is half a line
};

template <int Columns>
inline void place_words(std::byte const* const* columns, Index entry, StreamCursor& cursor) noexcept {
    std::byte* to = cursor.at;
    Index const stride = cursor.stride;
    cursor.at = to + cursor.step;
    for (int c = 0; c < Columns; ++c) {
        store_as(to, load_as<Index>(columns[c] + 8 * entry));
#if defined(__GNUC__)
        __builtin_prefetch(to + prefetch_bytes, 1);  // which may lie behind what there is
#endif
        to += stride;
    }
}

/// Entries [begin, end), all columns 8 bytes wide. `bin(entry)` is in [0, bins].
template <int Columns, class Bin>
void scatter_words(Bin const& bin, PartitionColumn const* list, Index begin, Index end, StreamCursor* cursors) {
    std::byte const* columns[as_size(Columns)];
    for (int c = 0; c < Columns; ++c) columns[c] = list[c].data;
    Index entry = begin;
    for (; entry + 4 <= end; entry += 4) {  // four bins first: their loads and products overlap
        Index const a = bin(entry);
        Index const b = bin(entry + 1);
        Index const c = bin(entry + 2);
        Index const d = bin(entry + 3);
        place_words<Columns>(columns, entry, cursors[a]);
        place_words<Columns>(columns, entry + 1, cursors[b]);
        place_words<Columns>(columns, entry + 2, cursors[c]);
        place_words<Columns>(columns, entry + 3, cursors[d]);
    }
    for (; entry < end; ++entry) place_words<Columns>(columns, entry, cursors[bin(entry)]);
}

/// The order of a tile by bin: order[first[b] ... first[b + 1]) are the entries of bin b, ascending. Four quarters are
/// counted and placed in turn, each with counters of its own, so that neighbours of one bin do not wait for each other.
inline void order_tile(std::uint16_t const* bins, Index count, Index bin_count, std::uint32_t* lanes,
                       std::uint32_t* first, std::uint16_t* order) noexcept {
    Index const quarter = count / 4;
    std::uint32_t* lane[4];
    for (int q = 0; q < 4; ++q) lane[q] = lanes + q * bin_count;
    std::memset(lanes, 0, as_size(4 * bin_count) * sizeof *lanes);
    for (Index i = 0; i < quarter; ++i) {
        for (int q = 0; q < 4; ++q) ++lane[q][bins[q * quarter + i]];
    }
    for (Index i = 4 * quarter; i < count; ++i) ++lane[3][bins[i]];
    std::uint32_t at = 0;
    for (Index b = 0; b < bin_count; ++b) {
        first[b] = at;
        for (auto& counters : lane) {
            std::uint32_t const here = counters[b];
            counters[b] = at;
            at += here;
        }
    }
    first[bin_count] = at;
    for (Index i = 0; i < quarter; ++i) {
        for (int q = 0; q < 4; ++q) {
            Index const entry = q * quarter + i;
            order[lane[q][bins[entry]]++] = static_cast<std::uint16_t>(entry);
        }
    }
    for (Index i = 4 * quarter; i < count; ++i) order[lane[3][bins[i]]++] = static_cast<std::uint16_t>(i);
}

/// to[i] = from[order[i]] for elements of `Width` bytes; Width 0 means `width`.
template <Index Width>
inline void gather_run(std::byte const* from, Index width, std::uint16_t const* order, Index count,
                       std::byte* to) noexcept {
    Index const bytes = Width != 0 ? Width : width;
    for (Index i = 0; i < count; ++i) {
        std::memcpy(to + i * bytes, from + order[i] * bytes, as_size(bytes));
    }
}

/// The same for words, past the caches: whole lines only, so that no line is written in two goes. Needs stream_fence().
inline void stream_run(std::byte const* from, std::uint16_t const* order, Index count, std::byte* to) noexcept {
    Index i = 0;
#if defined(__SSE2__)
    if (reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
        i = smaller(head_bytes(to) / 8, count);
        gather_run<8>(from, 8, order, i, to);
        for (; i + 8 <= count; i += 8) {
            Index line[8];
            for (Index w = 0; w < 8; ++w) line[w] = load_as<Index>(from + Index{8} * order[i + w]);
            stream_line(reinterpret_cast<std::byte const*>(line), to + 8 * i);
        }
    }
#endif
    gather_run<8>(from, 8, order + i, count - i, to + 8 * i);
}

/// One column of an ordered tile. `place(bin)` is where the bin's first entry goes.
template <class Place>
void scatter_tile_column(PartitionColumn const& column, Index tile_begin, std::uint16_t const* order,
                         std::uint32_t const* first, Index destinations, bool streaming, Place const& place) {
    std::byte const* const from = column.data + tile_begin * column.width;
    for (Index d = 0; d < destinations; ++d) {
        Index const count = first[d + 1] - first[d];
        if (count == 0) continue;
        std::uint16_t const* const run = order + first[d];
        if (column.width != 8) {
            gather_run<0>(from, column.width, run, count, place(d));
        } else if (streaming) {
            stream_run(from, run, count, place(d));
        } else {
            gather_run<8>(from, 8, run, count, place(d));
        }
    }
}

}  // namespace detail
}  // namespace reshard::inline v0_1
