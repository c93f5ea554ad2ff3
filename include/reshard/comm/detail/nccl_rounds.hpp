// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_rounds.hpp
/// \brief  How much a pair of ranks moves over NCCL in one round, and how many pairs share a group.
/// \depends comm/detail/{box_pieces,nccl_family}.hpp.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/detail/nccl_family.hpp>

namespace reshard::inline v0::detail {

/// How much a pair may move in one round, the same on both ranks, and how pairs share a group.
struct NcclRounds {
    static constexpr int most = nccl_group_limit / 2;  ///< as many sends as receives
    int rank = 0;
    int distances = 1;  ///< that share a group, the same on all ranks
    Index window = 0;
    int* peers = nullptr;  ///< by rank: how many this one and its peers have; null: nobody asks

    NcclRounds(int its_rank, int ranks, Index window_bytes) noexcept
        : rank(its_rank), distances(larger(1, smaller(ranks - 1, most))), window(window_bytes) {}

    /// What each pair of a rank with so many peers may move, so that all of it fits into the window and a group.
    [[nodiscard]] PairShare shared_by(int count) const noexcept {
        constexpr Index slot = StagingOptions::alignment;
        int const lanes = larger(1, smaller(count, most));
        return {most / lanes, larger<Index>(window / 2 / lanes, 4 * slot), slot};
    }
    /// The least: of ranks that may have all others as peers.
    [[nodiscard]] PairShare shared_by_all() const noexcept { return shared_by(distances); }
    /// That of the pair with a peer.
    [[nodiscard]] PairShare with(int peer) const noexcept {
        return peers == nullptr ? shared_by_all() : shared_by(larger(peers[rank], peers[peer]));
    }
};

/// Whether NCCL can be given the memory itself.
template <class Byte>
[[nodiscard]] constexpr bool nccl_goes_straight(Transfer<Byte> const& transfer) noexcept {
    return run_of(transfer.box).dims_left == 0 && transfer.conversion.is_plain();
}

}  // namespace reshard::inline v0::detail
