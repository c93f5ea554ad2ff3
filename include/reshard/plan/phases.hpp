// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/phases.hpp
/// \brief  For executors: the steps of a plan, and one rank's part in each exchange.
/// \depends plan/detail/{plan_value,steps}, plan/message.
#pragma once

#include <reshard/plan/detail/plan_value.hpp>
#include <reshard/plan/detail/share.hpp>
#include <reshard/plan/detail/steps.hpp>
#include <reshard/plan/message.hpp>

namespace reshard::inline v0::detail {

/// How the plan is carried out.
[[nodiscard]] inline Steps steps_of(PlanValue const& plan) {
    Steps steps = plan.steps(plan.from, plan.to);
    if (plan.relaying.methods != nullptr && steps.kind == Kind::collective) {
        plan.relaying.methods->plan(steps, plan.from, plan.to, plan.relaying.ranks_per_node);
    }
    return steps;
}

/// Whether a rank has a part in an exchange: a fold concerns the source's mesh alone.
[[nodiscard]] inline bool takes_part(Steps const& steps, DynamicDistribution const& from, Index rank, int phase) {
    return phase >= 0 && phase < steps.phases() && (phase > 0 || !steps.fold || from.contains(rank));
}

/// One rank's part of exchange `phase`. \pre takes_part
[[nodiscard]] inline Exchange exchange_of(Steps const& steps, DynamicDistribution const& from, Index rank, int phase) {
    PhaseGrids grids(steps, from, phase);
    if (steps.relay.methods != nullptr) {
        return steps.relay.methods->exchange(steps, from, grids.source, grids.target, rank, phase);
    }
    return steps.stages[phase].planner(grids.source, grids.target, rank);
}

/// Elements of scratch memory: every addend of what the rank folds, and across meshes the result.
[[nodiscard]] inline Index workspace_of(Steps const& steps, DynamicDistribution const& from, Index rank) {
    if (!steps.fold || !from.contains(rank)) return 0;
    Index const folded = steps.stages[0].holding.local_shape(rank).size();
    Index elements = steps.stages[0].place == Place::workspace ? folded : 0;
    add_elements(elements, folded, steps.addends);
    return elements;
}

inline void add_cost(Cost& cost, Exchange const& exchange) {
    ++cost.phases;
    cost.messages_sent += static_cast<Index>(exchange.sends.size());
    cost.messages_received += static_cast<Index>(exchange.receives.size());
    for (Message const& message : exchange.sends) add_elements(cost.sent, message.elements());
    for (Message const& message : exchange.receives) add_elements(cost.received, message.elements());
}

}  // namespace reshard::inline v0::detail
