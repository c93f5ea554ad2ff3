// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/relay.hpp
/// \brief  Relays: what several ranks of a node need enters the node once. What Plan::relayed(ranks_per_node) takes.
/// \depends plan. An include of its own: the umbrella does not have it.
///
///     auto move = plan(from, to).relayed(8);                     // nodes of 8 ranks
///     auto send = plan_across(from, to).relayed(all_ranks);      // each byte leaves the source once
///
/// Laws, without Partial (the property tests of tests/plan and tests/exec):
///     law.bound   a rank receives, in all exchanges together, exactly what it needs and does not hold
///     law.node    on one mesh, a byte enters a node once when a rank of it needs the byte and none holds it, else
///                 never; between meshes, at most once. Nodes must be blocks of mesh axes, which are told apart by node
///                 while there are at most 8 in all
#pragma once

#include <reshard/plan/detail/relay.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1::detail {

/// What relaying comes to, in a line.
[[nodiscard]] inline std::string relay_text(Steps const& steps, DynamicMesh const& mesh, Index ranks_per_node) {
    bool const relays = steps.relays.share >= 0;
    char const* const nothing = "no ranks of a node need the same from elsewhere, so nothing is passed on\n";
    if (ranks_per_node == all_ranks) {
        if (!relays) return concat("  relayed: ", nothing);
        return "  relayed: what several ranks need leaves the source once, and they pass it on\n";
    }
    Index block = 1;
    for (Index extent : blocks_inside(mesh, ranks_per_node)) block *= extent;
    std::string const start = concat("  relayed, nodes of ", ranks_per_node, " ranks: ");
    if (!steps.relays.exact) {
        return concat(start, "a mesh has at most ", max_axes, " axes, so along some of ", brief(mesh),
                      " ranks are not told apart by node, and a byte may enter more than once; merge axes\n");
    }
    if (most_in_one_node(mesh, ranks_per_node) > block) {
        return concat(start, "they are no blocks of the mesh's axes, so a byte enters once for every ",
                      block == 1 ? std::string("rank that needs it") : concat(block, " neighbours that need it"), "\n");
    }
    if (!relays) return concat(start, nothing);
    return concat(start, "what several ranks of a node need from elsewhere enters it once, and they pass it on\n");
}

struct RelayPlanning {
    [[nodiscard]] static constexpr decltype(PlanValue::steps) maker(Index ranks_per_node) {
        if (ranks_per_node < 0) {
            raise(ErrorCode::mesh, "reshard::Plan::relayed: nodes of ", ranks_per_node,
                  " ranks. Fix: give the number of ranks per node, 1 for a direct plan.");
        }
        return ranks_per_node < 2 ? nullptr : &steps;
    }

private:
    static Steps steps(PlanValue const& plan) {
        Outline outline(plan);
        if (!outline.is_collective()) return outline.finish();
        Steps result = plan.across ? relay_across(plan, outline) : relay_within(plan, outline);
        result.relays.explain = &relay_text;
        return result;
    }
};

}  // namespace reshard::inline v0_1::detail
