// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/consolidate_plan.hpp
/// \brief  What rewriting a checkpoint will do, rank by rank, before a byte is read: the dry run.
/// \depends checkpoint/{catalogue,consolidate_options}. No I/O.
///
///     Catalogue const from(Checkpoint::open("sharded"));
///     std::puts(explain(plan_consolidate(from, 64)).c_str());
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/consolidate_options.hpp>

namespace reshard::inline v0_1 {

struct RewritePlan {
    int ranks = 0;
    Index tensors = 0;
    Index files_in = 0;
    Index files_out = 0;
    Index bytes_in = 0;   ///< of tensors, without copies that are not read
    Index bytes_out = 0;  ///< of tensors
    Index votes = 0;      ///< of all ranks, until all bytes are written
    Index memory = 0;     ///< per rank, for bytes in flight, at most
    std::vector<RewriteShare> shares;
    CheckpointKind kind = CheckpointKind::file;  ///< of what is read
    std::vector<CheckpointFile> unlisted{};      ///< as in RewriteReport

    /// How much more than the mean the busiest rank writes: 0.01 is 1 %.
    [[nodiscard]] double imbalance() const noexcept;
    friend bool operator==(RewritePlan const&, RewritePlan const&) = default;
};

/// What consolidate() will do. Throws as it does, for what can be known without files: FormatError (coverage, names),
/// DTypeError, MismatchError (copies that differ), BufferError (options).
[[nodiscard]] RewritePlan plan_consolidate(Catalogue const& from, int ranks, ConsolidateOptions const& options = {});
/// What shard_checkpoint() will do; `ranks` are those that do it. Throws also what plan_save() throws.
[[nodiscard]] RewritePlan plan_shards(Catalogue const& from, PlaceTensor const& place, int ranks,
                                      ShardOptions const& options = {});

/// Two lines for the whole, a line for each of the first `most` ranks, and the notes of a RewriteReport.
[[nodiscard]] std::string explain(RewritePlan const& plan, std::size_t most = 16);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/consolidate_plan.ipp>
#endif
