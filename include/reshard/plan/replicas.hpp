// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/replicas.hpp
/// \brief  Which ranks hold copies of one part of a tensor, those that differ along Replicate axes only; and the plan
/// that
///         makes all copies what one of them is.
/// \depends algebra/distribution, core/sorting, plan/relay, plan/detail/grid. No communication: the same answers on
/// every rank.
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/plan/detail/grid.hpp>
#include <reshard/plan/relay.hpp>

#include <bit>     // popcount
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// The places of the copies of a part, along the Replicate axes. Ranks that differ along a Shard axis hold other
/// elements, along a Partial axis other addends.
[[nodiscard]] inline AxisSubset copies_of(DynamicDistribution const& distribution) {
    return {distribution.mesh(), distribution.signature().axes_of(PlacementKind::replicate)};
}

/// The ranks, ascending, that hold what `rank` holds. \pre the rank is in the mesh.
[[nodiscard]] inline std::vector<int> replica_group(DynamicDistribution const& distribution, Index rank) {
    DynamicMesh const& mesh = distribution.mesh();
    AxisSubset const copies = copies_of(distribution);
    Index const part = mesh.ordinal(rank) - copies.ordinal(copies.index(mesh.ordinal(rank)));
    std::vector<int> ranks;
    ranks.reserve(as_size(copies.size()));
    for (Index i = 0; i < copies.size(); ++i) ranks.push_back(static_cast<int>(mesh.rank_at(part + copies.ordinal(i))));
    sort_list(ranks);
    return ranks;
}

/// The member of a replica group that belongs to the same replica as `rank` does: which stands where that stands along
/// the Replicate axes, and where the group stands along the others. \pre both ranks are in the mesh.
[[nodiscard]] inline int same_replica(DynamicDistribution const& distribution, Index member, Index rank) {
    DynamicMesh const& mesh = distribution.mesh();
    AxisSubset const copies = copies_of(distribution);
    Index const place = mesh.ordinal(member);
    Index const ordinal =
        place - copies.ordinal(copies.index(place)) + copies.ordinal(copies.index(mesh.ordinal(rank)));
    return static_cast<int>(mesh.rank_at(ordinal));
}

/// Whether any two ranks hold the same elements of a tensor.
[[nodiscard]] inline bool has_replicas(DynamicDistribution const& distribution) noexcept {
    return distribution.shape().size() != 0 && copies_of(distribution).size() > 1;
}

/// The plan that makes the replicas of a tensor what those of the source are: from the replica that the source is part
/// of, a mesh of the axes that cut, to the others, with an axis in front that counts them. The two share no rank, so
/// that memory may be source and destination. \pre no Partial; more than one replica; the mesh has the source.
[[nodiscard]] inline Plan<> replica_plan(DynamicDistribution const& distribution, Index source) {
    DynamicMesh const& mesh = distribution.mesh();
    unsigned const cuts = ~distribution.signature().axes_of(PlacementKind::replicate);
    AxisSubset const copies = copies_of(distribution);
    AxisSubset const parts(mesh, cuts);
    std::vector<Index> holders;
    std::vector<Index> others;
    for (Index replica = 0; replica < copies.size(); ++replica) {
        auto& ranks = replica == copies.index(mesh.ordinal(source)) ? holders : others;
        for (Index part = 0; part < parts.size(); ++part)
            ranks.push_back(mesh.rank_at(copies.ordinal(replica) + parts.ordinal(part)));
    }
    AxisList order;
    for (int axis : distribution.signature().order()) {
        order.push_back(static_cast<std::int8_t>(1 + std::popcount(cuts & ((1U << axis) - 1))));
    }
    auto const side = [&](Index replicas, std::vector<Index> const& ranks) {
        Indices extents{replicas};
        Placements placements;
        placements.push_back(Placement::replicate());
        for (int axis = 0; axis < mesh.axes(); ++axis) {
            if (distribution.signature()[axis].is_replicate()) continue;
            extents.push_back(mesh.extent(axis));
            placements.push_back(distribution.placement(axis));
        }
        DynamicMesh const part(extents, RankList{0, ranks});
        return DynamicDistribution(part, distribution.shape(), placements, order);
    };
    return plan_across(side(1, holders), side(copies.size() - 1, others)).relayed(all_ranks);
}

}  // namespace reshard::inline v0_1::detail
