// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/host_memory.hpp
/// \brief  The memory policy of the host: host_memory(), and host_copies(), which is what plans need that only copy.
/// \depends memory/memory_policy.hpp.
#pragma once

#include <reshard/memory/memory_policy.hpp>

namespace reshard::inline v0_1 {

/// How tensors on the host are worked on.
struct HostMemory {
    MemoryPolicy const& policy;
    transport::ConvertBox convert = nullptr;  ///< casts and scales; null where nothing does
};

[[nodiscard]] HostMemory host_memory() noexcept;
/// Copies, and no more. Typed plans that neither fold nor fill nor convert use it, so that header-only programs compile
/// no arithmetic that they do not need.
[[nodiscard]] HostMemory host_copies() noexcept;

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/memory/host_memory.ipp>
#endif
