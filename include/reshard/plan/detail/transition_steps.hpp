// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/transition_steps.hpp
/// \brief  Which steps a transition takes: what is filled, exchanged and folded where.
/// \depends plan/detail/refinement.
///
/// With Partial:
/// - a resolved axis is folded first and spread last: the layout of the fold refines the last, so that every element is
///   folded on one rank (reduce-scatter), inside the destination's own memory, and then spread (all-gather); or it
///   refines the source's, in scratch memory, where that moves less;
/// - an axis that becomes Partial needs its data only once: the last layout cuts the destination along it, and the rest
///   of the destination is filled with the identity. Where the source cut a dimension before, and the destination does
///   not, that cut may be of each of its pieces (refinement.hpp): ranks keep what they have of all of them;
/// - across meshes the fold happens on the source mesh, where it is smallest;
/// - an axis that stays Partial is left alone, also where folding it would move less: its addends are the caller's.
///
/// Addends are folded in mesh order: by coordinate along the partial axes, row-major.
#pragma once

#include <reshard/plan/detail/refinement.hpp>

namespace reshard::inline v0_1::detail {

using planning::Layout;
using planning::Place;
using planning::Step;
using planning::StepKind;
using planning::Steps;

/// A plan's two sides, before there are any steps between them.
[[nodiscard]] inline Steps no_steps(PlanValue const& plan, TransitionKind kind) {
    Steps steps;
    steps.kind = kind;
    steps.layouts.reserve(3);  // unless something is folded or relayed
    steps.layouts.emplace_back(Place::source, plan.from);
    steps.layouts.emplace_back(Place::destination, plan.to);
    return steps;
}

/// What a transition asks for, before it is said how it travels; and the steps, as they are added.
class Outline {
public:
    Outline(PlanValue const& plan, TransitionKind kind) : plan_(plan), steps_(no_steps(plan, kind)) {
        Refinement needed(plan.to, plan.across ? nullptr : &plan.from);
        unsigned const filled = plan.across ? fill_across(needed) : change_axes();
        if (!is_collective()) return;
        Refinement pieces = needed;
        pieces.cut(filled, spread_ | copies_, counts());
        needed_ = pieces.layout();
        if (!lies_apart(needed_.distribution, plan.to)) return;
        HeldModel const model(plan.from.mesh());  // nothing holds more than all that was had
        if (model.held(plan.from, needed_.distribution).all == model.ranks() * model.size(plan.from)) return;
        Index const in_pieces = received();
        needed.cut(filled, spread_ | copies_);
        needed_ = needed.layout();
        // A fold in pieces takes a further phase; what only moves in pieces moves more evenly.
        if (received() >= in_pieces + (folds() ? 1 : 0)) needed_ = pieces.layout();
    }
    explicit Outline(PlanValue const& plan)
        : Outline(plan, plan.across ? TransitionKind::collective : kind_of(plan.from, plan.to)) {}

    [[nodiscard]] bool is_collective() const noexcept { return steps_.kind == TransitionKind::collective; }
    [[nodiscard]] bool folds() const noexcept { return addends_ != 0; }
    /// Where addends are folded: a share of what the destination needs, in its memory, or in scratch memory one of what
    /// the source has, where that moves less.
    [[nodiscard]] Layout share() const {
        // Every axis along which the destination has copies can have a share. It pays when more than one addend comes
        // from elsewhere (fewer bytes) or when the copies must be exchanged anyway (same bytes, no further phase).
        Refinement result(needed_.distribution, &plan_.from, needed_.owner);
        result.cut(spread_);
        if (addends_ != 2 || !result.holds_all()) result.cut(copies_);
        if (!counts() || result.holds_all()) return result.layout();
        Layout const at_source = share_of_source();
        return received(at_source) < received(result.layout()) ? at_source : result.layout();
    }
    [[nodiscard]] Layout share_of_source() const {
        Refinement result(plan_.from, plan_.across ? nullptr : &needed_.distribution);
        unsigned axes = plan_.from.signature().axes_of(PlacementKind::replicate);
        for (int axis : resolved_) axes |= 1U << axis;
        result.cut(axes);
        return result.layout(Place::scratch);
    }
    [[nodiscard]] Layout const& needed() const noexcept { return needed_; }  ///< what the destination gets from others
    [[nodiscard]] Steps& steps() noexcept { return steps_; }
    [[nodiscard]] int at() const noexcept { return at_; }  ///< the layout that was written last
    /// Whether the destination has what it gets.
    [[nodiscard]] bool arrived() const { return steps_.layouts[as_size(at_)] == needed_; }

