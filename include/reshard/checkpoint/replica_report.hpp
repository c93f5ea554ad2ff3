// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/replica_report.hpp
/// \brief  What verify_replicas() found: data, and to_string() of it. The same on every rank.
/// \depends checkpoint/detail/replica_value, <vector>. No communication.
#pragma once

#include <reshard/checkpoint/detail/replica_value.hpp>
#include <reshard/core/shape.hpp>

#include <algorithm>  // min
#include <vector>     // vector

namespace reshard::inline v0 {

/// The first place, in the row-major order of the local tensor, where two ranks of a replica group differ.
struct ReplicaSpot {
    int rank = -1;       ///< the lowest odd rank; without odd ranks, the lowest that differs from the group's first
    int reference = -1;  ///< the lowest rank that holds what most do; without odd ranks, the group's first
    bool found = false;  ///< false when no element differed any more: the memory was written meanwhile
    Indices index;       ///< in the whole tensor; empty also for a scalar
    Indices local_index;
    std::uint64_t value = 0;            ///< the element's bits on `rank`
    std::uint64_t reference_value = 0;  ///< and on `reference`
    ValueDistance distance;
    Index elements = 0;      ///< how many elements of that block differ
    Index block_size = 0;    ///< of how many
    Index blocks = 0;        ///< how many blocks of the local tensor differ
    Index blocks_total = 0;  ///< of how many

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
[[nodiscard]] inline std::string ranks_text(std::vector<int> const& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        text += concat(i == 0 ? "" : ",", ranks[i]);
        if (last != i) text += concat(last == i + 1 ? "," : "-", ranks[last]);
        i = last + 1;
    }
    return text;
}

[[nodiscard]] inline std::string distance_text(DType dtype, ValueDistance const& distance) {
    if (!distance.comparable) return "the bits differ";
    if (is_integer(dtype) || dtype == DType::boolean) return concat(distance.steps, " apart");
    return concat(distance.steps, distance.steps == 1 ? " ulp, " : " ulps, ", number_text(distance.absolute, 6),
                  " apart");
}

[[nodiscard]] inline std::string spot_text(DType dtype, ReplicaSpot const& spot) {
    if (!spot.found) {
        return concat("rank ", spot.rank, " and rank ", spot.reference,
                      " no longer differ: the memory was written while it was compared");
    }
    return concat("first at ", to_string(spot.index), " (local ", to_string(spot.local_index),
                  "): ", value_text(dtype, spot.value), " on rank ", spot.rank, ", ",
                  value_text(dtype, spot.reference_value), " on rank ", spot.reference, ": ",
                  distance_text(dtype, spot.distance), "; ", spot.elements, " of ", spot.block_size,
                  " elements of that block differ, ", spot.blocks, " of ", spot.blocks_total,
                  spot.blocks_total == 1 ? " block" : " blocks");
}

}  // namespace detail

/// One line: `'w' F32 on ranks 0-3: rank 2 is odd; first at [17,5] (local [1,5]): ...`
[[nodiscard]] inline std::string to_string(ReplicaDifference const& difference) {
    std::string text =
        concat("'", difference.name, "' ", name(difference.dtype), " on ", detail::ranks_text(difference.ranks), ": ");
    if (difference.is_tie()) {
        text += "a tie, nobody is odd; ";
    } else {
        text += concat(detail::ranks_text(difference.odd), difference.odd.size() == 1 ? " is odd; " : " are odd; ");
    }
    text += detail::spot_text(difference.dtype, difference.spot);
    if (!difference.repaired.empty()) {
        text += concat("; ", detail::ranks_text(difference.repaired), " repaired from rank ", difference.source);
    }
    return text;
}

/// A line of numbers, then a line for each of the first `most` differences.
[[nodiscard]] inline std::string to_string(ReplicaReport const& report, std::size_t most = 20) {
    if (report.equal()) return concat(report.compared, " tensors with replicas, all equal");
    std::size_t differing = 0;
    for (std::size_t i = 0; i < report.differences.size(); ++i) {
        if (i == 0 || report.differences[i].tensor != report.differences[i - 1].tensor) ++differing;
    }
    std::string text = concat(differing, " of ", report.compared, " tensors with replicas differ");
    std::size_t const shown = std::min(most, report.differences.size());
    for (std::size_t i = 0; i < shown; ++i) text += "\n  " + to_string(report.differences[i]);
    if (shown != report.differences.size()) {
        text += concat("\n  and ", report.differences.size() - shown, " more differences");
    }
    return text;
}

}  // namespace reshard::inline v0
