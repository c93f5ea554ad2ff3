// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/relay.hpp
/// \brief  What several ranks of one node need enters the node once and is passed on inside.
/// \depends held, nodes, transition_steps.
///
/// The replicas of a node share what they need: a layout `middle` cuts it along the destination's replica axes inside
/// nodes. The exchange to it brings every byte to one rank of the node; the exchange from it goes between ranks that
/// differ in those axes only, so inside nodes. What a rank held before is not sent to it again (detail/held.hpp).
#pragma once

#include <reshard/plan/detail/held.hpp>
#include <reshard/plan/detail/nodes.hpp>
#include <reshard/plan/detail/transition_steps.hpp>

namespace reshard::inline v0_1::detail {

struct Relay {
    bool found = false;
    NodeMesh nodes;       ///< the mesh of both layouts
    unsigned shared = 0;  ///< its axes along which the shares lie side by side
    Layout middle;
    Layout needed;
};

/// Whether anything can leave its node: along each dimension the source's cuts up to the last one between nodes must
/// be the destination's first cuts, or else a node needs what it does not have.
[[nodiscard]] inline bool leaves_nodes(DynamicDistribution const& from, DynamicDistribution const& needed,
                                       Indices const& blocks) {
    for (int dim = 0; dim < from.shape().rank(); ++dim) {
        AxisList const held = from.cuts(dim);
        AxisList const wanted = needed.cuts(dim);
        int count = held.size();
        while (count > 0 && blocks[held[count - 1]] == from.mesh().extent(held[count - 1])) --count;
        for (int i = 0; i < count; ++i) {
            if (i >= wanted.size() || held[i] != wanted[i]) return true;
            if (!(from.placement(held[i]) == needed.placement(held[i]))) return true;
        }
    }
    return false;
}

/// Cuts what the replicas of a node need along the axis `inner`, the part of `axis` inside nodes, so that their shares
/// come in like amounts from every node that has something:
/// - as the source cuts by this axis: then ranks at one place of their nodes exchange with each other only;
/// - else along a dimension that no axis between nodes cuts;
/// - else every node's part by itself, which makes the shares block-cyclic.
class ShareCut {
public:
    ShareCut(DynamicDistribution const& from, DynamicDistribution const& needed, Indices const& blocks)
        : from_(from), needed_(needed), blocks_(blocks) {}

    void cut(Refinement& middle, int axis, int inner) const {
        if (cut_like_source(middle, axis, inner)) return;
        Index const parts = blocks_[axis];
        auto const longest = [&, this](auto const& length) {  // the dimension, of those with a part for each
            int best = -1;
            for (int dim = 0; dim < from_.shape().rank(); ++dim) {
                if (!middle.open(dim) || length(dim) < parts) continue;
                if (best < 0 || length(dim) > length(best)) best = dim;
            }
            return best;
        };
        auto const cuts = [&, this](int dim) { return from_.cuts(dim).size(); };
        auto const piece = [&, this](int dim) { return smaller(level(dim, cuts(dim)), extent(dim)); };
        int const whole = longest([&, this](int dim) { return cut_between(dim, cuts(dim)) ? 0 : extent(dim); });
        if (whole >= 0) return middle.cut(inner, whole, {SplitKind::balanced, 0, {}});
        int const dim = longest(piece);
        if (dim < 0) return middle.cut(1U << inner);
        middle.cut(inner, dim, {SplitKind::cyclic, ceil_div(piece(dim), parts), {}});
    }

private:
    [[nodiscard]] bool cut_like_source(Refinement& middle, int axis, int inner) const {
        PlacementForm const& placement = from_.signature()[axis];
        if (!placement.is_shard() || !middle.open(placement.dim())) return false;
        SplitKind const kind = placement.split();
        if (!is_even(kind)) return false;
        int const dim = placement.dim();
        int count = 1;
        while (from_.cuts(dim)[count - 1] != axis) ++count;
        bool const deals = cut_between(dim, count);
        Index const block = deals ? level(dim, count) : 0;
        if (deals && block < 1) return false;
        middle.cut(inner, dim, {deals ? SplitKind::cyclic : kind, block, {}});
        return true;
    }
    /// Whether one of the source's first `count` cuts of a dimension goes between nodes.
    [[nodiscard]] bool cut_between(int dim, int count) const {
        for (int i = 0; i < count; ++i) {
            int const axis = from_.cuts(dim)[i];
            if (blocks_[axis] != from_.mesh().extent(axis)) return true;
        }
        return false;
    }
    /// The first part of a dimension after the source's first `count` cuts.
    [[nodiscard]] Index level(int dim, int count) const {
        Index span = from_.shape().extent(dim);
        for (int i = 0; i < count; ++i) {
            int const axis = from_.cuts(dim)[i];
            RuleRef const rule = from_.rule(axis);
            span = rule.kind == SplitKind::cyclic ? smaller(span, rule.block())
                                                  : part(rule, span, from_.mesh().extent(axis), 0).size();
        }
        return span;
    }
    [[nodiscard]] Index extent(int dim) const {
        return needed_.index_set(needed_.mesh().coordinates(needed_.mesh().rank_at(0)), dim).size();
    }