    /// Brings the addends of `layout` together and folds them; the result is at layout.place.
    void fold(Layout layout) {
        // A fold writes one box; the exchange behind it, any.
        if (lies_apart(layout.distribution, plan_.to)) layout.place = Place::scratch;
        exchange(layout, plan_within);
        Layout& slots = steps_.layouts.back();
        slots.place = Place::scratch;
        slots.addends = steps_.layouts.front().addends = addends_;
        steps_.layouts.front().partial = resolved_;
        int const from = at_;
        at_ = add(layout);
        steps_.list.push_back({StepKind::fold, from, at_, fold_op_, 1, 1, nullptr, fold_scratch});
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
    /// Whether it is known which way moves less, and there is a choice.
    [[nodiscard]] bool counts() const {
        bool const one_shot = folds() && plan_.ranks_per_node == folds_one_shot;
        return !one_shot && cuts_evenly(plan_.from) && cuts_evenly(plan_.to);
    }
    /// Elements that all ranks receive, in a model.
    [[nodiscard]] Index received() const { return received(folds() ? share() : needed_); }
    /// The same when they fold in `share`.
    [[nodiscard]] Index received(Layout const& share) const {
        HeldModel const model(plan_.from.mesh());
        Index const each = model.parts(resolved_) * model.size(share.distribution) + model.size(needed_.distribution);
        return model.ranks() * each - model.held(plan_.from, share.distribution).all -
               model.held(share.distribution, needed_.distribution).all;
    }
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
    unsigned change_axes() {
        unsigned filled = 0;
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
            if (is_collective()) filled |= 1U << axis;
        }
        for (int axis = 0; axis < plan_.from.mesh().axes() && plan_.ranks_per_node != folds_one_shot; ++axis) {
            if (!plan_.to.signature()[axis].is_replicate() || plan_.from.mesh().extent(axis) == 1) continue;
            bool const copied = plan_.from.signature()[axis].is_replicate();
            if (addends_ > (copied ? 1 : 0)) (copied ? copies_ : spread_) |= 1U << axis;
        }
        return filled;
    }
    unsigned fill_across(Refinement& needed) {
        DynamicDistribution const& from = plan_.from;
        DynamicDistribution const& to = plan_.to;
        for (int axis = 0; axis < from.mesh().axes(); ++axis)
            if (from.signature()[axis].is_partial()) resolve(axis);
        unsigned filled = 0;
        for (int axis = 0; axis < to.mesh().axes(); ++axis) {
            if (!to.signature()[axis].is_partial()) continue;
            fill(to.signature()[axis].op());
            // Data that one rank of the destination has stays with it; the others hold the identity.
            Index const root = from.mesh().rank_at(0);
            if (from.mesh().size() == 1 && to.contains(root)) {
                needed.own(axis, to.mesh().coordinates(root)[axis]);
            } else {
                filled |= 1U << axis;
            }
        }
        return filled;
    }

    PlanValue const& plan_;
    Steps steps_;
    Layout needed_;
    int at_ = 0;
    Reduce fold_op_ = Reduce::sum;
    Index addends_ = 0;  ///< per element; 0: nothing is folded
    AxisList resolved_;
    unsigned spread_ = 0;  ///< axes along which the destination has copies that the source has not
    unsigned copies_ = 0;  ///< and those along which both have
    Index multiply_ = 1;
    Index divide_ = 1;
};

}  // namespace reshard::inline v0_1::detail
