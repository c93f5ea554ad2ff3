// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/steps.hpp
/// \brief  How a transition is carried out: which exchange, what is folded where, what is filled or scaled.
/// \depends algebra, grid.
///
/// Without Partial on either side there is one exchange, from -> to. With Partial:
/// - a resolved axis is folded first and spread last: the first stage refines the last, so that every element is
///   folded on one rank (reduce-scatter), inside the destination's own memory, and then spread (all-gather);
/// - an axis that becomes Partial needs its data only once: the last stage cuts the destination along it, and the
///   rest of the destination is filled with the identity;
/// - across meshes the fold happens on the source mesh, where it is smallest.
///
/// from -> to   | first exchange                    | then                  | second exchange
/// -------------|-----------------------------------|-----------------------|---------------------------
/// R, S -> R, S | what is needed and not held       |                       |
/// P -> S       | the addends of the rank's shard   | fold                  |
/// P -> R       | the addends of the rank's share   | fold into its place   | the folded shares
/// P(a) -> P(b) | the addends of the rank's share   | fold among identities |
/// R, S -> P    | what only this rank's place needs | among identities      |
///
/// With relays (plan/relay.hpp) one exchange more may stand before the last.
///
/// Addends are folded in mesh order: by coordinate along the partial axes, row-major.
#pragma once

#include <reshard/algebra/transition.hpp>
#include <reshard/plan/detail/grid.hpp>

namespace reshard::inline v0 {
struct Exchange;
}  // namespace reshard::inline v0

namespace reshard::inline v0::detail {

/// The most exchanges any plan makes.
inline constexpr int max_phases = 3;

/// Where a rank's part of a stage lies in its memory.
enum class Place : std::uint8_t { source, workspace, destination };

/// One rank's part of the exchange between two grids of the same extents, on one mesh or on two. No communication: both
/// sides derive the same list from rank numbers.
///
/// Cost grows with the pieces a rank's box meets and, where cuts are block-cyclic, with the blocks in one common period
/// instead of all of them; between meshes that share ranks also with the copies of those pieces. Copies on the source
/// side are chosen so that the load is shared (detail/share.hpp); a rank that holds what it needs never asks for it.
[[nodiscard]] Exchange plan_within(Grid const& from, Grid const& to, Index rank);
[[nodiscard]] Exchange plan_between(Grid const& from, Grid const& to, Index rank);

/// What the ranks have after an exchange (and, where addends were exchanged, after their fold).
struct Stage {
    DynamicDistribution holding;
    Owner owner;  ///< along these axes one rank alone needs the data: there was nothing to cut
    Place place = Place::destination;
    /// Who plans the exchange that leads here.
    Exchange (*planner)(Grid const& from, Grid const& to, Index rank) = plan_within;
};

struct Steps;

/// How relayed plans differ. Defined by plan/relay.hpp, so that only those who relay compile it.
struct RelayMethods {
    /// Puts relays into the steps of a direct plan.
    void (*plan)(Steps& steps, DynamicDistribution const& from, DynamicDistribution const& to, Index ranks_per_node);
    Exchange (*exchange)(Steps const& steps, DynamicDistribution const& from, Grid& source, Grid& target, Index rank,
                         int phase);
    std::string (*explain)(Steps const& steps, DynamicMesh const& mesh);
};

/// What a relayed plan adds to the steps.
struct RelaySteps {
    RelayMethods const* methods = nullptr;  ///< null: direct
    Index ranks_per_node = 0;
    int stage = -1;       ///< where replicas of one node have a share each, which the next exchange spreads
    unsigned shared = 0;  ///< that stage's axes along which the shares lie side by side, all of one node
    bool near = false;    ///< copies serve their own node first
    DynamicMesh mesh;     ///< when near: axes between and inside nodes told apart
    unsigned inside = 0;  ///< its axes inside nodes
};

/// `stages[p]` is what exchange p leaves; exchange 0 starts from the source. The last stage is what the destination
/// needs from others.
struct Steps {
    Kind kind = Kind::view;
    bool across = false;  ///< between meshes
    bool fold = false;    ///< exchange 0 brings addends, which are folded
    bool fill = false;    ///< the destination starts out as the identity of its op
    Reduce fold_op = Reduce::sum;
    Reduce fill_op = Reduce::sum;
    Index addends = 1;   ///< per element, when folded
    Index multiply = 1;  ///< P+ -> Pavg
    Index divide = 1;    ///< Pavg -> P+

