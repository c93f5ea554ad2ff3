// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/permute.hpp
/// \brief  Dimensions in another order, of shapes, views and distributions: how a tensor is transposed while it moves.
/// \depends distribution, core/tensor_view. constexpr; nothing is copied.
///
/// As numpy.transpose and torch.permute: dimension d of the result is dimension order[d] of the argument. What a rank
/// holds under permute(x, order) is what it holds under x, with its dimensions in that order. So a tensor distributed
/// as `from` becomes its transpose, distributed as `to`, by
///
///     redistribute(plan(from, permute(to, inverse)), comm, source, permute(destination, inverse));
///
/// where inverse = inverse_permutation(order); for two dimensions, {1, 0} is its own inverse. The bytes are those of a
/// move without transposition, and the copy that places them transposes.
///
/// Laws (tests/algebra/permute.test.cpp):
///     law.inverse    permute(permute(x, order), inverse_permutation(order)) == x
///     law.boxes      permute(d, order).box(rank) is d.box(rank) with its intervals in that order; holders alike
#pragma once

#include <reshard/algebra/distribution.hpp>
#include <reshard/core/tensor_view.hpp>

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] constexpr bool is_permutation(Indices const& order, int rank) noexcept {
    unsigned seen = 0;
    for (Index dim : order)
        if (dim >= 0 && dim < max_dims) seen |= 1U << dim;
    return order.size() == rank && seen == (1U << rank) - 1U;
}
constexpr void check_permutation(Indices const& order, int rank) {
    if (is_permutation(order, rank)) return;
    raise(ErrorCode::shape, "reshard::permute: ", to_string(order), " is no permutation of ", rank,
          " dimensions. Fix: name each of them once; they count from 0.");
}

[[nodiscard]] constexpr Indices permuted(Indices const& list, Indices const& order) noexcept {
    Indices result;
    for (Index dim : order) result.push_back(list[static_cast<int>(dim)]);
    return result;
}

}  // namespace detail

/// The order that undoes `order`. Throws ShapeError for a list that is no permutation, as everything here.
[[nodiscard]] constexpr Indices inverse_permutation(Indices const& order) {
    detail::check_permutation(order, order.size());
    Indices result = order;
    for (int dim = 0; dim < order.size(); ++dim) result[static_cast<int>(order[dim])] = dim;
    return result;
}

[[nodiscard]] constexpr DynamicShape permute(DynamicShape const& shape, Indices const& order) {
    detail::check_permutation(order, shape.rank());
    return DynamicShape(detail::permuted(shape.extents(), order));
}

/// The same memory, walked in another order: strides follow their dimensions.
template <class T>
[[nodiscard]] constexpr TensorView<T> permute(TensorView<T> const& view, Indices const& order) {
    return {view.data(), permute(view.shape(), order), detail::permuted(view.strides(), order)};
}
template <class Byte>
[[nodiscard]] BasicDynamicView<Byte> permute(BasicDynamicView<Byte> const& view, Indices const& order) {
    return {view.data(), view.dtype(), permute(view.shape(), order), detail::permuted(view.strides(), order)};
}

/// Placements follow their dimensions; the mesh and the order of cuts stay.
[[nodiscard]] constexpr DynamicDistribution permute(DynamicDistribution const& distribution, Indices const& order) {
    DynamicShape const shape = permute(distribution.shape(), order);
    Indices const places = inverse_permutation(order);
    Placements placements;
    for (Placement const& placement : distribution.placements()) {
        bool const moves = placement.is_shard();
        placements.push_back(moves ? Placement::shard(static_cast<int>(places[placement.dim()]), placement.rule())
                                   : placement);
    }
    return DynamicDistribution(distribution.mesh(), shape, placements, distribution.order());
}

namespace detail {

/// The types of a distribution whose dimension d was dimension Order[d].
template <class P, int... Order>
struct PermutedPlacement {
    using type = P;
};
template <int Dim, class Rule, int... Order>
struct PermutedPlacement<Shard<Dim, Rule>, Order...> {
    using type = Shard<static_cast<int>(inverse_permutation(Indices{Order...})[Dim]), Rule>;
};

}  // namespace detail

/// The same for types: `permute<1, 0>(rows)` has types for whatever the compiler knows of rows.
template <int... Order, class M, class S, class Axes, class... P>
[[nodiscard]] constexpr auto permute(Distribution<M, S, Axes, P...> const& distribution) {
    constexpr Indices order{Order...};
    static_assert(detail::is_permutation(order, S::rank()),
                  "reshard::permute: the numbers are no permutation of the dimensions. "
                  "Fix: name every dimension once; they count from 0.");
    using Result = Distribution<M, Shape<S::static_extent(Order)...>, Axes,
                                typename detail::PermutedPlacement<P, Order...>::type...>;
    return Result(detail::Typed{}, permute(distribution, order));
}

}  // namespace reshard::inline v0_1
