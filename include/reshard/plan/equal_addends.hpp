// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/equal_addends.hpp
/// \brief  plan_equal_addends(): R -> P+ as PyTorch does it.
/// \depends plan. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1 {

/// The plan of a transition on one mesh where every axis that goes from R to P+ leaves value / n on each of its n
/// ranks, as PyTorch does, where plan(from, to) leaves the value on the first and zeros on the others. Division rounds;
/// on floats only. It is plan(averages, to), where `averages` is `from` with Pavg for R along these axes: a copy is its
/// own average, and a sum is n averages. Throws what plan() throws, and TransitionError where `from` has sums already,
/// beside which its copies cannot be averages.
[[nodiscard]] inline Plan<> plan_equal_addends(DynamicDistribution const& from, DynamicDistribution const& to) {
    detail::require_same(from, to, true);
    Placements placements = from.placements();
    bool owes = false;
    bool divides = false;
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        owes = owes || (placements[axis].is_partial() && placements[axis].op() != Reduce::avg);
        if (!placements[axis].is_replicate() || to.placement(axis) != Placement::partial(Reduce::sum)) continue;
        placements[axis] = Placement::partial(Reduce::avg);
        divides = true;
    }
    if (owes && divides) {
        errors::raise(ErrorCode::transition, "reshard::plan_equal_addends: ", detail::brief(from), " -> ",
                      detail::brief(to),
                      " divides copies of addends. Fix: use plan(from, to), where the first of them keeps its value.");
    }
    return plan(DynamicDistribution(from.mesh(), from.shape(), placements, from.signature().order()), to);
}

}  // namespace reshard::inline v0_1
