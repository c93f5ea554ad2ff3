// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/parts.hpp
/// \brief  What the kernels share: teams, even pieces of a range, workspaces.
/// \depends core.
#pragma once

#include <reshard/core/detail/carver.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/function_ref.hpp>
#include <reshard/core/index.hpp>

#include <span>  // span

namespace reshard::inline v0 {

/// Who runs the parts of a kernel. Any callable with this shape is a team, if it returns once body(part) has returned
/// for every part; parts may run at the same time.
using TeamRef = detail::FunctionRef<void(int parts, detail::FunctionRef<void(int part)> body)>;

/// A team of one: runs the parts one after the other on the calling thread.
struct InOrder {
    void operator()(int parts, detail::FunctionRef<void(int part)> body) const {
        for (int part = 0; part < parts; ++part) body(part);
    }
};

namespace detail {

/// The first index of piece `part` of `parts` of [0, count); sizes differ by one at most.
[[nodiscard]] constexpr Index part_begin(Index count, int parts, int part) noexcept {
    return count / parts * part + smaller<Index>(count % parts, part);
}

/// No two parts write to one line, nor to its neighbour, which processors fetch along.
inline constexpr Index part_alignment = 128;
using PartCarver = Carver<part_alignment>;

inline void check_workspace(char const* who, std::span<std::byte> workspace, Index needed) {
    if (static_cast<Index>(workspace.size()) >= needed && (needed == 0 || workspace.data() != nullptr)) return;
    raise(ErrorCode::buffer, concat(who, ": the workspace has ", workspace.size(), " bytes, ", needed,
                                    " are needed. Fix: allocate workspace_bytes() bytes."));
}

inline void check_parts(char const* who, int parts) {
    if (parts >= 1 && parts <= 65536) return;
    raise(ErrorCode::shape, concat(who, ": ", parts, " parts. Fix: give 1 to 65536, such as one per thread."));
}

}  // namespace detail
}  // namespace reshard::inline v0
