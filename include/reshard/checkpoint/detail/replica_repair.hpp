// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/replica_repair.hpp
/// \brief  Overwrites copies that differ with the bytes of one of them.
/// \depends checkpoint/replica_report, comm/agree, exec/{batch,local_tensor}, plan/replicas, plan/relay.
#pragma once

#include <reshard/checkpoint/replica_report.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/replicas.hpp>

#include <algorithm>  // find

namespace reshard::inline v0_1::detail {

/// Names the source and the receivers of every difference, or says why one has no source. The same on every rank.
/// `root` is a rank, or -1; it matters in ties only.
[[nodiscard]] inline std::string choose_sources(std::vector<ReplicaDifference>& differences,
                                                std::span<LocalTensor const> tensors, int root) {
    for (ReplicaDifference& difference : differences) {
        DynamicDistribution const& distribution = tensors[difference.tensor].distribution;
        std::vector<int> const& ranks = difference.ranks;
        difference.source = difference.spot.reference;
        if (difference.is_tie()) {
            if (root < 0) {
                return concat("'", difference.name, "' cannot be repaired: ", counted_ranks(ranks),
                              " hold equally many copies of different contents. Fix: name the rank that is right in "
                              "VerifyReplicasOptions::root.");
            }
            if (!distribution.contains(root)) {
                return concat("'", difference.name, "' cannot be repaired from rank ", root,
                              ", which holds nothing of it. Fix: name a rank of the mesh ", brief(distribution.mesh()),
                              " in VerifyReplicasOptions::root.");
            }
            difference.source = same_replica(distribution, ranks.front(), root);
        }
        auto const place = std::find(ranks.begin(), ranks.end(), difference.source) - ranks.begin();
        int const right = difference.contents[as_size(place)];
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            if (difference.contents[i] != right) difference.repaired.push_back(ranks[i]);
        }
    }
    return {};
}

/// What `from` has, given to others, which pass it on.
[[nodiscard]] inline Plan<> copy_plan(int from, std::vector<int> const& to, DynamicShape const& shape) {
    auto const all_on = [&](std::vector<Index> const& ranks) {
        auto const count = as_index(ranks.size());
        return distribution(DynamicMesh(Indices{count}, RankList{0, IndexList(ranks.data(), count)}), shape, "R");
    };
    return plan_across(all_on({from}), all_on({to.begin(), to.end()})).relayed(all_ranks);
}

/// Collective. What choose_sources() decided, all groups of a tensor at once: they share no rank. (Tensors may share
/// memory.)
inline void repair(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                   std::span<ReplicaDifference const> differences) {
    for (std::size_t next = 0; next < differences.size();) {
        std::size_t const number = differences[next].tensor;
        LocalTensor const& tensor = tensors[number];
        Batch batch;
        attempt_before_agreement(comm, [&] {
            for (; next < differences.size() && differences[next].tensor == number; ++next) {
                ReplicaDifference const& difference = differences[next];
                DynamicShape const shape = tensor.distribution.local_shape(difference.source);
                batch.add(copy_plan(difference.source, difference.repaired, shape), tensor.view, tensor.view,
                          tensor.name);
            }
        });
        redistribute(batch, comm, {.bucket_bytes = INT64_MAX});
    }
}

}  // namespace reshard::inline v0_1::detail
