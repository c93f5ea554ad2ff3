// SPDX-License-Identifier: Apache-2.0
// How plan/plan.hpp is done.
#pragma once

#include <reshard/plan/detail/one_mesh.hpp>
#include <reshard/plan/detail/transition_steps.hpp>
#include <reshard/plan/detail/two_meshes.hpp>
#include <reshard/plan/fold_chunks.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1 {

[[noreturn]] RESHARD_INLINE void detail::raise_not_a_view(TransitionKind kind, DynamicDistribution const& from,
                                                          DynamicDistribution const& to) {
    raise(ErrorCode::transition, "reshard::Plan::view: ", brief(from), " -> ", brief(to), " is a ", name(kind),
          ", not a view. Fix: use redistribute(plan, ...) into memory of its own.");
}
[[noreturn]] RESHARD_INLINE void detail::raise_view_shape(DynamicShape const& given, DynamicShape const& wanted,
                                                          Index rank) {
    raise(ErrorCode::buffer, "reshard::Plan::view: rank ", rank, " holds a tensor of shape ", to_string(wanted),
          ", the view given has ", to_string(given), ". Fix: pass the rank's whole local tensor.");
}

[[noreturn]] RESHARD_INLINE void detail::raise_shapes_differ(DynamicShape const& from, DynamicShape const& to) {
    raise(ErrorCode::mismatch, "reshard::plan: shapes differ: ", to_string(from), " and ", to_string(to),
          ". Fix: a plan moves one tensor; reshape or slice it before or after.");
}
[[noreturn]] RESHARD_INLINE void detail::raise_meshes_differ(DynamicMesh const& from, DynamicMesh const& to) {
    raise(ErrorCode::mismatch, "reshard::plan: meshes differ: ", to_string(from), " and ", to_string(to),
          ". Fix: use plan_across(from, to) to move between meshes.");
}
[[noreturn]] RESHARD_INLINE void detail::raise_fills_average() {
    raise(ErrorCode::transition,
          "reshard::plan: only sums, and copies on one mesh, become Partial<avg>: an average has no "
          "identity to fill with. Fix: move to Replicate first; copies owe an average as they are.");
}

RESHARD_INLINE planning::Exchange detail::plan_within(Steps const& steps, Step const& step, Index rank) {
    planning::Exchange exchange;
    Grids grids(steps, step);
    for (Grid* grid : {&grids.source, &grids.target})
        if (steps.inside != 0) grid->lay_on(steps.nodes);
    if (grids.source.mesh->contains(rank)) OneMesh(grids.source, grids.target, steps.inside).plan(rank, exchange);
    return exchange;
}
RESHARD_INLINE planning::Exchange detail::plan_between(Steps const& steps, Step const& step, Index rank) {
    planning::Exchange exchange;
    Grids const grids(steps, step);
    TwoMeshes(grids.source, grids.target).plan(rank, exchange);
    return exchange;
}
RESHARD_INLINE planning::Steps detail::steps_within(PlanValue const& plan) {
    Outline outline(plan);
    if (!outline.is_collective()) return outline.finish();
    if (outline.folds()) outline.fold(outline.share());
    if (!outline.arrived()) outline.exchange(outline.needed(), plan_within);
    return outline.finish();
}
RESHARD_INLINE planning::Steps detail::steps_moving(PlanValue const& plan) {
    Steps steps = no_steps(plan, kind_of(plan.from, plan.to));
    if (steps.kind == TransitionKind::collective) {
        steps.layouts.emplace_back(Place::destination, plan.to);
        steps.list.push_back({StepKind::exchange, 0, 2, {}, 1, 1, plan_within});
    } else {
        steps.list.push_back({StepKind::copy, 0, 1});
    }
    return steps;
}
RESHARD_INLINE planning::Steps detail::steps_locally(PlanValue const& plan) {
    return Outline(plan, plan.kind == TransitionKind::view ? TransitionKind::view : TransitionKind::copy).finish();
}
/// Fold on the source mesh, then one exchange.
RESHARD_INLINE planning::Steps detail::steps_between(PlanValue const& plan) {
    Outline outline(plan);
    if (outline.folds()) outline.fold(outline.share_of_source());
    outline.exchange(outline.needed(), plan_between);
    return outline.finish();
}

