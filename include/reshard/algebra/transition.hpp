// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/transition.hpp
/// \brief  Whether going from one distribution to another is a view, a copy within the rank, or needs communication.
/// \depends distribution. constexpr.
///
/// What is said here is whether anything moves; how it is carried out is in plan/steps.hpp.
///
/// The rule, for two distributions of one mesh and shape. Per tensor dimension list (axis, split rule) in cutting
/// order; drop axes that are statically of size 1; remove from the tail of the source's list the axes that become
/// Partial. Nothing moves when what is left is a prefix of the destination's list, no Partial is resolved, and the
/// ops are equal.
///
/// from -> to            | kind
/// ----------------------|----------------------------------------------------------------------------------
/// R -> R, S -> S, P -> P | view: the memory itself
/// R -> S                | view: a window of it (copy: several windows, when the cut interleaves)
/// R -> P                | copy: coordinate 0 keeps the values, the others fill the identity;
///                       | view for avg, min, max, band and bor, where every copy may owe itself
/// S -> P                | copy: the shard inside an identity-filled tensor
/// P+ <-> Pavg           | copy: a factor
/// S -> R, S(i) -> S(j)  | collective
/// P -> R, P -> S        | collective, as is P(a) -> P(b)
/// S, P -> Pavg          | not possible (but P+ is): an average has no identity to fill with
#pragma once

#include <reshard/algebra/distribution.hpp>

