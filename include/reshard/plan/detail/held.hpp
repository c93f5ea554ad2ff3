// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/held.hpp
/// \brief  The exchange among relays: everybody passes on its share, but to nobody what it held before.
/// \depends intersections, plan/steps.
///
/// What a rank holds is a product of index sets, one per dimension. A product minus a product is a product per
/// dimension: inside along the dimensions before it, outside along it, everything along those behind. Both sides
/// derive the same messages from it.
#pragma once

#include <reshard/plan/detail/intersections.hpp>
#include <reshard/plan/steps.hpp>

namespace reshard::inline v0_1::detail {

/// What a rank has, or needs, of a layout; false when that is nothing.
[[nodiscard]] inline bool sets_of(planning::Layout const& layout, Index rank, IndexSets& sets) {
    DynamicDistribution const& holding = layout.distribution;
    if (!holding.contains(rank)) return false;
    Indices const coordinates = holding.mesh().coordinates(rank);
    if (!layout.owner.is_at(coordinates)) return false;
    sets = index_sets(holding, coordinates);
    return !holds_nothing(sets);
}

/// Calls `visit(set)` for index sets that together are [0, extent) without `set`.
inline void for_each_outside(IndexSet const& set, Index extent, FunctionRef<void(IndexSet const&)> visit) {
    if (set.span().begin > 0) visit(IndexSet(Interval{0, set.span().begin}));
    if (!set.is_interval()) {
        for (IndexSet const& other : {set.before_each(), set.behind_each()})
            if (other.segments() != 0) visit(other);
    }
    if (set.span().end < extent) visit(IndexSet(Interval{set.span().end, extent}));
}

/// Calls `visit` with messages that together are `sets` without `others`.
inline void for_each_outside(DynamicShape const& shape, IndexSets const& sets, IndexSets const& others,
                             FunctionRef<void(Message const&)> visit) {
    DimForms const forms = forms_of(sets, others);
    IndexSets query;
    for (Index extent : shape.extents()) query.push_back(IndexSet(Interval{0, extent}));
    for (int dim = 0; dim < sets.size(); ++dim) {
        for_each_outside(others[dim], shape.extent(dim), [&](IndexSet const& rest) {
            query[dim] = rest;
            for_each_common(sets, query, forms, visit);
        });
        query[dim] = others[dim];
    }
}

/// Calls `visit(message)` for what a relay passes on: of the share of `giver` what `taker` did not hold before.
inline void for_each_passed(planning::Steps const& steps, Index giver, Index taker,
                            FunctionRef<void(Message const&)> visit) {
    planning::Layout const& needed = steps.layout(steps.relays.needed);
    IndexSets shared;
    IndexSets wanted;
    IndexSets known;
    if (!sets_of(steps.layout(steps.relays.share), giver, shared) || !sets_of(needed, taker, wanted)) return;
    if (sets_of(steps.layout(steps.relays.held), taker, known) && common_size(shared, known) != 0) {
        for_each_outside(needed.distribution.shape(), shared, known, visit);
    } else {
        for_each_common(shared, shared, forms_of(shared, shared), visit);
    }
}

/// One rank's part of the exchange among relays.
[[nodiscard]] inline Exchange plan_among_relays(planning::Steps const& steps, planning::Step const& step, Index rank) {
    Exchange exchange;
    DynamicMesh const& mesh = steps.from(step).distribution.mesh();
    AxisSubset const axes(mesh, steps.relays.shared);
    Index const own = mesh.ordinal(rank);
    if (own < 0) return exchange;
    Index const base = own - axes.ordinal(axes.index(own));
    for (Index i = 0; i < axes.size(); ++i) {
        Index const peer = mesh.rank_at(base + axes.ordinal(i));
        if (peer == rank) continue;
        auto const add = [&](auto& messages) {
            return [&](Message const& message) { add_message(messages, peer, message); };
        };
        for_each_passed(steps, rank, peer, add(exchange.sends));
        for_each_passed(steps, peer, rank, add(exchange.receives));
    }
    return exchange;
}

/// Everything that a rank needs and held before the relays.
inline void keep_held(std::vector<Message>& kept, planning::Steps const& steps, Index rank) {
    kept.clear();
    IndexSets wanted;
    IndexSets known;
    if (!sets_of(steps.layout(steps.relays.needed), rank, wanted)) return;
    if (!sets_of(steps.layout(steps.relays.held), rank, known)) return;
    for_each_common(wanted, known, forms_of(wanted, known),
                    [&](Message const& message) { add_message(kept, rank, message); });
}

}  // namespace reshard::inline v0_1::detail