RESHARD_INLINE planning::Exchange planning::exchange_of(Steps const& steps, Step const& exchange, Index rank) {
    if (!takes_part(steps, exchange, rank)) return {};
    Exchange mine = exchange.planner(steps, exchange, rank);
    detail::sort_messages(mine.sends);
    detail::sort_messages(mine.receives);
    detail::sort_messages(mine.kept);
    return mine;
}

RESHARD_INLINE Index detail::fold_scratch(Steps const& steps, Step const& step, Index rank) {
    Index const elements =
        planning::FoldChunks(steps).scratch_elements(steps.to(step).distribution.local_shape(rank).extents());
    if (elements == INT64_MAX) raise_uncounted();
    return elements;
}
RESHARD_INLINE Index planning::scratch_elements(Steps const& steps, Index rank) {
    Step const* const fold = steps.find(StepKind::fold);
    return fold != nullptr && steps.from(*fold).distribution.contains(rank) ? fold->scratch(steps, *fold, rank) : 0;
}

RESHARD_INLINE Cost detail::cost_of(PlanValue const& plan, Index rank) {
    Cost cost;
    bool const inside = plan.from.contains(rank) || (plan.across && plan.to.contains(rank));
    if (plan.kind != TransitionKind::collective || !inside) return cost;
    Steps const steps = plan.steps(plan);
    for (Step const& step : steps.list) {
        if (step.kind != StepKind::exchange) continue;
        planning::Exchange const exchange = exchange_of(steps, step, rank);
        ++cost.phases;
        cost.messages_sent += detail::as_index(exchange.sends.size());
        cost.messages_received += detail::as_index(exchange.receives.size());
        for (planning::Message const& message : exchange.sends) add_elements(cost.sent, message.elements());
        for (planning::Message const& message : exchange.receives) add_elements(cost.received, message.elements());
    }
    cost.workspace = scratch_elements(steps, rank);
    return cost;
}
RESHARD_INLINE planning::Exchange detail::exchange_of(PlanValue const& plan, Index rank, int phase) {
    if (plan.kind != TransitionKind::collective) return {};
    Steps const steps = plan.steps(plan);
    return phase < 0 || phase >= steps.phases() ? planning::Exchange{}
                                                : exchange_of(steps, steps.exchange(phase), rank);
}
RESHARD_INLINE std::uint64_t detail::hash_of(PlanValue const& plan) noexcept {
    detail::Digest result;
    digest(result, plan.from);
    digest(result, plan.to);
    return result.add(plan.across ? 1U : 0U).add_signed(plan.ranks_per_node).value();
}

RESHARD_INLINE DynamicDistribution adjoint(DynamicDistribution const& distribution) {
    Placements placements = distribution.placements();
    for (Placement& placement : placements) {
        if (placement.is_shard()) continue;
        if (placement.is_replicate()) {
            placement = Placement::partial(Reduce::sum);
        } else if (placement.op() == Reduce::sum) {
            placement = Placement::replicate();
        } else {
            std::string_view const why =
                placement.op() == Reduce::avg
                    ? "> is a sum divided by the extent of its axis, and placements hold no factor. Fix: take the "
                      "adjoint with P+ in its place; the gradient of P+ divided by the extent "
                      "(PrepareOptions::factor) is that of Pavg."
                    : "> is not a sum, so it has no adjoint. Fix: only R, S and P+ are differentiated.";
            errors::raise(ErrorCode::transition, "reshard::adjoint: Partial<", name(placement.op()), why);
        }
    }
    return DynamicDistribution(distribution.mesh(), distribution.shape(), placements, distribution.signature().order());
}

