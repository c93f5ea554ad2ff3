// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/plan.hpp
/// \brief  What a transition does, for any rank: a trivially copyable value that is compared, hashed and replayed.
/// \depends algebra, plan/{message,steps}, core/tensor_view.
///
/// Laws (the property tests of tests/plan and tests/exec):
///     law.identity   plan(a, a) is a view (as a run-time plan: types do not know the numbers of boundaries and blocks)
///     law.meaning    carrying out plan(a, b) leaves the tensor's global value unchanged
///     law.bound      without Partial, a rank receives exactly what it needs and does not hold
///     law.balance    no rank sends more than twice the min-max optimum over copies
///     law.adjoint    plan(a, b).adjoint() is the transposed linear map
///     law.chain      no chain of two plans moves fewer bytes: of two axes of two, and nearly all of larger meshes
///     law.then       plan(a, b).then(plan(b, c)) leaves the value that the two leave, one after the other
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/algebra/transition.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/plan/message.hpp>
#include <reshard/plan/steps.hpp>

namespace reshard::inline v0_1 {

template <class From = DynamicDistribution, class To = From>
class Plan;

namespace detail {

[[noreturn]] void raise_not_a_view(TransitionKind kind, DynamicDistribution const& from, DynamicDistribution const& to);
[[noreturn]] void raise_view_shape(DynamicShape const& given, DynamicShape const& wanted, Index rank);

/// Where, in local indices, `want` lies within `have`; {0, 0} when it is nothing. \pre want is one interval of have.
[[nodiscard]] constexpr Interval local_interval(IndexSet const& have, IndexSet const& want) noexcept {
    if (want.segments() == 0) return {0, 0};
    Index const begin = have.local_index(want.segment(0).begin);
    return {begin, begin + want.size()};
}

template <class View>
[[nodiscard]] constexpr View view_of(DynamicDistribution const& from, DynamicDistribution const& to, View const& full,
                                     Index rank) {
    Indices const coordinates = from.mesh().coordinates(rank);
    if (full.rank() != from.shape().rank()) raise_view_shape(full.shape(), from.local_shape(rank), rank);
    bool fits = true;
    auto const part = [&](int dim) -> Interval {
        int cyclic = -1;
        Interval have = from.interval(coordinates, dim, cyclic);
        Interval want = to.interval(coordinates, dim, cyclic);
        if (cyclic >= 0) [[unlikely]] {
            IndexSet const held = from.index_set(coordinates, dim);
            have = {0, held.size()};
            want = local_interval(held, to.index_set(coordinates, dim));
        }
        fits = fits && full.extent(dim) == have.size();
        return fits && !want.empty() ? Interval{want.begin - have.begin, want.end - have.begin} : Interval{0, 0};
    };
    if constexpr (requires { full.dtype(); }) check_byte_sized("Plan::view", full.dtype());
    View const window = full.window(part);
    if (!fits) raise_view_shape(full.shape(), from.local_shape(rank), rank);
    return window;
}

[[nodiscard]] Cost cost_of(PlanValue const& plan, Index rank);
[[nodiscard]] Exchange exchange_of(PlanValue const& plan, Index rank, int phase);
[[nodiscard]] std::uint64_t hash_of(PlanValue const& plan) noexcept;
[[nodiscard]] Plan<> join(Plan<> const& first, Plan<> const& next);
void digest(Digest& digest, DynamicDistribution const& distribution);

struct RelayPlanning;  // plan/relay.hpp

}  // namespace detail

/// How the gradient of a tensor is placed that is used as `distribution` says: R and P+ change places, S stays. The
/// adjoint of the adjoint is the distribution. Throws TransitionError for reductions that are not sums.
[[nodiscard]] DynamicDistribution adjoint(DynamicDistribution const& distribution);

/// A plan between two distributions: `plan(from, to)` or, between meshes, `plan_across(from, to)`.
/// For typed distributions the kind is part of the type; `Plan<>` is the run-time class, to which every plan converts.
template <class From, class To>
class Plan {
public:
    using from_type = From;
    using to_type = To;

    constexpr Plan(From const& from, To const& to, bool across) : Plan(from, to, across, 0, nullptr) {}
    /// Every plan is also a run-time plan. That one knows no static sizes: an axis of 1 counts like any other.
    template <class OtherFrom, class OtherTo>
        requires(std::same_as<From, DynamicDistribution>&& std::same_as<To, DynamicDistribution> &&
                 !std::same_as<Plan<OtherFrom, OtherTo>, Plan>)
    constexpr Plan(Plan<OtherFrom, OtherTo> const& plan)
        : Plan(plan.from_, plan.to_, plan.across_, plan.ranks_per_node_, plan.relayed_) {}

