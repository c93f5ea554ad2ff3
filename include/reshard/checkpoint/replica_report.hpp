// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/replica_report.hpp
/// \brief  What verify_replicas() found: data, and explain() of it. The same on every rank.
/// \depends core. No communication.
#pragma once

#include <reshard/checkpoint/detail/mode.hpp>
#include <reshard/core/dtype.hpp>
#include <reshard/core/shape.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// The first place, in the row-major order of the local tensor, where two ranks of a replica group differ.
struct ReplicaSpot {
    int rank = -1;       ///< the lowest odd rank; without odd ranks, the lowest that differs from the group's first
    int reference = -1;  ///< the lowest rank that holds what most do; without odd ranks, the group's first
    bool found = false;  ///< false when no element differed any more: the memory was written meanwhile
    Indices index;       ///< in the whole tensor; empty also for a scalar
    std::uint64_t value = 0;            ///< the element's bits on `rank`
    std::uint64_t reference_value = 0;  ///< and on `reference`

    [[nodiscard]] friend bool operator==(ReplicaSpot const&, ReplicaSpot const&) = default;
};

/// A tensor that differs within one replica group. A tensor has one such group per shard, and each may differ.
struct ReplicaDifference {
    std::size_t tensor = 0;  ///< its number in the list
    std::string name;
    DType dtype = DType::u8;
    std::vector<int> ranks;     ///< the replica group, ascending
    std::vector<int> contents;  ///< per rank of the group; equal numbers mean equal contents; 0 is the first rank's
    std::vector<int> odd;       ///< who does not hold the most common contents; empty when two are equally common
    ReplicaSpot spot;
    int source = -1;            ///< after a repair: the rank whose bytes were sent
    std::vector<int> repaired;  ///< after a repair: the ranks that received them

    [[nodiscard]] bool is_tie() const noexcept { return odd.empty(); }
    [[nodiscard]] friend bool operator==(ReplicaDifference const&, ReplicaDifference const&) = default;
};

struct ReplicaReport {
    std::size_t tensors = 0;                     ///< that were listed
    std::size_t compared = 0;                    ///< of them, those that have replicas
    std::vector<ReplicaDifference> differences;  ///< ascending by tensor, then by first rank

    [[nodiscard]] bool equal() const noexcept { return differences.empty(); }
    [[nodiscard]] friend bool operator==(ReplicaReport const&, ReplicaReport const&) = default;
};

namespace detail {
/// "rank 3", "ranks 0-2,5".
[[nodiscard]] std::string counted_ranks(std::vector<int> const& ranks);
}  // namespace detail

/// One line: `'w' F32 on ranks 0-3: rank 2 is odd; first at [17,5]: 1.5 (0x3fc00000) on rank 2, 1.25 ... on rank 0`
[[nodiscard]] std::string to_string(ReplicaDifference const& difference);

/// A line of numbers, then a line for each of the first `most` differences. Without the end of the last line, as it
/// goes into messages.
[[nodiscard]] std::string explain(ReplicaReport const& report, std::size_t most = 20);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/replica_report.ipp>
#endif
