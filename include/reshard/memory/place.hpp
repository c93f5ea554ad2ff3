// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/place.hpp
/// \brief  A box into a box, where one of the two may lie on a device that the host cannot reach.
/// \depends memory/{copy,memory_policy}.
#pragma once

#include <reshard/memory/copy.hpp>
#include <reshard/memory/memory_policy.hpp>

namespace reshard::inline v0_1::detail {

/// Who works on memory: `policy` where the host cannot; null: the host.
[[nodiscard]] inline MemoryPolicy const* policy_for(MemoryPolicy const* policy, void const* memory) noexcept {
    return policy != nullptr && policy->holds(memory) ? policy : nullptr;
}

/// Whether the host cannot: of devices whose policy nobody has it knows CUDA's.
[[nodiscard]] inline bool is_far(MemoryPolicy const* policy, void const* memory) noexcept {
    return policy_for(policy, memory) != nullptr || is_device_memory(memory);
}

/// Copies by the host, or by `policy`, if there is one: it returns when what lies on the host is done with. One thread
/// at a time.
inline void place(MemoryPolicy const* policy, Send const& from, Receive const& to, CopyHint hint = CopyHint::cached) {
    if (policy == nullptr) return copy(from.base, from.box, to.base, to.box, hint);
    policy->deliver({&from, 1}, {&to, 1});
}

}  // namespace reshard::inline v0_1::detail
