// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/transition_steps.hpp
/// \brief  Which steps a transition takes: what is filled, exchanged and folded where.
/// \depends plan/steps.
///
/// With Partial:
/// - a resolved axis is folded first and spread last: the layout of the fold refines the last, so that every element is
///   folded on one rank (reduce-scatter), inside the destination's own memory, and then spread (all-gather);
/// - an axis that becomes Partial needs its data only once: the last layout cuts the destination along it, and the rest
///   of the destination is filled with the identity;
/// - across meshes the fold happens on the source mesh, where it is smallest.
///
/// Addends are folded in mesh order: by coordinate along the partial axes, row-major.
#pragma once

#include <reshard/plan/steps.hpp>

namespace reshard::inline v0::detail {

using planning::Layout;
using planning::Place;
using planning::Step;
using planning::StepKind;
using planning::Steps;

/// Grows a distribution by one cut at a time, each behind the cuts already there.
class Refinement {
public:
    /// `have`: what ranks of the same mesh hold already; null: elsewhere.
    explicit Refinement(DynamicDistribution const& base, DynamicDistribution const* have = nullptr,
                        Owner const& owner = {})
        : base_(base), have_(have), result_(base), owner_(owner) {}

    /// Lets one coordinate along `axis` have everything.
    void own(int axis, Index coordinate) {
        set(axis, Placement::replicate());
        owner_.axes.push_back(static_cast<std::int8_t>(axis));
        owner_.coordinates.push_back(static_cast<std::int32_t>(coordinate));
    }
    void cut(int axis, int dim, SplitRule const& rule) { set(axis, Placement::shard(dim, rule)); }
    /// Cuts the dimension along which ranks hold most of what they get, the longest of those; when none is left to cut,
    /// coordinate 0 owns everything.
    void cut(int axis) {
        int const dim = best_dim(axis);
        dim < 0 ? own(axis, 0) : cut(axis, dim, {kind(axis, dim), 0, {}});
    }
    /// Whether ranks hold all that they get.
    [[nodiscard]] bool holds_all() const { return held(-1, -1) == Held{}; }
    /// Whether a cut behind the others is possible: one that interleaves is always the last.
    [[nodiscard]] bool open(int dim) const noexcept {
        AxisList const cuts = result_.cuts(dim);
        return cuts.empty() || !interleaves(result_.signature()[cuts.back()].split());
    }

    [[nodiscard]] Layout layout(Place place = Place::destination) const { return {place, result_, owner_}; }

private:
    /// \pre the axis cuts nothing yet.
    void set(int axis, Placement const& placement) {
        Placements placements = result_.placements();
        AxisList order = result_.signature().order();
        placements[axis] = placement;
        if (placement.is_shard()) order.push_back(static_cast<std::int8_t>(axis));
        result_ = DynamicDistribution(base_.mesh(), base_.shape(), placements, order);
    }
    /// As the source cuts the dimension along this axis, where that is into even parts.
    [[nodiscard]] SplitKind kind(int axis, int dim) const noexcept {
        if (have_ == nullptr) return SplitKind::balanced;
        PlacementForm const& source = have_->signature()[axis];
        bool const chunk = source.is_shard() && source.dim() == dim && source.split() == SplitKind::chunk;
        return chunk ? SplitKind::chunk : SplitKind::balanced;
    }

    /// Cuts into more than one part.
    [[nodiscard]] static AxisList real_cuts(DynamicDistribution const& distribution, int dim) noexcept {
        AxisList cuts;
        for (int axis : distribution.cuts(dim))
            if (distribution.mesh().extent(axis) > 1) cuts.push_back(static_cast<std::int8_t>(axis));
        return cuts;
    }
    /// Of what ranks get, they hold one in so many elements, as far as cuts can tell; some hold nothing where a
    /// dimension is cut on both sides and not alike.
    struct Held {
        Index one_in = 1;
        bool everywhere = true;
        friend bool operator==(Held const&, Held const&) = default;
    };
    /// When `dim` is cut along `axis`; -1, -1: by the cuts that are there.
    [[nodiscard]] Held held(int axis, int dim) const {
        Held result;
        for (int d = 0; have_ != nullptr && d < base_.shape().rank(); ++d) {
            AxisList const given = real_cuts(*have_, d);
            AxisList wanted = real_cuts(result_, d);
            if (d == dim) wanted.push_back(static_cast<std::int8_t>(axis));
            int same = 0;
            while (same < given.size() && same < wanted.size() && given[same] == wanted[same] &&
                   cuts_alike(given[same], d, axis)) {
                ++same;
            }
            if (same < given.size() && same < wanted.size()) result.everywhere = false;
            for (int i = same; i < given.size(); ++i) result.one_in *= base_.mesh().extent(given[i]);
        }
        return result;
    }
    /// Whether both sides cut dimension `dim` alike along `axis`, which is `added` or has a cut already.
    [[nodiscard]] bool cuts_alike(int axis, int dim, int added) const noexcept {
        if (axis == added) return have_->signature()[axis].split() == kind(axis, dim);
        return have_->placement(axis) == result_.placement(axis);
    }
    /// The dimension to cut along `axis`, of those of the first rank's box that are longer than 1; -1: there is none.
    [[nodiscard]] int best_dim(int axis) const {
        int best = -1;
        Held most;
        Index longest = 0;
        Indices const first = base_.mesh().coordinates(base_.mesh().rank_at(0));
        for (int dim = 0; dim < base_.shape().rank(); ++dim) {
            Index const extent = result_.index_set(first, dim).size();
            if (!open(dim) || extent <= 1) continue;
            Held const found = held(axis, dim);
            bool const more = found.one_in != most.one_in           ? found.one_in < most.one_in
                              : found.everywhere != most.everywhere ? found.everywhere
                                                                    : extent > longest;
            if (best >= 0 && !more) continue;
            best = dim;
            most = found;
            longest = extent;
        }
        return best;
    }

