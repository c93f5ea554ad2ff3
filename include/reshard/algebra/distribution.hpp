// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/distribution.hpp
/// \brief  Distributions whose placements are types, and `distribution(...)`, which makes those and values.
/// \depends dynamic_distribution. constexpr; no communicator, no tensor memory.
#pragma once

#include <reshard/algebra/dynamic_distribution.hpp>

namespace reshard::inline v0_1 {

namespace detail {

template <class P>
constexpr Placement placement_of_type(P const& placement) {
    return placement.placement(dynamic, dynamic);
}
template <int Dim, class Rule>
constexpr Placement placement_of_type(Shard<Dim, Rule> const& placement) {
    // Only the built-in rules are the same object for every extent; a user's rule is known by its type alone.
    SplitRule rule;
    if constexpr (std::same_as<Rule, Chunk> || std::same_as<Rule, Balanced> || std::same_as<Rule, BlockCyclic> ||
                  std::same_as<Rule, Strided>) {
        rule = placement.split.rule(dynamic, dynamic);
    } else {
        rule.kind = SplitKind::boundaries;
    }
    return Placement::shard(Dim, rule);
}

template <class One>
constexpr Placement placement_of(One const& placement, Index extent, Index parts) {
    Placement const result = placement.placement(extent, parts);
    if constexpr (requires { typename One::rule_type; }) {
        if (interleaves(result.rule().kind) && !std::same_as<typename One::rule_type, BlockCyclic> &&
            !std::same_as<typename One::rule_type, Strided>) {
            raise(ErrorCode::placement,
                  "reshard::distribution: a split rule of your own deals out blocks. "
                  "Fix: return boundaries, or use reshard::BlockCyclic or reshard::Strided.");
        }
    }
    return result;
}
/// What placements are on this mesh and shape. In cutting order, because a rule is asked about the piece that it cuts,
/// not about the whole extent. \pre `types` is arranged, of as many placements.
template <class... P>
constexpr Placements placements_of(Signature const& types, DynamicMesh const& mesh, DynamicShape const& shape,
                                   P const&... placements) {
    Placements result;
    for (int axis = 0; axis < types.axes; ++axis) result.push_back(Placement(types[axis]));
    for (int dim = 0; dim < shape.rank(); ++dim) {
        Index extent = shape.extent(dim);  // of the first piece; boundaries check that all are alike
        for (int axis : types.cuts(dim)) {
            Index const parts = mesh.extent(axis);
            int next = 0;
            ((next++ == axis ? static_cast<void>(result[axis] = placement_of(placements, extent, parts)) : void()),
             ...);
            SplitRule const& rule = result[axis].rule();
            if (rule.kind == SplitKind::boundaries && rule.boundaries.size() != parts + 1) break;  // refused later
            extent = larger<Index>(part(rule, extent, parts, 0).size(), 0);
        }
    }
    return result;
}
/// Placements that are types, on a mesh or of a shape that is none.
template <class... P>
constexpr DynamicDistribution of_types(DynamicMesh const& mesh, DynamicShape const& shape, AxisList const& order,
                                       P const&... placements) {
    Placements const known{placement_of_type(placements)...};
    Signature types(known);
    bool const fits = types.axes == mesh.axes() && arrange(types, shape.rank(), order) == SignatureFault::none;
    return DynamicDistribution(mesh, shape, fits ? placements_of(types, mesh, shape, placements...) : known, order);
}

struct Typed {};

struct StaticSignature {
    Signature signature;
    SignatureFault fault = SignatureFault::none;
};

template <class M, class S, class Order, class... P>
consteval StaticSignature static_signature() {
    StaticSignature result;
    result.signature = Signature(Placements{placement_of_type(P{})...});
    for (int axis = 0; axis < M::axes(); ++axis) {
        if (M::static_extent(axis) == 1)
            result.signature.ones = static_cast<std::uint8_t>(result.signature.ones | 1U << axis);
    }
    result.fault = arrange(result.signature, S::rank(), Order::list());
    return result;
}

template <std::size_t placements_given, std::size_t mesh_axes>
consteval bool check_placement_count() {
    static_assert(placements_given == mesh_axes,
                  "reshard::distribution: give exactly one placement per mesh axis. "
                  "Fix: add reshard::Replicate for every axis that does not touch this tensor.");
    return placements_given == mesh_axes;
}

template <class M, class S, class Order, class... P>
consteval bool check_distribution() {
    if constexpr (check_placement_count<sizeof...(P), as_size(M::axes())>()) {
        constexpr SignatureFault fault = static_signature<M, S, Order, P...>().fault;
        static_assert(fault != SignatureFault::dimension,
                      "reshard::distribution: a placement shards a dimension the tensor does not have. "
                      "Fix: dimensions count from 0, so the last of n is n - 1.");
        static_assert(fault != SignatureFault::two_ops,
                      "reshard::distribution: two different reductions in one tensor. "
                      "Fix: use one Partial op on all partial axes, or reduce one of them first.");
        static_assert(fault != SignatureFault::order,
                      "reshard::distribution: AxisOrder names an axis twice, an axis the mesh does not have, or only "
                      "some of the axes that cut a dimension. Fix: list all axes of that dimension, first cut first.");
        static_assert(fault != SignatureFault::cyclic_inside,
                      "reshard::distribution: a block-cyclic or strided cut is not the last of its dimension. "
                      "Fix: let the other axes of that dimension cut first (AxisOrder).");
        static_assert(fault != SignatureFault::cyclic_twice,
                      "reshard::distribution: two block-cyclic or strided cuts of one dimension. "
                      "Fix: make one such cut, the last of its dimension; the others are chunks or boundaries.");
    }
    return true;  // whatever was wrong has been said
}

}  // namespace detail

/// A distribution whose placements are part of the type: a DynamicDistribution that adds what the compiler can know.
/// Made by distribution<...>(mesh, shape).
template <class M, class S, class Order, PlacementType... P>
class Distribution : public DynamicDistribution {
    static_assert(detail::check_distribution<M, S, Order, P...>());

public:
    using mesh_type = M;
    using shape_type = S;
    static constexpr detail::Signature static_signature = detail::static_signature<M, S, Order, P...>().signature;