    [[nodiscard]] constexpr From const& from() const& noexcept { return from_; }
    [[nodiscard]] constexpr To const& to() const& noexcept { return to_; }
    [[nodiscard]] constexpr From from() && noexcept { return from_; }  // a reference would outlive a temporary
    [[nodiscard]] constexpr To to() && noexcept { return to_; }
    /// Made by plan_across: between meshes, always collective.
    [[nodiscard]] constexpr bool is_across() const noexcept { return across_; }

    /// The same transition for a cluster whose nodes have so many ranks (rank / ranks_per_node is the node): what
    /// several ranks of a node need from elsewhere enters the node once and is passed on inside, one exchange later;
    /// and whoever has a copy in its own node is served by it. Without Partial no rank receives more than before.
    /// 1 or 0: directly. Ranks of a node that are no block of mesh axes cannot share (explain says so).
    /// `all_ranks`, between meshes: the replicas of the destination pass everything on, wherever they are.
    /// Throws MeshError for a negative number. Needs <reshard/plan/relay.hpp>.
    template <class Planning = detail::RelayPlanning>
    [[nodiscard]] constexpr Plan relayed(Index ranks_per_node) const {
        static_assert(
            requires { sizeof(Planning); },
            "reshard::Plan::relayed: relays are an include of their own. "
            "Fix: #include <reshard/plan/relay.hpp>.");
        return Plan(from_, to_, across_, ranks_per_node < 2 ? 0 : ranks_per_node, Planning::maker(ranks_per_node));
    }
    /// What relayed() was given; 0 for a direct plan.
    [[nodiscard]] constexpr Index ranks_per_node() const noexcept { return detail::larger<Index>(ranks_per_node_, 0); }
    /// The same transition, directly, where every rank folds all that it needs by itself, as a one-shot all-reduce
    /// does: `P -> R` takes one exchange in place of two, and each of n ranks gets n-1 tensors in place of 2 (n-1)/n.
    /// Faster for tensors of a few KiB, where an exchange costs more to start than to carry out. The same bits. Plans
    /// that spread no fold are carried out as they were; they are told apart all the same, by == and then().
    [[nodiscard]] constexpr Plan one_shot_fold() const noexcept {
        return Plan(from_, to_, across_, detail::folds_one_shot, nullptr);
    }

    [[nodiscard]] constexpr TransitionKind kind() const noexcept { return kind_; }
    /// No data crosses ranks, whatever the sizes.
    [[nodiscard]] constexpr bool is_local() const noexcept { return kind() != TransitionKind::collective; }

    /// The window of `full` (this rank's local tensor under from()) that is its local tensor under to().
    /// No copy, no communicator, no allocation. Throws TransitionError when the transition is no view (for typed
    /// plans: does not compile) and BufferError when the shape is not this rank's. `View` is a TensorView<T>, or a
    /// DynamicView or ConstDynamicView of a byte-sized dtype.
    template <class View>
        requires requires(View const& view) { view.strides(); }
    [[nodiscard]] constexpr View view(View const& full, Index rank) const {
        if constexpr (TypedDistribution<From> && TypedDistribution<To>) {
            static_assert(transition_kind<From, To> == TransitionKind::view,
                          "reshard::Plan::view: this transition is not a view. "
                          "Fix: use redistribute(plan, ...) into memory of its own.");
            if (across_) detail::raise_not_a_view(kind(), from_, to_);
        } else {
            if (kind() != TransitionKind::view) detail::raise_not_a_view(kind(), from_, to_);
        }
        return detail::view_of(from_, to_, full, rank);
    }

    /// What one rank moves, in elements; zero for ranks outside both meshes. Throws ShapeError when a sum does not fit
    /// 64 bits.
    [[nodiscard]] Cost cost(Index rank) const { return detail::cost_of(value(), rank); }

    /// What is done, in which order and where.
    [[nodiscard]] planning::Steps steps() const {
        detail::PlanValue const plan = value();
        return is_local() ? detail::steps_locally(plan) : plan.steps(plan);  // types know axes of size 1
    }

    /// The messages of one rank in one phase, from 0 to cost(rank).phases - 1. Empty for other phases.
    [[nodiscard]] planning::Exchange exchange(Index rank, int phase = 0) const {
        return detail::exchange_of(value(), rank, phase);
    }

    /// The backward of this transition: from the adjoint of the target to that of the source.
    [[nodiscard]] Plan<> adjoint() const {
        return Plan<>(v0_1::adjoint(to_), v0_1::adjoint(from_), across_, ranks_per_node_, relayed_);
    }

