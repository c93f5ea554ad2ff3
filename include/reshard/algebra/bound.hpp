// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/bound.hpp
/// \brief  How few elements a rank can receive in a transition, whoever plans it. Over all ranks: total_bound.hpp.
/// \depends transition, segments. constexpr. Multiply by bytes(dtype) for bytes.
///
/// Model: unicast links, no reduction inside the network. T = elements of the local tensor before a fold (global
/// elements where one axis is all there is), n = ranks along the axes that change, t_r = what rank r needs.
///
/// from -> to         | received, most by one rank | sent, most by one rank | total
/// -------------------|----------------------------|------------------------|------------------
/// nothing to move    | 0                          | 0                      | 0
/// R, S -> R, S       | max |need minus have|      | what only it has, shared among copies | sum |need minus have|
/// P -> S             | (n-1) T / n                | (n-1) T / n            | (n-1) T
/// P -> R             | 2 (n-1) T / n              | 2 (n-1) T / n          | 2 (n-1) T
/// P(a) -> P(b)       | (n-1) T / n                | (n-1) T / n            | (n-1) T
/// P -> one rank      | T                          | T                      | (n-1) T
/// one rank -> P      | 0                          | 0                      | 0
///
/// Sources: Patarasuk and Yuan, JPDC 2009 (all-reduce); the R, S rows are set differences. For other combinations of
/// Partial axes, and where an axis stays Partial (to fold its addends on the way can be cheaper), none is claimed.
#pragma once

#include <reshard/algebra/segments.hpp>
#include <reshard/algebra/transition.hpp>

namespace reshard::inline v0_1 {

struct Bound {
    bool known = false;
    Index elements = 0;
    bool busiest = false;  ///< holds for the busiest rank of a group: the shares of the others may be smaller
    friend constexpr bool operator==(Bound const&, Bound const&) = default;
};

namespace detail {

/// How the axes of a transition on one mesh behave as a whole.
enum class FoldForm : std::uint8_t {
    none,       ///< no Partial is resolved or filled: sets of elements move
    to_shard,   ///< P -> S on all axes that change
    to_copies,  ///< P -> R on all axes that change
    to_owed,    ///< P(a) -> P(b) on all axes that change
    mixed       ///< no bound is known
};

struct FoldShape {
    FoldForm form = FoldForm::none;
    Index ranks = 1;  ///< n
};

[[nodiscard]] constexpr FoldShape fold_shape(DynamicDistribution const& from, DynamicDistribution const& to) noexcept {
    FoldShape result;
    bool moves = false;
    bool fills = false;
    bool copies = false;  // along an axis that stays Replicate: they can share a fold, so the rows below do not hold
    bool stays = false;  // an axis is Partial on both sides: its addends may be folded on the way, which can be cheaper
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        PlacementForm const& target = to.signature()[axis];
        AxisChange const change = axis_change(from.signature()[axis], target);
        if (change == AxisChange::move && target.is_replicate() && from.mesh().extent(axis) > 1) copies = true;
        if (change == AxisChange::fill || change == AxisChange::alias) fills = true;
        bool const keeps = change == AxisChange::keep || change == AxisChange::scale;
        if (keeps && from.mesh().extent(axis) > 1) stays = true;
        if (change == AxisChange::move && !(from.placement(axis) == to.placement(axis))) moves = true;
        if (change != AxisChange::fold) continue;
        FoldForm const form = target.is_shard()       ? FoldForm::to_shard
                              : target.is_replicate() ? FoldForm::to_copies
                                                      : FoldForm::to_owed;
        result.form = result.form == FoldForm::none || result.form == form ? form : FoldForm::mixed;
        result.ranks *= from.mesh().extent(axis);
    }
    // The axes that stay must cut as before: their cuts stand in front of the new ones.
    for (int dim = 0; dim < from.shape().rank(); ++dim) {
        AxisList const held = from.cuts(dim);
        AxisList const needed = to.cuts(dim);
        for (int i = 0; i < held.size(); ++i) moves = moves || i >= needed.size() || held[i] != needed[i];
    }
    bool const folds = result.form != FoldForm::none;
    if (fills || stays || (folds && (moves || copies))) result.form = FoldForm::mixed;
    return result;
}

/// Elements of `to` that a rank needs and does not hold under `from`.
[[nodiscard]] constexpr Index missing(DynamicDistribution const& from, DynamicDistribution const& to, Index rank) {
    if (!to.contains(rank)) return 0;
    Indices const target = to.mesh().coordinates(rank);
    Index need = 1;
    Index have = from.contains(rank) ? 1 : 0;
    for (int dim = 0; dim < to.shape().rank(); ++dim) {
        IndexSet const want = to.index_set(target, dim);
        need *= want.size();
        if (have == 0) continue;
        have *= shared_size(want, from.index_set(from.mesh().coordinates(rank), dim));
    }
    return need - have;
}

/// Whether one side is a single rank of the other.
[[nodiscard]] constexpr bool one_rank_of(DynamicMesh const& one, DynamicMesh const& many) noexcept {
    return one.size() == 1 && many.contains(one.rank_at(0));
}

/// total += count * elements. Throws ShapeError when that does not fit.
constexpr void add_to_bound(Index& total, Index elements, Index count = 1) {
    if (add_fits(total, elements, count)) return;
    raise(ErrorCode::shape,
          "reshard::bound: the bound is more elements than 64 bits count. Fix: ask for a smaller tensor and scale.");
}
/// ceil(factor * (ranks - 1) * elements / ranks)
[[nodiscard]] constexpr Index shared(Index factor, Index ranks, Index elements) {
    Index result = 0;
    add_to_bound(result, elements / ranks, factor * (ranks - 1));
    add_to_bound(result, ceil_div(factor * (ranks - 1) * (elements % ranks), ranks));
    return result;
}

}  // namespace detail

