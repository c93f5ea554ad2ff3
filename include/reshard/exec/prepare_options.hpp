// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/prepare_options.hpp
/// \brief  How a plan is prepared: scratch memory, a factor, a cast.
/// \depends core/index, <span>.
#pragma once

#include <reshard/core/index.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// How a plan is prepared. Casts are asked for with Casting; a factor alone, `PrepareOptions{.factor = 0.5}`.
struct PrepareOptions {
    /// Scratch memory of workspace_bytes() bytes or more that outlives the prepared plan and its runs, where the
    /// tensors lie (on the device, over communicators of devices); allocated when empty.
    std::span<std::byte> workspace{};
    /// Every value is multiplied by it on its way; of floats only (f16, bf16, f32, f64), and finite. Where the
    /// destination is Partial it must commute with the reduction: any factor for sums and averages, positive ones for
    /// min and max, none for products.
    double factor = 1.0;
    /// The element types of source and destination may differ, and count on every rank, also where a view is empty.
    bool cast = false;
    /// Where a Partial is folded and a rank would have addends of more than four times as many elements: so many are
    /// brought together and folded at a time, in at most 64 chunks, of which each has a 32nd of it from every rank.
    /// Scratch memory is as much smaller, and what is folded is in the cache. The same on every rank. 0: 2^17, which
    /// suits caches of processors; on devices, where an exchange costs more to start, all at once.
    Index fold_elements = 0;
};

/// The options of a move that casts: a type of its own, so that the compiler can tell whether views of two element
/// types are meant. `redistribute(plan, comm, floats, halves, Casting{})`, or `Casting{0.5}` to scale as well.
///
/// Every value becomes the nearest one of the destination's type to value * factor (memory/convert.hpp), once: addends
/// are folded in the source's type first. The smaller of the two types travels, except for addends.
struct Casting : PrepareOptions {
    constexpr explicit Casting(double by = 1.0, std::span<std::byte> scratch = {}) noexcept
        : PrepareOptions{scratch, by, true} {}
};

}  // namespace reshard::inline v0_1
