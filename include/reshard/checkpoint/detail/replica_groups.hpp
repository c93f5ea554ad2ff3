// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_groups.hpp
/// \brief  Which ranks should hold the same bytes of a tensor, derived from its placements.
/// \depends exec/local_tensor.hpp, plan/message.hpp, <algorithm>. No communication: every rank derives any rank's
/// groups.
#pragma once

#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/plan/message.hpp>

#include <algorithm>  // sort, find_if

namespace reshard::inline v0::detail {

/// The places of the copies of a part: along the Replicate axes. Ranks that differ along a Shard axis hold other
/// elements, along a Partial axis other addends.
[[nodiscard]] inline AxisSubset copies_of(DynamicDistribution const& distribution) {
    unsigned axes = 0;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis)
        if (distribution.signature()[axis].is_replicate()) axes |= 1U << static_cast<unsigned>(axis);
    return AxisSubset(distribution.mesh(), axes);
}

/// The ranks, ascending, that hold what `rank` holds. \pre the rank is in the mesh.
[[nodiscard]] inline std::vector<int> replica_group(DynamicDistribution const& distribution, Index rank) {
    DynamicMesh const& mesh = distribution.mesh();
    AxisSubset const copies = copies_of(distribution);
    Index const part = mesh.ordinal(rank) - copies.ordinal(copies.index(mesh.ordinal(rank)));
    std::vector<int> ranks;
    ranks.reserve(static_cast<std::size_t>(copies.size()));
    for (Index i = 0; i < copies.size(); ++i) ranks.push_back(static_cast<int>(mesh.rank_at(part + copies.ordinal(i))));
    std::sort(ranks.begin(), ranks.end());
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

/// Whether any two ranks hold the same elements of a tensor. The same answer on every rank.
[[nodiscard]] inline bool has_replicas(DynamicDistribution const& distribution) noexcept {
    return distribution.shape().size() != 0 && copies_of(distribution).size() > 1;
}

/// The global index of an element of a rank's local tensor. \pre it has that element.
[[nodiscard]] inline Indices global_index(DynamicDistribution const& distribution, Index rank, Indices const& local) {
    Indices const coordinates = distribution.mesh().coordinates(rank);
    Indices result = local;
    for (int dim = 0; dim < local.size(); ++dim) {
        IndexSet const set = distribution.index_set(coordinates, dim);
        Index const length = set.segment(0).size();  // of all segments but the last
        result[dim] = set.segment(local[dim] / length).begin + local[dim] % length;
    }
    return result;
}

/// Two ranks or more, and the tensors, by number, of which they should hold the same bytes.
struct ReplicaGroup {
    std::vector<int> ranks;  ///< ascending; the first one compares
    std::vector<std::size_t> tensors;

    [[nodiscard]] int leader() const noexcept { return ranks.front(); }
};

/// The groups that a rank belongs to, in the order of their first tensors: ranks that share several list these alike.
[[nodiscard]] inline std::vector<ReplicaGroup> replica_groups(std::span<LocalTensor const> tensors, int rank) {
    std::vector<ReplicaGroup> groups;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        DynamicDistribution const& distribution = tensors[i].distribution;
        if (!has_replicas(distribution) || !distribution.contains(rank)) continue;
        if (distribution.local_shape(rank).size() == 0) continue;
        std::vector<int> ranks = replica_group(distribution, rank);
        auto const known =
            std::find_if(groups.begin(), groups.end(), [&](ReplicaGroup const& group) { return group.ranks == ranks; });
        if (known == groups.end()) {
            groups.push_back({std::move(ranks), {i}});
        } else {
            known->tensors.push_back(i);
        }
    }
    return groups;
}

}  // namespace reshard::inline v0::detail