/// The fewest elements `rank` can receive. Closed form; cost independent of the number of ranks.
/// P -> S counts the addends of what the rank needs, each sent once; P -> R and P(a) -> P(b) an even share of the
/// group's work (`busiest`). With `across`, the two sides are placed on meshes of their own (plan_across).
[[nodiscard]] constexpr Bound receive_bound(DynamicDistribution const& from, DynamicDistribution const& to, Index rank,
                                            bool across = false) {
    if (across) {
        bool owes = false;
        for (int axis = 0; axis < from.mesh().axes(); ++axis) {
            owes = owes || (from.signature()[axis].is_partial() && from.mesh().extent(axis) > 1);
        }
        if (to.signature().axes_of(PlacementKind::partial) != 0) {
            bool keeps = !owes && detail::one_rank_of(from.mesh(), to.mesh());  // where no copies or parts go elsewhere
            for (int axis = 0; axis < to.mesh().axes(); ++axis)
                keeps = keeps && (to.signature()[axis].is_partial() || to.mesh().extent(axis) == 1);
            return {keeps, 0};
        }
        if (owes && detail::one_rank_of(to.mesh(), from.mesh()) && to.contains(rank)) {
            return {true, to.shape().size()};
        }
        // A partial source needs at least one foreign addend for every element; where it is folded is not fixed.
        if (owes && from.contains(rank)) return {};
        if (owes) return {true, to.contains(rank) ? to.local_shape(rank).size() : 0};
        return {true, detail::missing(from, to, rank)};
    }
    if (!from.contains(rank)) return {true, 0};
    if (kind_of(from, to) != TransitionKind::collective) return {true, 0};
    detail::FoldShape const fold = detail::fold_shape(from, to);
    Index const local = from.local_shape(rank).size();
    switch (fold.form) {
        case detail::FoldForm::none: return {true, detail::missing(from, to, rank)};
        case detail::FoldForm::to_shard: {
            Bound bound{true, 0};
            detail::add_to_bound(bound.elements, to.local_shape(rank).size(), fold.ranks - 1);
            return bound;
        }
        case detail::FoldForm::to_copies: return {true, detail::shared(2, fold.ranks, local), true};
        case detail::FoldForm::to_owed: return {true, detail::shared(1, fold.ranks, local), true};
        case detail::FoldForm::mixed: break;
    }
    return {};
}

}  // namespace reshard::inline v0_1
