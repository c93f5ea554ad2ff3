// SPDX-License-Identifier: Apache-2.0
// How memory/stream_copy.hpp is done.
#pragma once

#include <reshard/memory/detail/stream_rows.hpp>
#include <reshard/memory/stream_copy.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE void stream_copy_rows(std::byte const* from, Index from_stride, std::byte* to, Index to_stride,
                                     Index rows, Index bytes) noexcept {
    detail::RowStreamer streamer(bytes);
    for (Index r = 0; r < rows; ++r) streamer.add(from + r * from_stride, to + r * to_stride);
    streamer.finish();
}

RESHARD_INLINE void stream_copy(std::byte const* from, std::byte* to, Index bytes) noexcept {
    constexpr Index row = 16384;
    Index const rows = bytes / row / streams_in_flight * streams_in_flight;
    stream_copy_rows(from, row, to, row, rows, row);
    Index const done = rows * row;
    stream_copy_rows(from + done, 0, to + done, 0, done < bytes ? 1 : 0, bytes - done);
}

}  // namespace reshard::inline v0