    DynamicDistribution const& from_;
    DynamicDistribution const& needed_;
    Indices const& blocks_;
};

/// The layouts of a relay to what `to` needs from others; none where no node has replicas. `from`: what the shares
/// come from, where it lies on the same mesh.
[[nodiscard]] inline Relay relay_of(DynamicDistribution const& to, Layout const& last, Indices const& blocks,
                                    DynamicDistribution const* from = nullptr) {
    Relay relay;
    auto const has_copies = [&](int axis) { return to.signature()[axis].is_replicate() && blocks[axis] > 1; };
    for (int axis = 0; axis < to.mesh().axes(); ++axis) relay.found = relay.found || has_copies(axis);
    if (!relay.found) return relay;
    relay.nodes = node_mesh(to.mesh(), blocks, has_copies);
    relay.needed = last;
    relay.needed.distribution = on_node_mesh(last.distribution, relay.nodes);
    for (auto& axis : relay.needed.owner.axes) axis = static_cast<std::int8_t>(relay.nodes.first[axis]);
    Refinement middle(relay.needed.distribution, nullptr, relay.needed.owner);
    relay.found = false;
    for (int axis = 0; axis < to.mesh().axes(); ++axis) {
        int const inner = relay.nodes.inner(axis);
        if (!has_copies(axis) || inner < 0) continue;
        if (from == nullptr) {
            middle.cut(1U << inner);
        } else {
            ShareCut(*from, last.distribution, blocks).cut(middle, axis, inner);
        }
        relay.shared |= 1U << inner;
        relay.found = true;
    }
    relay.middle = middle.layout();
    return relay;
}

/// What the rank had before the relays comes to its place at once, and is not sent to it again.
template <Exchange (*planner)(Steps const& steps, Step const& step, Index rank)>
[[nodiscard]] Exchange plan_to_relays(Steps const& steps, Step const& step, Index rank) {
    Exchange result = planner(steps, step, rank);
    keep_held(result.kept, steps, rank);
    return result;
}

template <Exchange (*planner)(Steps const& steps, Step const& step, Index rank)>
void add_relay(Outline& outline, Relay const& relay) {
    int const held = outline.at();
    outline.exchange(relay.middle, plan_to_relays<planner>);
    int const share = outline.at();
    outline.exchange(relay.needed, plan_among_relays);
    outline.steps().relays = {held, share, outline.at(), relay.shared};
}

/// Where a fold happens when its result is relayed: the shares of the relays, cut further along the other axes by
/// which the destination's copies came from addends or cuts. Copies in other nodes that the source has as well fold
/// for themselves: their shares would have to cross.
inline void relay_fold(Outline& outline, DynamicDistribution const& from, DynamicDistribution const& to,
                       Relay const& relay) {
    Refinement middle(relay.middle.distribution, nullptr, relay.middle.owner);
    unsigned cuts = 0;
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        int const outside = relay.nodes.outside(axis);
        bool const was_copied = from.signature()[axis].is_replicate();
        if (!to.signature()[axis].is_replicate() || was_copied || outside < 0) continue;
        cuts |= 1U << outside;
    }
    middle.cut(cuts);
    outline.fold(middle.layout());
    cuts != 0 ? add_relay<plan_within>(outline, relay) : outline.exchange(relay.needed, plan_within);
}

[[nodiscard]] inline Steps relay_within(PlanValue const& plan, Outline& outline) {
    DynamicMesh const& mesh = plan.from.mesh();
    if (is_one_node(mesh, plan.ranks_per_node)) return steps_within(plan);
    Indices const blocks = blocks_inside(mesh, plan.ranks_per_node);
    Relay relay;
    if (outline.folds() || leaves_nodes(plan.from, outline.needed().distribution, blocks)) {
        relay = relay_of(plan.to, outline.needed(), blocks, outline.folds() ? nullptr : &plan.from);
    }
    if (relay.found) {
        outline.folds() ? relay_fold(outline, plan.from, plan.to, relay) : add_relay<plan_within>(outline, relay);
    }
    Steps steps = relay.found ? outline.finish() : steps_within(plan);
    steps.relays.exact = relay.nodes.exact;
    DynamicMesh const& coarse = relay.found ? relay.nodes.mesh : mesh;
    NodeMesh const nodes = node_mesh(coarse, blocks_inside(coarse, plan.ranks_per_node), [](int) { return true; });
    steps.nodes = nodes.mesh;
    steps.inside = nodes.inside;
    return steps;
}

[[nodiscard]] inline Steps relay_across(PlanValue const& plan, Outline& outline) {
    Index const per_node = plan.ranks_per_node;
    bool const one_node = is_one_node(plan.from.mesh(), per_node) && is_one_node(plan.to.mesh(), per_node) &&
                          plan.from.mesh().rank_at(0) / per_node == plan.to.mesh().rank_at(0) / per_node;
    if (one_node && per_node != all_ranks) return steps_between(plan);
    Relay const relay = relay_of(plan.to, outline.needed(), blocks_inside(plan.to.mesh(), per_node));
    if (relay.found && outline.folds()) outline.fold(outline.share_of_source());
    if (relay.found) add_relay<plan_between>(outline, relay);
    Steps steps = relay.found ? outline.finish() : steps_between(plan);
    steps.relays.exact = relay.nodes.exact;
    return steps;
}

}  // namespace reshard::inline v0_1::detail