RESHARD_INLINE Plan<> detail::join(Plan<> const& first, Plan<> const& next) {
    auto const refuse = [&](ErrorCode code, std::string_view why) {
        raise(code, "reshard::Plan::then: ", to_string(first.from()), " -> ", to_string(first.to()), " and ",
              to_string(next.from()), " -> ", to_string(next.to()), " ", why);
    };
    if (!(first.to() == next.from()))
        refuse(ErrorCode::mismatch, "do not meet. Fix: start the second where the first ends.");
    if (first.ranks_per_node_ != next.ranks_per_node_) {
        refuse(ErrorCode::mismatch,
               "travel differently (relayed, one-shot). Fix: join direct plans, then relay the result.");
    }
    auto const rounds = [](Plan<> const& plan) {
        Steps const steps = plan.steps();
        return steps.find(StepKind::fold) != nullptr || steps.find(StepKind::scale) != nullptr;
    };
    if (rounds(first) && rounds(next)) {
        refuse(ErrorCode::transition,
               "both fold or scale: one plan would meet addends in another order, or round once. "
               "Fix: carry out one after the other, or plan the whole way at once.");
    }
    // Copies that owe an average are folded with a rounding that other addends of the same value do not have.
    auto const averaged = [](DynamicDistribution const& from, DynamicDistribution const& to, bool between) {
        unsigned axes = 0;
        for (int axis = 0; axis < from.mesh().axes() && !between; ++axis) {
            bool const owes = to.placement(axis) == Placement::partial(Reduce::avg);
            if (owes && from.signature()[axis].is_replicate()) axes |= 1U << axis;
        }
        return axes;
    };
    bool const across = first.is_across() || next.is_across();
    if ((averaged(first.from(), first.to(), first.is_across()) | averaged(next.from(), next.to(), next.is_across())) !=
        averaged(first.from(), next.to(), across)) {
        refuse(ErrorCode::transition,
               "owe averages of copies on the way or at the end, which are rounded in another way. "
               "Fix: carry out one after the other.");
    }
    Plan<> const whole = across ? plan_across(first.from(), next.to()) : plan(first.from(), next.to());
    auto const scales = [](Plan<> const& plan) { return plan.steps().find(StepKind::scale) != nullptr; };
    if (scales(whole) && !scales(first) && !scales(next)) {
        refuse(ErrorCode::transition,
               "fold an average and owe it again: one plan would divide, and round, each addend. "
               "Fix: carry out one after the other.");
    }
    return Plan<>(whole.from(), whole.to(), across, first.ranks_per_node_, first.relayed_);
}

/// Every list after its length: what follows a distribution, or a shorter one, cannot be read as its end.
RESHARD_INLINE void detail::digest(detail::Digest& digest, DynamicDistribution const& distribution) {
    DynamicMesh const& mesh = distribution.mesh();
    digest.add_word_signed(mesh.axes()).add_word_signed(distribution.shape().rank());
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        PlacementForm const& placement = distribution.signature()[axis];
        digest.add_word_signed(mesh.extent(axis)).add_word(static_cast<std::uint64_t>(placement.kind()));
        if (placement.is_partial()) digest.add_word(static_cast<std::uint64_t>(placement.op()));
        if (!placement.is_shard()) continue;
        RuleRef const rule = distribution.rule(axis);
        digest.add_word_signed(placement.dim()).add_word(static_cast<std::uint64_t>(rule.kind));
        if (interleaves(rule.kind)) digest.add_word_signed(rule.block());
        for (Index i = 0; rule.kind == SplitKind::boundaries && i <= mesh.extent(axis); ++i) {
            digest.add_word_signed(rule.numbers[i]);
        }
    }
    Index const listed = mesh.is_listed() ? mesh.size() : 0;
    digest.add_word_signed(mesh.rank_at(0)).add_word_signed(listed);
    for (Index i = 0; i < listed; ++i) digest.add_word_signed(mesh.rank_at(i));
    for (Index extent : distribution.shape().extents()) digest.add_word_signed(extent);
    for (int axis : distribution.signature().order()) digest.add_word_signed(axis);  // as many as there are shards
}

}  // namespace reshard::inline v0_1
