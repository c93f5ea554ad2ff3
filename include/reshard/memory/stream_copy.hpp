// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/stream_copy.hpp
/// \brief  Copies rows with stores that bypass the caches: for payloads larger than the caches, where an ordinary
///         store would first read the line it is about to overwrite.
/// \depends core. Where there is no SSE2 rows are plain memcpy.
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0 {

/// Rows shorter than this gain nothing from streaming stores, except rows of whole cache lines.
inline constexpr Index streaming_row_bytes = 512;

/// Copies `rows` rows of `bytes` bytes; strides in bytes. Source and destination must not overlap.
void stream_copy_rows(std::byte const* from, Index from_stride, std::byte* to, Index to_stride, Index rows,
                      Index bytes) noexcept;

/// Copies one contiguous run. Large ones are walked as several rows, so that more than one line is in flight.
void stream_copy(std::byte const* from, std::byte* to, Index bytes) noexcept;

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED)
#include <reshard/memory/stream_copy.ipp>
#endif
