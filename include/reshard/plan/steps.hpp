// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/steps.hpp
/// \brief  A plan as a list of steps, each from one place of a rank's memory to another.
/// \depends algebra, plan/message, plan/detail/grid; <vector>.
///
/// A step is one of fill, exchange, fold, scale, copy. Explanation, cost, scratch memory and the executor read the one
/// list; plan/detail/transition_steps.hpp and plan/relay.hpp write it.
///
/// transition    | steps
/// --------------|-----------------------------------------------------------------------------------------
/// view, copy    | fill?, copy source -> destination, scale?
/// R, S -> R, S  | exchange source -> destination: what is needed and not held
/// R, S -> P     | fill, exchange source -> destination: what only this rank's place needs
/// P -> S        | exchange source -> scratch: the addends of the rank's shard; fold scratch -> destination; both
///               | chunk by chunk (plan/fold_chunks.hpp)
/// P -> R        | the same of a share of it, and exchange destination -> destination: the folded shares; as a
///               | one-shot fold, the same of all of it. Where the cuts of source and destination differ, a share of
///               | what the source has may be less: fold scratch -> scratch, exchange scratch -> destination, which
///               | goes chunk by chunk as well
/// P(a) -> P(b)  | fill, and exchange and fold of a share
/// across meshes | the fold goes scratch -> scratch on the source's mesh, the exchange scratch -> destination
/// relayed       | the last exchange in two: source or destination -> destination, destination -> destination
///
/// Where values change on the way (a cast, a factor), the first step that brings values into the destination changes
/// them.
#pragma once

#include <reshard/algebra/transition.hpp>
#include <reshard/plan/detail/grid.hpp>
#include <reshard/plan/message.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace planning {

enum class Place : std::uint8_t { source, scratch, destination };

/// What ranks have at a place between two steps.
struct Layout {
    Place place = Place::destination;
    DynamicDistribution distribution;
    detail::Owner owner;  ///< along these axes one rank alone has the data: there was nothing to cut
    Index addends = 0;    ///< of every element, where they are not folded yet
    AxisList partial;     ///< the axes that hold one addend each; none: all addends are here, in slots

    Layout() = default;
    [[gnu::noinline]] Layout(Place where, DynamicDistribution const& held, detail::Owner const& alone = {})
        : place(where), distribution(held), owner(alone) {}
    friend bool operator==(Layout const&, Layout const&) = default;
};

enum class StepKind : std::uint8_t { fill, exchange, fold, scale, copy };

struct Steps;
struct Step {
    StepKind kind = StepKind::exchange;
    int from = 0;             ///< number of the layout read
    int to = 0;               ///< and of the one written
    Reduce op = Reduce::sum;  ///< fill, fold
    Index multiply = 1;       ///< scale: P+ -> Pavg
    Index divide = 1;         ///< scale: Pavg -> P+
    /// exchange: one rank's part of it, in any order. No communication: both sides derive the same list from rank
    /// numbers.
    Exchange (*planner)(Steps const& steps, Step const& step, Index rank) = nullptr;
    /// fold: elements of scratch memory that it takes on a rank. \pre the rank has addends.
    Index (*scratch)(Steps const& steps, Step const& step, Index rank) = nullptr;
};

/// What relays add. Layout numbers; -1: there are none.
struct Relays {
    int held = -1;        ///< what ranks had before
    int share = -1;       ///< replicas of one node have a share each
    int needed = -1;      ///< all have everything
    unsigned shared = 0;  ///< axes of `share` along which the shares lie side by side, all of one node
    bool exact = true;    ///< false: ranks of a node are not told apart along all axes, of which a mesh has at most 8
    /// What relaying comes to, in a line.
    std::string (*explain)(Steps const& steps, DynamicMesh const& mesh, Index ranks_per_node) = nullptr;
};

/// The places of a plan, and the steps between them.
struct Steps {
    TransitionKind kind = TransitionKind::view;
    bool converts = false;                 ///< values change on the way
    Index fold_elements = Index{1} << 17;  ///< addends that a rank folds at a time
    std::vector<Layout> layouts;           ///< first the source and the destination, as they are given
    InlineList<Step, 6> list;              ///< in the order in which they are taken
    Relays relays;
    DynamicMesh nodes;    ///< where copies serve their own node first: axes between and inside nodes told apart
    unsigned inside = 0;  ///< its axes inside nodes; 0: no matter who serves whom