namespace reshard::inline v0_1 {

namespace enums {
enum class TransitionKind : std::uint8_t {
    view,       ///< one box of what the rank holds: no copy
    copy,       ///< a copy within the rank
    collective  ///< data crosses ranks (possibly zero bytes)
};
[[nodiscard]] constexpr std::string_view name(TransitionKind kind) noexcept {
    constexpr std::string_view names[] = {"view", "copy", "collective"};
    return names[static_cast<int>(kind)];
}
}  // namespace enums
using enums::TransitionKind;

/// What one mesh axis does in a transition.
enum class AxisChange : std::uint8_t {
    keep,   ///< Partial stays Partial with the same op
    scale,  ///< P+ <-> Pavg
    fold,   ///< a Partial is resolved
    fill,   ///< becomes Partial: data in one place, the identity elsewhere
    alias,  ///< becomes Partial, and every copy may owe itself (idempotent ops)
    move,   ///< Replicate or Shard on both sides
};

namespace detail {
[[nodiscard]] constexpr AxisChange axis_change(PlacementForm const& from, PlacementForm const& to) noexcept {
    if (from.is_partial() && to.is_partial()) {
        if (from.op() == to.op()) return AxisChange::keep;
        return is_linear(from.op()) && is_linear(to.op()) ? AxisChange::scale : AxisChange::fold;
    }
    if (from.is_partial()) return AxisChange::fold;
    if (!to.is_partial()) return AxisChange::move;
    return from.is_replicate() && is_idempotent(to.op()) ? AxisChange::alias : AxisChange::fill;
}
}  // namespace detail

/// Whether some axis would have to be filled with the identity of an average.
[[nodiscard]] constexpr bool fills_average(detail::Signature const& from, detail::Signature const& to) noexcept {
    for (int axis = 0; axis < from.axes; ++axis) {
        PlacementForm const& target = to[axis];
        if (!target.is_partial() || target.op() != Reduce::avg) continue;
        AxisChange const change = detail::axis_change(from[axis], target);
        if (change == AxisChange::fill || change == AxisChange::fold) return true;
    }
    return false;
}

/// The kind of a transition between two signatures of one mesh and shape; `same(axis)` says whether an axis cuts by
/// the same rule on both sides. \pre !fills_average(from, to).
template <class Same>
[[nodiscard]] constexpr TransitionKind kind_of(detail::Signature const& from, detail::Signature const& to,
                                               Same const& same) noexcept {
    unsigned const ones = from.ones & to.ones;
    auto const counts = [&](int axis) { return ((ones >> axis) & 1U) == 0; };
    bool copies = false;
    for (int axis = 0; axis < from.axes; ++axis) {
        AxisChange const change = detail::axis_change(from[axis], to[axis]);
        if (change == AxisChange::fold && counts(axis)) return TransitionKind::collective;
        if (change == AxisChange::fill || change == AxisChange::scale) copies = copies || counts(axis);
    }
    for (int dim = 0; dim < from.rank; ++dim) {
        AxisList held;
        AxisList needed;
        for (std::int8_t axis : from.cuts(dim))
            if (counts(axis)) held.push_back(axis);
        for (std::int8_t axis : to.cuts(dim))
            if (counts(axis)) needed.push_back(axis);
        while (!held.empty() && to[held.back()].is_partial()) held.pop_back();
        if (held.size() > needed.size()) return TransitionKind::collective;
        for (int i = 0; i < held.size(); ++i) {
            if (held[i] != needed[i] || !same(held[i])) return TransitionKind::collective;
        }
        if (needed.size() > held.size() && interleaves(to[needed.back()].split())) copies = true;
    }
    return copies ? TransitionKind::copy : TransitionKind::view;
}
/// The same for two distributions, whose rules are compared by their numbers.
[[nodiscard]] constexpr TransitionKind kind_of(DynamicDistribution const& from,
                                               DynamicDistribution const& to) noexcept {
    return kind_of(from.signature(), to.signature(),
                   [&](int axis) { return from.placement(axis).rule() == to.placement(axis).rule(); });
}

namespace detail {

/// Whether shapes or meshes of so many dimensions or axes can be the same, as far as their types know.
template <class A, class B>
consteval bool fit(int a_count, int b_count) {
    if (a_count != b_count) return false;
    for (int i = 0; i < a_count; ++i) {
        Index const a = A::static_extent(i);
        Index const b = B::static_extent(i);
        if (a != dynamic && b != dynamic && a != b) return false;
    }
    return true;
}
template <class From, class To, class A = typename From::shape_type, class B = typename To::shape_type>
inline constexpr bool fits_statically = fit<A, B>(A::rank(), B::rank());
template <class From, class To, class A = typename From::mesh_type, class B = typename To::mesh_type>
inline constexpr bool meshes_fit_statically = fit<A, B>(A::axes(), B::axes());

/// Two cuts of one static rule are the same cut whatever their extents; other rules carry numbers no type knows.
template <class A, class B>
inline constexpr bool same_rule = false;
template <int A, int B, class Rule>
inline constexpr bool same_rule<Shard<A, Rule>, Shard<B, Rule>> = is_static_rule<Rule>();

/// Bit a is set when axis a cuts by one static rule on both sides. \pre as many placements on both sides.
template <class M, class S, class Order, class... P, class N, class T, class Other, class... Q>
consteval unsigned same_rules(Distribution<M, S, Order, P...> const* /*from*/,
                              Distribution<N, T, Other, Q...> const* /*to*/) {
    unsigned mask = 0;
    int axis = 0;
    ((mask |= (same_rule<P, Q> ? 1U : 0U) << axis++), ...);
    return mask;
}
/// One type for all pairs: a lambda per pair would instantiate the rule for each.
struct AxesOf {
    unsigned mask;
    constexpr bool operator()(int axis) const { return ((mask >> axis) & 1U) != 0; }
};
template <class From, class To>
consteval TransitionKind kind_of_types() {
    unsigned const same = same_rules(static_cast<From const*>(nullptr), static_cast<To const*>(nullptr));
    return kind_of(From::static_signature, To::static_signature, AxesOf{same});
}

template <class From, class To>
consteval bool check_transition() {
    static_assert(fits_statically<From, To>,
                  "reshard::plan: the two distributions have different shapes. "
                  "Fix: a plan moves one tensor; reshape or slice it before or after.");
    static_assert(meshes_fit_statically<From, To>,
                  "reshard::plan: the two distributions have different meshes. "
                  "Fix: use reshard::plan_across(from, to) to move between meshes.");
    if constexpr (fits_statically<From, To> && meshes_fit_statically<From, To>) {
        static_assert(!fills_average(From::static_signature, To::static_signature),
                      "reshard::plan: only sums, and copies on one mesh, become Partial<avg>: an average has no "
                      "identity to fill with. Fix: move to Replicate first; copies owe an average as they are.");
    }
    return true;
}

/// Whether no axis is Partial on either side, as far as the types know: then nothing is folded or filled.
template <class From, class To>
consteval bool moves_only() {
    if constexpr (TypedDistribution<From> && TypedDistribution<To>) {
        for (auto const* side : {&From::static_signature, &To::static_signature})
            for (PlacementForm const& placement : side->placements)
                if (placement.is_partial()) return false;
        return true;
    } else {
        return false;
    }
}

}  // namespace detail

/// The kind of the transition between two typed distributions, known to the compiler.
template <TypedDistribution From, TypedDistribution To>
    requires(detail::check_transition<std::remove_cvref_t<From>, std::remove_cvref_t<To>>())
inline constexpr TransitionKind transition_kind =
    detail::kind_of_types<std::remove_cvref_t<From>, std::remove_cvref_t<To>>();

/// Whether a transition provably needs no communicator: `static_assert(is_local<From, To>)`.
template <class From, class To>
inline constexpr bool is_local = transition_kind<From, To> != TransitionKind::collective;

/// Whether it provably needs no copy either.
template <class From, class To>
inline constexpr bool is_view = transition_kind<From, To> == TransitionKind::view;

}  // namespace reshard::inline v0_1