    /// From the start of this plan to the end of `next` at once: the same value, bit for bit, as by the two, one after
    /// the other. (Who holds which addend of it may differ.) Throws MismatchError when `next` does not start where this
    /// plan ends, or is relayed otherwise, and TransitionError when both fold or scale, which rounds or orders
    /// otherwise, and where an average would be: one of copies, or one that is folded and owed again as a sum.
    [[nodiscard]] Plan<> then(Plan<> const& next) const { return detail::join(*this, next); }

    /// Equal plans have equal digests: ranks compare them before they start.
    [[nodiscard]] std::uint64_t hash() const noexcept { return detail::hash_of(value()); }

    [[nodiscard]] friend constexpr bool operator==(Plan const& a, Plan const& b) noexcept {
        return a.across_ == b.across_ && a.ranks_per_node_ == b.ranks_per_node_ && a.from_ == b.from_ && a.to_ == b.to_;
    }

    /// For what does not depend on types. \pre the plan outlives it.
    [[nodiscard]] constexpr detail::PlanValue value() const& noexcept {
        auto maker = relayed_;
        if constexpr (TypedDistribution<From> && TypedDistribution<To>) {  // never between meshes
            if (maker == nullptr)
                maker = detail::moves_only<From, To>() ? &detail::steps_moving : &detail::steps_within;
        } else {
            if (maker == nullptr) maker = across_ ? &detail::steps_between : &detail::steps_within;
        }
        return {from_, to_, maker, across_, kind_, ranks_per_node_};
    }

private:
    template <class OtherFrom, class OtherTo>
    friend class Plan;
    friend Plan<> detail::join(Plan<> const& first, Plan<> const& next);

    using StepsMaker = decltype(detail::PlanValue::steps);
    constexpr Plan(From const& from, To const& to, bool across, Index ranks_per_node, StepsMaker maker)
        : from_(from),
          to_(to),
          relayed_(maker),
          ranks_per_node_(static_cast<std::int32_t>(detail::smaller<Index>(ranks_per_node, INT32_MAX))),
          across_(across),
          kind_(across ? TransitionKind::collective : kind_within()) {}

    [[nodiscard]] constexpr TransitionKind kind_within() const noexcept {
        if constexpr (TypedDistribution<From> && TypedDistribution<To>) {
            return transition_kind<From, To>;
        } else {
            return kind_of(from_, to_);
        }
    }

    From from_;
    To to_;
    StepsMaker relayed_;           ///< null: directly
    std::int32_t ranks_per_node_;  ///< or folds_one_shot
    bool across_;
    TransitionKind kind_;
};

namespace detail {

[[noreturn]] void raise_shapes_differ(DynamicShape const& from, DynamicShape const& to);
[[noreturn]] void raise_meshes_differ(DynamicMesh const& from, DynamicMesh const& to);
constexpr void require_same(DynamicDistribution const& from, DynamicDistribution const& to, bool meshes) {
    if (!(from.shape() == to.shape())) raise_shapes_differ(from.shape(), to.shape());
    if (meshes && !(from.mesh() == to.mesh())) raise_meshes_differ(from.mesh(), to.mesh());
}

[[noreturn]] void raise_fills_average();

}  // namespace detail

/// The plan of a transition on one mesh. Throws MismatchError when meshes or shapes differ, TransitionError when the
/// destination would be an average filled from nothing; typed distributions report both at compile time where the
/// types know.
template <AnyDistribution From, AnyDistribution To>
[[nodiscard]] constexpr auto plan(From const& from, To const& to) {
    if constexpr (TypedDistribution<From> && TypedDistribution<To>) {
        static_assert(detail::check_transition<From, To>());
        detail::require_same(from, to, true);
        return Plan<From, To>(from, to, false);
    } else {
        detail::require_same(from, to, true);
        if (fills_average(from.signature(), to.signature())) detail::raise_fills_average();
        return Plan<>(from, to, false);
    }
}

/// The plan of a transition to another mesh or world size: disjoint, overlapping or equal ranks. Always collective.
/// Throws MismatchError when shapes differ, TransitionError when the destination is Partial<avg>.
[[nodiscard]] inline Plan<> plan_across(DynamicDistribution const& from, DynamicDistribution const& to) {
    detail::require_same(from, to, false);
    for (PlacementForm const& placement : to.signature().placements) {
        if (placement.is_partial() && placement.op() == Reduce::avg) detail::raise_fills_average();
    }
    return Plan<>(from, to, true);
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/plan/plan.ipp>
#endif
