// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/stream_copy.hpp
/// \brief  Copies rows with stores that bypass the caches: for payloads larger than the caches, where an ordinary
///         store would first read the line it is about to overwrite.
/// \depends core, <cstring>, and <emmintrin.h> where SSE2 exists; elsewhere rows are plain memcpy.
#pragma once

#include <reshard/core/index.hpp>

#include <cstring>  // memcpy
#if defined(__SSE2__)
#include <emmintrin.h>  // _mm_stream_si128, _mm_sfence
#endif

namespace reshard::inline v0_1::detail {

/// Rows shorter than this gain nothing from streaming stores, except rows of whole cache lines.
inline constexpr Index streaming_row_bytes = 512;

/// Rows that are written at the same time. One stream leaves the memory idle between lines; 4 and 8 measure alike
/// and 16 run out of write-combining buffers.
inline constexpr int streams_in_flight = 4;

/// In pieces where memcpy of glibc would choose `rep movsb`: on AMD's Zen 3 and 4 that moves 2 GB/s, not 80, where the
/// destination is up to 32 bytes further than the source in its page (lunnova.dev/articles/ryzen-slow-short-rep-mov;
/// sourceware.org/bugzilla 30994), as memory of malloc is beside memory that is mapped.
inline void copy_bytes(std::byte const* from, std::byte* to, Index bytes) noexcept {
    constexpr Index piece = 1024;
    constexpr Index large = Index{1} << 23;  // memcpy has other ways
    for (; bytes > 2 * piece && bytes < large; bytes -= piece, from += piece, to += piece) std::memcpy(to, from, piece);
    std::memcpy(to, from, as_size(bytes));
}

inline constexpr Index cache_line = 64;
inline constexpr std::uintptr_t copied_page = 4096;  // addresses so far apart look alike to a processor

#if defined(__SSE2__)
/// One whole line; `to` is aligned to a line, `from` to nothing.
inline void stream_line(std::byte const* from, std::byte* to) noexcept {
    auto const* source = reinterpret_cast<__m128i const*>(from);
    auto* destination = reinterpret_cast<__m128i*>(to);
    __m128i const a = _mm_loadu_si128(source);
    __m128i const b = _mm_loadu_si128(source + 1);
    __m128i const c = _mm_loadu_si128(source + 2);
    __m128i const d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(destination, a);
    _mm_stream_si128(destination + 1, b);
    _mm_stream_si128(destination + 2, c);
    _mm_stream_si128(destination + 3, d);
}

/// Bytes before the first whole line of a row.
inline Index head_bytes(std::byte const* to) noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(to);
    return as_index((~address + 1U) & static_cast<std::uintptr_t>(cache_line - 1));
}
#endif

/// `Rows` rows of `bytes` bytes each, a line of every row in turn. Needs stream_fence() afterwards.
template <int Rows>
void stream_rows(std::byte const* const* from, std::byte* const* to, Index bytes) noexcept {
#if defined(__SSE2__)
    constexpr auto rows = static_cast<std::size_t>(Rows);
    std::byte const* source[rows];
    std::byte* destination[rows];
    Index head[rows];
    Index lines = bytes / cache_line;
    for (std::size_t r = 0; r < rows; ++r) {
        head[r] = smaller(head_bytes(to[r]), bytes);
        copy_bytes(from[r], to[r], head[r]);
        source[r] = from[r] + head[r];
        destination[r] = to[r] + head[r];
        lines = smaller(lines, (bytes - head[r]) / cache_line);
    }
    Index const end = lines * cache_line;
    // Processors take lines at the same place of two pages for one another, and rows often begin so: they are gone
    // through a quarter of a page apart, what is before the first line last.
    Index place[rows];
    auto const page_place = [](std::byte const* at) { return reinterpret_cast<std::uintptr_t>(at) % copied_page; };
    for (std::size_t r = 0; r < rows; ++r) {
        std::uintptr_t const wanted = page_place(source[0]) + r * (copied_page / rows);
        auto const lines_ahead = as_index((wanted + copied_page - page_place(source[r])) % copied_page) / cache_line;
        place[r] = lines_ahead < lines ? lines_ahead * cache_line : 0;
    }
    for (Index at = 0; at < end; at += cache_line) {
        for (std::size_t r = 0; r < rows; ++r) {
            stream_line(source[r] + place[r], destination[r] + place[r]);
            place[r] += cache_line;
            if (place[r] == end) place[r] = 0;
        }
    }
    for (std::size_t r = 0; r < rows; ++r) {
        copy_bytes(source[r] + end, destination[r] + end, bytes - head[r] - end);
    }
#else
    for (int r = 0; r < Rows; ++r) copy_bytes(from[r], to[r], bytes);
#endif
}

/// Streaming stores are weakly ordered: they become visible to other threads in order only after this.
inline void stream_fence() noexcept {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/// A row of whole lines: `to` and `bytes` are multiples of a line. Needs stream_fence() afterwards.
inline void stream_lines(std::byte const* from, std::byte* to, Index bytes) noexcept {
#if defined(__SSE2__)
    for (Index at = 0; at < bytes; at += cache_line) stream_line(from + at, to + at);
#else
    copy_bytes(from, to, bytes);
#endif
}

/// Collects rows until there are enough to keep all streams busy.
class RowStreamer {
public:
    explicit RowStreamer(Index bytes) noexcept : bytes_(bytes) {}
    void add(std::byte const* from, std::byte* to) noexcept {
        from_[count_] = from;
        to_[count_] = to;
        if (++count_ < streams_in_flight) return;
        stream_rows<streams_in_flight>(from_, to_, bytes_);
        count_ = 0;
    }
    void finish() noexcept {
        for (int r = 0; r < count_; ++r) stream_rows<1>(from_ + r, to_ + r, bytes_);
        count_ = 0;
        stream_fence();
    }

private:
    std::byte const* from_[streams_in_flight];
    std::byte* to_[streams_in_flight];
    Index bytes_;
    int count_ = 0;
};

/// Copies `rows` rows of `bytes` bytes; strides in bytes. Source and destination must not overlap.
inline void stream_copy_rows(std::byte const* from, Index from_stride, std::byte* to, Index to_stride, Index rows,
                             Index bytes) noexcept {
    RowStreamer streamer(bytes);
    for (Index r = 0; r < rows; ++r) streamer.add(from + r * from_stride, to + r * to_stride);
    streamer.finish();
}

/// Copies one contiguous run. Large ones are walked as several rows, so that more than one line is in flight.
inline void stream_copy(std::byte const* from, std::byte* to, Index bytes) noexcept {
    constexpr Index row = 16384;
    Index const rows = bytes / row / streams_in_flight * streams_in_flight;
    stream_copy_rows(from, row, to, row, rows, row);
    Index const done = rows * row;
    stream_copy_rows(from + done, 0, to + done, 0, done < bytes ? 1 : 0, bytes - done);
}

}  // namespace reshard::inline v0_1::detail