    /// The number of exchanges, one after the other; 0 for views and copies.
    [[nodiscard]] int phases() const noexcept {
        int count = 0;
        for (Step const& step : list) count += step.kind == StepKind::exchange ? 1 : 0;
        return count;
    }
    /// Exchange `phase`. \pre 0 <= phase < phases().
    [[nodiscard]] Step const& exchange(int phase) const noexcept {
        auto step = list.begin();
        while (step->kind != StepKind::exchange || phase-- != 0) ++step;
        return *step;
    }
    /// The first step of a kind; null when there is none.
    [[nodiscard]] Step const* find(StepKind wanted) const noexcept {
        for (Step const& step : list)
            if (step.kind == wanted) return &step;
        return nullptr;
    }
    [[nodiscard]] Layout const& layout(int number) const noexcept { return layouts[detail::as_size(number)]; }
    [[nodiscard]] Layout const& from(Step const& step) const noexcept { return layout(step.from); }
    [[nodiscard]] Layout const& to(Step const& step) const noexcept { return layout(step.to); }
    /// The same plan with so many addends at a time; 0: as many as suit a host.
    [[nodiscard]] Steps folding(Index elements) && {
        if (elements > 0) fold_elements = elements;
        return std::move(*this);
    }
    /// Whether an exchange is carried out chunk by chunk with a fold (plan/fold_chunks.hpp): it brings addends
    /// together, or takes what they became from scratch memory.
    [[nodiscard]] bool in_chunks(Step const& exchange) const noexcept {
        return to(exchange).addends != 0 || from(exchange).place == Place::scratch;
    }
    /// Whether values that change do so in this step.
    [[nodiscard]] bool arrives(Step const& step) const noexcept {
        return from(step).place != Place::destination && to(step).place == Place::destination;
    }
    /// The same plan where values change: a fold leaves its result in scratch memory, from where the next exchange
    /// takes it, and the factor of a scale is part of the change.
    void convert() {
        converts = true;
        for (int i = 0; i + 1 < list.size(); ++i) {
            if (list[i].kind != StepKind::fold || list[i + 1].kind != StepKind::exchange) continue;
            layouts[detail::as_size(list[i].to)].place = Place::scratch;
        }
        if (!list.empty() && list.back().kind == StepKind::scale) list.pop_back();
    }
};

/// Whether a rank has a part in an exchange: a fold concerns the source's mesh alone.
[[nodiscard]] inline bool takes_part(Steps const& steps, Step const& exchange, Index rank) {
    return steps.to(exchange).addends == 0 || steps.from(exchange).distribution.contains(rank);
}
// Defined by plan/plan.ipp.
/// One rank's part of an exchange; nothing where it takes none.
[[nodiscard]] Exchange exchange_of(Steps const& steps, Step const& exchange, Index rank);
/// Elements of scratch memory: the addends of what the rank folds at a time, and the result where it waits or is
/// converted.
[[nodiscard]] Index scratch_elements(Steps const& steps, Index rank);

}  // namespace planning

namespace detail {

/// Throws DTypeError unless an element type has what a plan does to values, which become elements of another one.
/// `averages`: sums become averages, or the other way.
inline void check_ops(std::string_view who, planning::Steps const& steps, DType from, DType to, bool averages) {
    auto const require = [&](planning::StepKind kind, std::string_view lacks, DType given) {
        planning::Step const* const step = steps.find(kind);
        if (step != nullptr) check_op(who, step->op, lacks, given);
    };
    require(planning::StepKind::fold, " is not defined for ", from);
    require(planning::StepKind::fill, " has no identity for ", to);
    if (averages && !supports(Reduce::avg, from)) {
        raise(ErrorCode::dtype, "reshard::", who, ": an average of ", name(from),
              " would be rounded. Fix: keep integers as P+ until they are whole.");
    }
}
inline void check_ops(std::string_view who, planning::Steps const& steps, DType dtype) {
    check_ops(who, steps, dtype, dtype, steps.find(planning::StepKind::scale) != nullptr);
}

/// In place of ranks_per_node: every rank folds what it needs.
inline constexpr Index folds_one_shot = -1;

/// A plan of any type, as values: what planner, executor and texts work on. Who makes its steps is a pointer, so that
/// header-only programs compile no planner that they do not use.
struct PlanValue {
    DynamicDistribution const& from;
    DynamicDistribution const& to;
    planning::Steps (*steps)(PlanValue const& plan);
    bool across = false;
    TransitionKind kind = TransitionKind::collective;
    Index ranks_per_node = 0;  ///< of relays; or folds_one_shot
};
// Defined by plan/plan.ipp.
[[nodiscard]] planning::Steps steps_within(PlanValue const& plan);   ///< on one mesh
[[nodiscard]] planning::Steps steps_moving(PlanValue const& plan);   ///< the same, where nothing is Partial
[[nodiscard]] planning::Steps steps_locally(PlanValue const& plan);  ///< the same, where types know that nothing moves
[[nodiscard]] planning::Steps steps_between(PlanValue const& plan);  ///< between meshes
[[nodiscard]] Exchange plan_within(planning::Steps const& steps, planning::Step const& step, Index rank);
[[nodiscard]] Exchange plan_between(planning::Steps const& steps, planning::Step const& step, Index rank);
[[nodiscard]] Index fold_scratch(planning::Steps const& steps, planning::Step const& step, Index rank);

/// The two sides of an exchange, laid out for the planner. \pre the steps outlive it: cuts point at their rules.
struct Grids {
    Grid source;
    Grid target;

    Grids(planning::Steps const& steps, planning::Step const& step)
        : source(steps.from(step).distribution), target(steps.to(step).distribution) {
        planning::Layout const& before = steps.from(step);
        planning::Layout const& after = steps.to(step);
        bool const owned = !before.owner.axes.empty() || !after.owner.axes.empty();
        for (Grid* grid : {&source, &target}) {
            planning::Layout const& layout = grid == &source ? before : after;
            if (after.addends != 0) grid->add_dim(after.addends, layout.partial);
            if (owned) grid->add_owner(layout.owner);
        }
    }
};

}  // namespace detail

}  // namespace reshard::inline v0_1
