// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/parts.hpp
/// \brief  What the kernels share: threads, even pieces of a range.
/// \depends core, core/detail/workers.
#pragma once

#include <reshard/core/detail/carver.hpp>
#include <reshard/core/detail/workers.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/function_ref.hpp>
#include <reshard/core/index.hpp>

namespace reshard::inline v0_1::detail {

/// Calls body(part) for every part of [0, parts), from up to `threads` threads, the calling one among them: as
/// run_on_workers().
inline void run_parts(int threads, int parts, FunctionRef<void(int part)> body) {
    run_on_workers(as_size(parts), threads, [&](std::size_t part, int /*worker*/) { body(static_cast<int>(part)); });
}

/// The first index of piece `part` of `parts` of [0, count); sizes differ by one at most.
[[nodiscard]] constexpr Index part_begin(Index count, int parts, int part) noexcept {
    return count / parts * part + smaller<Index>(count % parts, part);
}

/// No two parts write to one line, nor to its neighbour, which processors fetch along.
inline constexpr Index part_alignment = 128;
using PartCarver = Carver<part_alignment>;

}  // namespace reshard::inline v0_1::detail