    AxisList resolved;  ///< the axes folded
    RelaySteps relay;
    InlineList<Stage, max_phases> stages;

    /// Exchanges one after the other; 0 for views and local copies.
    [[nodiscard]] int phases() const noexcept { return stages.size(); }
};

/// The two sides of exchange `phase`, laid out for the planner. \pre `steps` and `from` outlive it: cuts point at their
/// rules.
struct PhaseGrids {
    Grid source;
    Grid target;

    PhaseGrids(Steps const& steps, DynamicDistribution const& from, int phase)
        : source(phase == 0 ? from : steps.stages[phase - 1].holding), target(steps.stages[phase].holding) {
        if (phase == 0 && steps.fold) {
            source.add_dim(steps.addends, steps.resolved);
            target.add_dim(steps.addends, {});
        }
        Owner const nobody;
        Owner const& before = phase == 0 ? nobody : steps.stages[phase - 1].owner;
        Owner const& after = steps.stages[phase].owner;
        if (!before.axes.empty() || !after.axes.empty()) {
            source.add_owner(before);
            target.add_owner(after);
        }
    }
};

/// Grows a distribution by one cut at a time, each behind the cuts already there.
class Refinement {
public:
    explicit Refinement(DynamicDistribution const& base, Owner const& owner = {}) : base_(base), owner_(owner) {
        for (int axis = 0; axis < base.mesh().axes(); ++axis) placements_.push_back(base.placement(axis));
        for (int dim = 0; dim < base.shape().rank(); ++dim) lists_.push_back(base.cuts(dim));
    }

    /// Lets one coordinate along `axis` have everything.
    void own(int axis, Index coordinate) {
        placements_[axis] = Placement::replicate();
        owner_.axes.push_back(static_cast<std::int8_t>(axis));
        owner_.coordinates.push_back(coordinate);
    }
    void cut(int axis, int dim, SplitRule const& rule) {
        placements_[axis] = Placement::shard(dim, rule);
        lists_[dim].push_back(static_cast<std::int8_t>(axis));
    }
    /// Cuts the longest dimension; when none is left to cut, coordinate 0 owns everything.
    void cut_evenly(int axis) {
        SplitRule balanced;
        balanced.kind = SplitKind::balanced;
        int const dim = best_dim();
        if (dim < 0) {
            own(axis, 0);
        } else {
            cut(axis, dim, balanced);
        }
    }
    /// Whether a cut behind the others is possible: a block-cyclic cut is always the last.
    [[nodiscard]] bool open(int dim) const noexcept {
        return lists_[dim].empty() || placements_[lists_[dim].back()].rule().kind != SplitKind::cyclic;
    }

    [[nodiscard]] DynamicDistribution distribution() const {
        AxisList order;
        for (auto const& list : lists_)
            for (std::int8_t axis : list) order.push_back(axis);
        return DynamicDistribution(base_.mesh(), base_.shape(), placements_, order);
    }
    [[nodiscard]] Owner const& owner() const noexcept { return owner_; }

private:
    /// The longest dimension of the first rank's box that can still be cut; -1 when there is none.
    [[nodiscard]] int best_dim() const {
        int best = -1;
        Index longest = 1;
        Indices const first = base_.mesh().coordinates(base_.mesh().rank_at(0));
        for (int dim = 0; dim < base_.shape().rank(); ++dim) {
            Index const extent = base_.index_set(first, dim).size();
            if (open(dim) && extent > longest) {
                best = dim;
                longest = extent;
            }
        }
        return best;
    }