    constexpr Distribution() requires(M::is_static&& S::is_static) : Distribution(M{}, S{}, P{}...) {}
    constexpr Distribution(M const& mesh, S const& shape, P const&... placements)
        : DynamicDistribution(mesh, shape, detail::placements_of(static_signature, mesh, shape, placements...),
                              Order::list()) {}
    /// For functions that know the type of what they made. \pre the value is what the type says.
    constexpr Distribution(detail::Typed, DynamicDistribution const& value) : DynamicDistribution(value) {}
};

namespace detail {
/// Types where mesh and shape are some; else a DynamicDistribution.
template <class Order, std::derived_from<DynamicMesh> M, std::derived_from<DynamicShape> S, class... P>
[[nodiscard]] constexpr auto make_distribution(M const& mesh, S const& shape, P const&... placements) {
    if constexpr (requires { M::static_extent(0) + S::static_extent(0); }) {
        return Distribution<M, S, Order, P...>(mesh, shape, placements...);
    } else {
        return of_types(mesh, shape, Order::list(), placements...);
    }
}
}  // namespace detail

/// A distribution made of types, or the run-time value.
template <class T>
concept TypedDistribution = std::derived_from<std::remove_cvref_t<T>, DynamicDistribution> && requires {
    std::remove_cvref_t<T>::static_signature;
};
template <class T>
concept AnyDistribution = TypedDistribution<T> || std::same_as<std::remove_cvref_t<T>, DynamicDistribution>;

/// `distribution<Replicate, Shard<0>>(mesh, shape)`: one placement per mesh axis, the first axis cuts first; or in
/// another order: `distribution<Shard<0>, Shard<0>>(mesh, shape, AxisOrder<1, 0>{})`. On a mesh or of a shape that is
/// known at run time a DynamicDistribution, so that what can only be seen then is thrown then.
template <PlacementType... P, std::derived_from<DynamicMesh> M, std::derived_from<DynamicShape> S, int... Axes>
    requires(sizeof...(P) > 0)
[[nodiscard]] constexpr auto distribution(M const& mesh, S const& shape, AxisOrder<Axes...> /*order*/ = {}) {
    return detail::make_distribution<AxisOrder<Axes...>>(mesh, shape, P{}...);
}
/// Placements as arguments, for rules that carry numbers: `Shard<0, Boundaries>{{0, 3, 9}}`.
template <PlacementType First, PlacementType... P, std::derived_from<DynamicMesh> M, std::derived_from<DynamicShape> S>
[[nodiscard]] constexpr auto distribution(M const& mesh, S const& shape, First const& first, P const&... rest) {
    return detail::make_distribution<AxisOrder<>>(mesh, shape, first, rest...);
}
/// Order first, then placements as arguments: `distribution(mesh, shape, AxisOrder<1, 0>{}, Shard<0>{}, Shard<0>{})`.
template <PlacementType First, PlacementType... P, std::derived_from<DynamicMesh> M, std::derived_from<DynamicShape> S,
          int... Axes>
[[nodiscard]] constexpr auto distribution(M const& mesh, S const& shape, AxisOrder<Axes...> /*order*/,
                                          First const& first, P const&... rest) {
    return detail::make_distribution<AxisOrder<Axes...>>(mesh, shape, first, rest...);
}
/// Placements known at run time.
[[nodiscard]] constexpr DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                                         Placements const& placements, AxisList const& order = {}) {
    return DynamicDistribution(mesh, shape, placements, order);
}

}  // namespace reshard::inline v0_1
