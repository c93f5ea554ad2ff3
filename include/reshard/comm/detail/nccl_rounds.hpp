// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_rounds.hpp
/// \brief  How an exchange over NCCL is cut into rounds: the same on both sides of every message.
/// \depends comm/detail/lanes.hpp, comm/detail/nccl_team.hpp.
#pragma once

#include <reshard/comm/detail/lanes.hpp>
#include <reshard/comm/detail/nccl_team.hpp>

namespace reshard::inline v0::detail {

/// How much one pair may move in one round, the same on all ranks, and how pairs share a group.
struct NcclRounds : PairShare {
    int distances = 1;  ///< that share a group

    NcclRounds(int ranks, Index window) noexcept {
        int const most = nccl_group_limit / 2;  // as many sends as receives
        distances = larger(1, smaller(ranks - 1, most));
        messages = most / distances;
        bytes = larger<Index>(window / 2 / distances, 256);
    }
};

/// Whether NCCL can be given the memory itself.
template <class Byte>
[[nodiscard]] constexpr bool nccl_goes_straight(Transfer<Byte> const& transfer, StridedBox const& box) noexcept {
    int left = 0;
    static_cast<void>(run_bytes_of(box, left));
    return left == 0 && transfer.conversion.is_plain();
}

}  // namespace reshard::inline v0::detail