    DynamicDistribution const& base_;
    Placements placements_;
    InlineList<AxisList, max_rank> lists_;
    Owner owner_;
};

/// Where an axis that becomes Partial leaves its data: as the source cut it, if that cut can stand last.
inline void cut_filled_axis(Refinement& refinement, DynamicDistribution const& from, int axis, bool across) {
    if (!across && from.placement(axis).is_shard()) {
        int const dim = from.placement(axis).dim();
        SplitKind const kind = from.placement(axis).rule().kind;
        if (refinement.open(dim) && (kind == SplitKind::chunk || kind == SplitKind::balanced)) {
            refinement.cut(axis, dim, from.placement(axis).rule());
            return;
        }
    }
    refinement.cut_evenly(axis);
}

/// Steps of a transition on one mesh. \pre same mesh and shape, !fills_average.
[[nodiscard]] inline Steps steps_within(DynamicDistribution const& from, DynamicDistribution const& to) {
    Steps steps;
    steps.kind = kind_of(from.signature(), to.signature());
    Refinement needed(to);
    int const axes = from.mesh().axes();
    bool gathers = false;
    for (int axis = 0; axis < axes; ++axis) {
        Placement const& source = from.placement(axis);
        Placement const& target = to.placement(axis);
        AxisChange const change = axis_change(source, target);
        if (change == AxisChange::scale) {
            (target.op() == Reduce::avg ? steps.multiply : steps.divide) *= from.mesh().extent(axis);
        }
        if (change == AxisChange::fold) {
            steps.fold = true;
            steps.fold_op = source.op();
            steps.addends *= from.mesh().extent(axis);
            steps.resolved.push_back(static_cast<std::int8_t>(axis));
            gathers = gathers || target.is_replicate();
        }
        if (change == AxisChange::move && target.is_replicate() && source.is_shard()) gathers = true;
        bool const fills = change == AxisChange::fill || (change == AxisChange::fold && target.is_partial());
        // An alias costs nothing locally; in an exchange it is cheaper to bring the data to one rank only.
        if (fills || (change == AxisChange::alias && steps.kind == Kind::collective)) {
            steps.fill = true;
            steps.fill_op = target.op();
            if (steps.kind == Kind::collective) cut_filled_axis(needed, from, axis, false);
        }
    }
    if (steps.kind != Kind::collective) return steps;
    Stage const last{needed.distribution(), needed.owner()};
    if (!steps.fold) {
        steps.stages.push_back(last);
        return steps;
    }

    // Every axis along which the destination has copies can share the fold. It pays when there are more than two
    // addends (fewer bytes) or when the copies must be exchanged anyway (same bytes, no further phase).
    Refinement middle(last.holding, last.owner);
    bool spread = false;
    for (int axis = 0; axis < axes; ++axis) {
        AxisChange const change = axis_change(from.placement(axis), to.placement(axis));
        if (!to.placement(axis).is_replicate() || from.mesh().extent(axis) == 1) continue;
        bool const was_copied = change == AxisChange::move && from.placement(axis).is_replicate();
        if (was_copied && steps.addends <= 2) continue;
        middle.cut_evenly(axis);
        spread = true;
    }
    steps.stages.push_back({middle.distribution(), middle.owner()});
    if (spread) steps.stages.push_back(last);
    return steps;
}

/// Steps between meshes: fold on the source mesh, then one exchange. Always collective.
[[nodiscard]] inline Steps steps_across(DynamicDistribution const& from, DynamicDistribution const& to) {
    Steps steps;
    steps.kind = Kind::collective;
    steps.across = true;
    Refinement needed(to);
    for (int axis = 0; axis < to.mesh().axes(); ++axis) {
        if (!to.placement(axis).is_partial()) continue;
        steps.fill = true;
        steps.fill_op = to.placement(axis).op();
        // Data that one rank of the destination has stays with it; the others hold the identity.
        Index const root = from.mesh().rank_at(0);
        if (from.mesh().size() == 1 && to.contains(root)) {
            needed.own(axis, to.mesh().coordinates(root)[axis]);
        } else {
            cut_filled_axis(needed, from, axis, true);
        }
    }
    Stage const last{needed.distribution(), needed.owner(), Place::destination, plan_between};
    Refinement middle(from);
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        if (from.placement(axis).is_partial()) {
            steps.fold = true;
            steps.fold_op = from.placement(axis).op();
            steps.addends *= from.mesh().extent(axis);
            steps.resolved.push_back(static_cast<std::int8_t>(axis));
        }
    }
    if (steps.fold) {
        for (int axis = 0; axis < from.mesh().axes(); ++axis) {
            if (!from.placement(axis).is_shard()) middle.cut_evenly(axis);
        }
        steps.stages.push_back({middle.distribution(), middle.owner(), Place::workspace});
    }
    steps.stages.push_back(last);
    return steps;
}

}  // namespace reshard::inline v0::detail
