// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/relay.hpp
/// \brief  Relays: what several ranks of a node need enters the node once. What Plan::relayed(ranks_per_node) takes.
/// \depends plan; <algorithm>, <vector>. An include of its own: the umbrella does not have it.
///
///     auto move = plan(from, to).relayed(8);                     // nodes of 8 ranks
///     auto send = plan_across(from, to).relayed(all_ranks);      // each byte leaves the source once
///
/// Laws, without Partial (the property tests of tests/plan and tests/exec):
///     law.bound   a rank receives, in all exchanges together, exactly what it needs and does not hold
///     law.node    on one mesh, a byte enters a node once when a rank of it needs the byte and none holds it, else
///                 never; between meshes, at most once. Nodes must be blocks of mesh axes
#pragma once

#include <reshard/plan/detail/held.hpp>
#include <reshard/plan/detail/near_first.hpp>
#include <reshard/plan/detail/relay.hpp>
#include <reshard/plan/plan.hpp>

#include <algorithm>  // sort
#include <vector>     // vector

namespace reshard::inline v0::detail {

/// The most ranks of a mesh that sit in one node.
[[nodiscard]] inline Index most_in_one_node(DynamicMesh const& mesh, Index ranks_per_node) {
    std::vector<Index> nodes;
    if (mesh.ranks().ranks.empty()) {
        Index const first = mesh.rank_at(0) % ranks_per_node;
        if (first + mesh.size() > 2 * ranks_per_node) return ranks_per_node;  // some node is full
        Index const in_first = smaller(mesh.size(), ranks_per_node - first);
        return larger(in_first, mesh.size() - in_first);
    }
    for (Index rank : mesh.ranks().ranks) nodes.push_back(rank / ranks_per_node);
    std::sort(nodes.begin(), nodes.end());
    Index most = 0;
    Index run = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        run = i > 0 && nodes[i] == nodes[i - 1] ? run + 1 : 1;
        most = larger(most, run);
    }
    return most;
}

struct RelayPlanning {
    [[nodiscard]] static constexpr Relaying relaying(Index ranks_per_node) {
        if (ranks_per_node < 0) raise_ranks(ranks_per_node);
        return ranks_per_node < 2 ? Relaying{} : Relaying{ranks_per_node, &methods};
    }

private:
    static void plan(Steps& steps, DynamicDistribution const& from, DynamicDistribution const& to,
                     Index ranks_per_node) {
        steps.relay.methods = &methods;
        steps.relay.ranks_per_node = ranks_per_node;
        if (steps.across) {
            relay_across(steps, from, to, ranks_per_node);
        } else {
            relay_within(steps, from, to, ranks_per_node);
        }
    }

    static Exchange exchange(Steps const& steps, DynamicDistribution const& from, Grid& source, Grid& target,
                             Index rank, int phase) {
        RelaySteps const& relay = steps.relay;
        if (relay.stage >= 0 && phase > relay.stage) return passed_on(steps, from, rank);
        if (relay.near) {
            lay_on(source, relay.mesh);
            lay_on(target, relay.mesh);
        }
        bool const near = relay.near && (target.cutting & ~source.cutting & ~relay.inside) != 0;
        Exchange result = near ? plan_near_first(source, target, rank, relay.inside)
                               : steps.stages[phase].planner(source, target, rank);
        // What the rank had before the relays comes to its place at once, and is not sent to it again.
        if (phase == relay.stage) {
            keep_held(result.kept, passing(steps, from), rank);
            sort_messages(result.kept);
        }
        return result;
    }
    static Passing passing(Steps const& steps, DynamicDistribution const& from) {
        static constexpr Owner nobody{};
        int const stage = steps.relay.stage;
        if (stage == 0) return {steps.stages[0], steps.stages[1], from, nobody};
        Stage const& before = steps.stages[stage - 1];
        return {steps.stages[stage], steps.stages[stage + 1], before.holding, before.owner};
    }
    static Exchange passed_on(Steps const& steps, DynamicDistribution const& from, Index rank) {
        AxisSubset const axes(steps.stages[steps.relay.stage].holding.mesh(), steps.relay.shared);
        Exchange result = pass_on(passing(steps, from), axes, rank);
        sort_messages(result.sends);
        sort_messages(result.receives);
        return result;
    }

    /// What relaying comes to, in a line.
    static std::string explain(Steps const& steps, DynamicMesh const& mesh) {
        Index const ranks_per_node = steps.relay.ranks_per_node;
        char const* const nothing = "no ranks of a node need the same from elsewhere, so nothing is passed on\n";
        if (ranks_per_node == all_ranks) {
            if (steps.relay.stage < 0) return concat("  relayed: ", nothing);
            return "  relayed: what several ranks need leaves the source once, and they pass it on\n";
        }
        Index block = 1;
        for (Index extent : blocks_inside(mesh, ranks_per_node)) block *= extent;
        std::string const start = concat("  relayed, nodes of ", ranks_per_node, " ranks: ");
        if (most_in_one_node(mesh, ranks_per_node) > block) {
            return concat(start, "they are no blocks of the mesh's axes, so a byte enters once for every ",
                          block == 1 ? std::string("rank that needs it") : concat(block, " neighbours that need it"),
                          "\n");
        }
        if (steps.relay.stage < 0) return concat(start, nothing);
        return concat(start, "what several ranks of a node need from elsewhere enters it once, and they pass it on\n");
    }

    [[noreturn]] static void raise_ranks(Index given) {
        raise(ErrorCode::mesh, concat("reshard::Plan::relayed: nodes of ", given,
                                      " ranks. Fix: give the number of ranks per node, 1 for a direct plan."));
    }

    static constexpr RelayMethods methods{&plan, &exchange, &explain};
};

}  // namespace reshard::inline v0::detail
