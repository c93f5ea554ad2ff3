// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/fold.hpp
/// \brief  Reductions on the host: folds addends in ascending order, fills in identities, rescales sums and averages.
/// \depends core. No allocation, no exceptions. Callers have checked supports(op, dtype).
///
/// Results depend on the addends and their order only: one accumulator per element, addends taken from slot 0 up,
/// 16-bit floats accumulated in float and rounded once, integers modulo 2^bits. (Which NaN a sum makes or hands on is
/// the processor's choice.)
#pragma once

#include <reshard/core/reduce.hpp>
#include <reshard/core/transfer.hpp>

namespace reshard::inline v0_1 {

namespace transport {
/// destination[i] = op over k = 0 .. count-1, ascending, of the element i of slot k; slot k starts at
/// `sources + k * slot_stride_bytes`. Float results (sum and avg alike) are then divided by `divisor`.
///
/// 16-bit floats accumulate in float and round once, after the division. Integers wrap. min and max of floats are
/// NaN if an addend is, and order -0.0 before +0.0.
/// \pre supports(op, dtype); count >= 1; both boxes have the same extents, element_bytes == bytes(dtype); the
///      destination overlaps no slot.
void fold(Reduce op, DType dtype, std::byte const* sources, Index slot_stride_bytes, Index count,
          StridedBox const& slot_box, std::byte* destination, StridedBox const& destination_box,
          Index divisor = 1) noexcept;

/// Writes the value that changes nothing under `op`: -0.0 for float sums, so that even a sum of -0.0 keeps its sign;
/// 1; +inf or the largest integer for min; -inf or the smallest for max; all bits (true) for band; zero for bor, bxor.
/// \pre supports(op, dtype) and has_identity(op); box.element_bytes == bytes(dtype).
void fill_identity(Reduce op, DType dtype, std::byte* base, StridedBox const& box) noexcept;

/// x = x * multiply / divide for every element, in float for 16-bit floats, rounded once: what lies between a sum and
/// an average. \pre supports(Reduce::avg, dtype); divide != 0; box.element_bytes == bytes(dtype).
void scale(DType dtype, std::byte* base, StridedBox const& box, Index multiply, Index divide) noexcept;
}  // namespace transport

namespace detail {
/// fold(), and whether by the wide instructions that most processors have: the same bits as without. For tests.
void fold_slots(Reduce op, DType dtype, std::byte const* sources, Index slot_stride_bytes, Index count,
                StridedBox const& slot_box, std::byte* destination, StridedBox const& destination_box, Index divisor,
                bool wide) noexcept;

using transport::fill_identity, transport::fold, transport::scale;
}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/memory/fold.ipp>
#endif