    DynamicDistribution const& base_;
    DynamicDistribution const* have_;
    DynamicDistribution result_;
    Owner owner_;
};

/// What a transition asks for, before it is said how it travels; and the steps, as they are added.
class Outline {
public:
    Outline(PlanValue const& plan, Kind kind) : plan_(plan) {
        steps_.kind = kind;
        steps_.layouts.reserve(3);  // unless something is folded or relayed
        steps_.layouts.emplace_back(Place::source, plan.from);
        steps_.layouts.emplace_back(Place::destination, plan.to);
        Refinement needed(plan.to, plan.across ? nullptr : &plan.from);
        plan.across ? fill_across(needed) : change_axes(needed);
        if (is_collective()) needed_ = needed.layout();
    }
    explicit Outline(PlanValue const& plan)
        : Outline(plan, plan.across ? Kind::collective : kind_of(plan.from, plan.to)) {}

    [[nodiscard]] bool is_collective() const noexcept { return steps_.kind == Kind::collective; }
    [[nodiscard]] bool folds() const noexcept { return addends_ != 0; }
    [[nodiscard]] Index addends() const noexcept { return addends_; }
    [[nodiscard]] Layout const& needed() const noexcept { return needed_; }  ///< what the destination gets from others
    [[nodiscard]] Steps& steps() noexcept { return steps_; }
    [[nodiscard]] int at() const noexcept { return at_; }  ///< the layout that was written last

    /// Brings the addends of `layout` together and folds them; the result is at layout.place.
    void fold(Layout const& layout) {
        exchange(layout, plan_within);
        Layout& slots = steps_.layouts.back();
        slots.place = Place::scratch;
        slots.addends = steps_.layouts.front().addends = addends_;
        steps_.layouts.front().partial = resolved_;
        int const from = at_;
        at_ = add(layout);
        steps_.list.push_back({StepKind::fold, from, at_, fold_op_});
    }
    void exchange(Layout const& layout, decltype(Step::planner) planner) {
        int const from = at_;
        at_ = add(layout);
        steps_.list.push_back({StepKind::exchange, from, at_, {}, 1, 1, planner});
    }
    [[nodiscard]] Steps finish() {
        if (!is_collective()) steps_.list.push_back({StepKind::copy, 0, 1});
        if (multiply_ != 1 || divide_ != 1) steps_.list.push_back({StepKind::scale, 1, 1, {}, multiply_, divide_});
        return std::move(steps_);
    }

private:
    int add(Layout const& layout) {
        steps_.layouts.push_back(layout);
        return static_cast<int>(steps_.layouts.size()) - 1;
    }
    void resolve(int axis) {
        Index const parts = plan_.from.mesh().extent(axis);
        fold_op_ = plan_.from.signature()[axis].op();
        addends_ = addends_ == 0 ? parts : addends_ * parts;
        resolved_.push_back(static_cast<std::int8_t>(axis));
    }
    /// The destination starts out as the identity of its op.
    void fill(Reduce op) {
        if (steps_.find(StepKind::fill) == nullptr) steps_.list.push_back({StepKind::fill, 1, 1, op});
    }
    void change_axes(Refinement& needed) {
        for (int axis = 0; axis < plan_.from.mesh().axes(); ++axis) {
            PlacementForm const& source = plan_.from.signature()[axis];
            PlacementForm const& target = plan_.to.signature()[axis];
            AxisChange const change = axis_change(source, target);
            if (change == AxisChange::scale) {
                (target.op() == Reduce::avg ? multiply_ : divide_) *= plan_.from.mesh().extent(axis);
            }
            if (change == AxisChange::fold) resolve(axis);
            bool const fills = change == AxisChange::fill || (change == AxisChange::fold && target.is_partial());
            // An alias costs nothing locally; in an exchange it is cheaper to bring the data to one rank only, where
            // the others have an identity to hold.
            bool const aliases = !is_collective() || !has_identity(target.op());
            if (!fills && (change != AxisChange::alias || aliases)) continue;
            fill(target.op());
            if (is_collective()) needed.cut(axis);
        }
    }
    void fill_across(Refinement& needed) {
        DynamicDistribution const& from = plan_.from;
        DynamicDistribution const& to = plan_.to;
        for (int axis = 0; axis < from.mesh().axes(); ++axis)
            if (from.signature()[axis].is_partial()) resolve(axis);
        for (int axis = 0; axis < to.mesh().axes(); ++axis) {
            if (!to.signature()[axis].is_partial()) continue;
            fill(to.signature()[axis].op());
            // Data that one rank of the destination has stays with it; the others hold the identity.
            Index const root = from.mesh().rank_at(0);
            if (from.mesh().size() == 1 && to.contains(root)) {
                needed.own(axis, to.mesh().coordinates(root)[axis]);
            } else {
                needed.cut(axis);
            }
        }
    }

    PlanValue const& plan_;
    Steps steps_;
    Layout needed_;
    int at_ = 0;
    Reduce fold_op_ = Reduce::sum;
    Index addends_ = 0;  ///< per element; 0: nothing is folded
    AxisList resolved_;
    Index multiply_ = 1;
    Index divide_ = 1;
};

/// The fold of a plan between meshes, on the source's.
inline void fold_at_source(Outline& outline, DynamicDistribution const& from) {
    if (!outline.folds()) return;
    Refinement middle(from);
    for (int axis = 0; axis < from.mesh().axes(); ++axis)
        if (!from.signature()[axis].is_shard()) middle.cut(axis);
    outline.fold(middle.layout(Place::scratch));
}

}  // namespace reshard::inline v0::detail
