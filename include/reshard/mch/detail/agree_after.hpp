// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/agree_after.hpp
/// \brief  Work of one rank, and the agreement of all that follows it.
/// \depends comm/{agree,any_communicator}.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>

namespace reshard::inline v0::detail {

/// Calls agree(verdict of the work) where there is somebody to agree with: a world of one rank makes no collective
/// call.
template <class Work, class Agree>
void agree_on_work(CommunicatorRef comm, Work&& work, Agree&& agree) {
    Verdict mine = verdict_of(work);
    if (comm.size() != 1) return agree(std::move(mine));
    if (!mine.ok()) raise(mine.code, std::move(mine.reason));
}
template <class Work>
void agree_after(CommunicatorRef comm, std::uint64_t digest, Work&& work) {
    agree_on_work(comm, work, [&](Verdict mine) {
        mine.digest = digest;
        agree_or_raise(comm, std::move(mine));
    });
}

}  // namespace reshard::inline v0::detail
