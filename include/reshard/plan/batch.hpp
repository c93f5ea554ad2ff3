// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/batch.hpp
/// \brief  Which tensors of a batch travel in one round: a rule that every rank computes alike, from plans alone.
/// \depends plan. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/plan/fold_chunks.hpp>
#include <reshard/plan/plan.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace planning {

/// What one tensor asks of the round it travels in. From the plan and the element type, never from what one rank
/// happens to hold: every rank must cut the batch alike.
struct RoundLoad {
    bool travels = false;  ///< false: a view or a local copy, which needs no round
    Index bytes = 0;       ///< what a rank sends or receives in one exchange, on average where few do
    Index workspace = 0;   ///< bytes of scratch memory; no rank needs more
    Index scratch = 0;     ///< what this rank needs of it, which has no say
    Index owner = -1;      ///< where few ranks have or need it: the lowest of them
    Index owned = 0;       ///< bytes of the owner
};

}  // namespace planning

namespace detail {

/// Elements of scratch memory that no rank exceeds: scratch_elements() for all ranks at once.
[[nodiscard]] inline Index largest_scratch(planning::Steps const& steps) noexcept {
    planning::Step const* const fold = steps.find(planning::StepKind::fold);
    if (fold == nullptr) return 0;
    return planning::FoldChunks(steps).scratch_elements(largest_extents(steps.to(*fold).distribution));
}

/// A side of few ranks counts as if all shared it: beside a tensor for one rank travel those for the others.
/// \pre the elements have whole bytes.
[[nodiscard]] inline Index round_bytes(planning::Steps const& steps, DType dtype) noexcept {
    Index ranks = 1;
    for (planning::Layout const& layout : steps.layouts) ranks = larger(ranks, layout.distribution.mesh().size());
    Index elements = ceil_div(steps.layouts.front().distribution.shape().size(), ranks);
    for (planning::Step const& step : steps.list) {
        if (step.kind != planning::StepKind::exchange) continue;
        planning::Layout const& to = steps.to(step);
        Index const piece = saturated_product(largest_piece(to.distribution), larger<Index>(to.addends, 1));
        elements = larger(elements, ceil_div(saturated_product(piece, to.distribution.mesh().size()), ranks));
    }
    return saturated_product(elements, bytes(dtype));
}

/// The side of fewest ranks, if there is one: its lowest rank stands for them, with what the largest part takes.
inline void note_owner(planning::RoundLoad& load, planning::Steps const& steps, DType dtype) noexcept {
    Index most = 0;
    Index fewest = INT64_MAX;
    for (planning::Layout const& layout : steps.layouts) {
        DynamicMesh const& mesh = layout.distribution.mesh();
        most = larger(most, mesh.size());
        if (mesh.size() > fewest) continue;
        if (mesh.size() < fewest) load.owned = 0;
        fewest = mesh.size();
        load.owner = mesh.lowest_rank();
        Index const piece = saturated_product(largest_piece(layout.distribution), larger<Index>(layout.addends, 1));
        load.owned = larger(load.owned, saturated_product(piece, bytes(dtype)));
    }
    if (fewest == most) load.owner = -1;
}

}  // namespace detail

namespace planning {

/// Tensor numbers per round, in the order the rounds are run. A tensor of `bucket_bytes` or more travels alone; smaller
/// ones share a round, in their order, until the next would take it, or an owner of several, beyond `bucket_bytes`, or
/// its scratch memory beyond `max_workspace_bytes`. Tensors that travel alone do not end the round of the small ones.
/// \pre no load has a workspace beyond `max_workspace_bytes`.
///
/// Why a budget: one message per peer saves the latency of small tensors, but a message that holds everything leaves
/// the cache between packing and unpacking; docs/batch.md has the measurements.
[[nodiscard]] inline std::vector<std::vector<std::size_t>> cut_into_rounds(std::span<RoundLoad const> loads,
                                                                           Index bucket_bytes,
                                                                           Index max_workspace_bytes) {
    std::vector<std::vector<std::size_t>> rounds;
    std::vector<std::size_t> shared;
    Index bytes_left = bucket_bytes;
    Index workspace_left = max_workspace_bytes;
    std::vector<std::pair<Index, Index>> owned;  // in this round: owners, and bytes of each
    auto const owned_by = [&](Index owner) -> Index& {
        for (auto& [rank, bytes] : owned)
            if (rank == owner) return bytes;
        return owned.emplace_back(owner, 0).second;
    };
    auto const close = [&] {
        if (!shared.empty()) rounds.push_back(std::move(shared));
        shared = {};
        bytes_left = bucket_bytes;
        workspace_left = max_workspace_bytes;
        owned.clear();
    };
    for (std::size_t i = 0; i < loads.size(); ++i) {
        RoundLoad const& load = loads[i];
        if (!load.travels) continue;
        if (load.bytes >= bucket_bytes) {
            rounds.push_back({i});
            continue;
        }
        Index const had = load.owner < 0 ? 0 : owned_by(load.owner);
        bool const owner_full = had != 0 && load.owned > bucket_bytes - had;
        if (owner_full || load.bytes > bytes_left || load.workspace > workspace_left) close();
        if (load.owner >= 0) owned_by(load.owner) += load.owned;
        shared.push_back(i);
        bytes_left -= load.bytes;
        workspace_left -= load.workspace;
    }
    close();
    return rounds;
}

}  // namespace planning

}  // namespace reshard::inline v0_1
