// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/compare_reads.hpp
/// \brief  How the bytes of a checkpoint could be dealt to readers, and what each way costs: opens and balance.
/// \depends checkpoint/load_forecast. No I/O. Link reshard::checkpoint.
///
///     explain(compare_reads(catalogue, targets, 64));   // a table: what CooperativeRead does, and what others would
///     do
#pragma once

#include <reshard/checkpoint/load_forecast.hpp>

namespace reshard::inline v0 {

/// What the ranks would read, one way.
struct ReadShares {
    std::string_view name;
    Index opens = 0;       ///< of files for their data, once for each rank that opens one
    Index bytes = 0;       ///< by all ranks
    Index most_bytes = 0;  ///< by one rank
    int readers = 0;       ///< ranks that read something
    int ranks = 0;

    /// The busiest rank's bytes by the mean of all ranks: the time that reading takes by the time that it need take.
    [[nodiscard]] double imbalance() const noexcept {
        return bytes == 0 ? 1.0 : static_cast<double>(most_bytes) * ranks / static_cast<double>(bytes);
    }
};

/// Ways to read every byte once, for the whole of a checkpoint and any rank: the equal spans of CooperativeRead; whole
/// extents, largest first, each to the least loaded rank (as Megatron-Core's fully parallel load does); files to the
/// rank of the same number as their writer's, and the extents of other files by size (as Megatron-LM's pull request
/// 3392 does). Throws MeshError without ranks.
[[nodiscard]] std::vector<ReadShares> compare_reads(Catalogue const& catalogue, int ranks);
/// The same of what the targets need of it, and what each rank would read for itself. Throws as forecast_load().
[[nodiscard]] std::vector<ReadShares> compare_reads(Catalogue const& catalogue, std::span<PlacedTensor const> targets,
                                                    int ranks, ReadOptions const& reads = {},
                                                    LoadOptions const& options = {});

/// A line for each way.
[[nodiscard]] std::string explain(std::span<ReadShares const> ways);

}  // namespace reshard::inline v0

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/compare_reads.ipp>
#endif
