// SPDX-License-Identifier: Apache-2.0
// How comm/any_communicator.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

RESHARD_INLINE Workspace CommunicatorRef::allocate(Index bytes) const {
    if (table_->allocate != nullptr) return table_->allocate(comm_, bytes);
    Workspace memory;
    auto const work = [&] {
        if (bytes < 0)
            errors::raise(
                ErrorCode::buffer,
                "reshard::allocate: a count below zero, or of more bytes than fit 64 bits. Fix: check the count.");
        memory = Workspace(std::vector<std::byte>(detail::as_size(bytes)));
    };
    agree_on_errors(*this, work, "allocate");
    return memory;
}

}  // namespace reshard::inline v0_1
