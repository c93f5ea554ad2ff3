// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/deliver.hpp
/// \brief  A transfer between memory that one rank can reach: copied, or converted by what the transfer brings.
/// \depends core, memory/copy.hpp. No allocation, no exceptions.
#pragma once

#include <reshard/memory/copy.hpp>

namespace reshard::inline v0 {

/// From the sender's memory into the receiver's, for transports that reach both: the two conversions as one.
/// \pre transport::same_extents(send, receive). `hint` is for values that travel as they are.
inline void deliver(Send const& send, Receive const& receive, CopyHint hint = CopyHint::cached) noexcept {
    Conversion const& from = send.conversion;
    Conversion const& to = receive.conversion;
    if (from.is_plain() && to.is_plain()) return copy(send.base, send.box, receive.base, receive.box, hint);
    // The receiver's function: that of the sender may be an address of another process.
    to.convert(send.base, send.box, from.memory, receive.base, receive.box, to.memory, from.factor * to.factor);
}

}  // namespace reshard::inline v0
