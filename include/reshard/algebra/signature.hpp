// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/signature.hpp
/// \brief  What the axes do to a tensor and, per dimension, which cut it in which order: all a rule needs to know.
/// \depends placement. constexpr.
///
/// One structure serves both faces: run-time distributions carry one, typed distributions have one per type.
#pragma once

#include <reshard/algebra/placement.hpp>

namespace reshard::inline v0_1 {

using Placements = InlineList<Placement, max_axes>;  ///< one per mesh axis
using AxisList = InlineList<std::int8_t, max_axes>;

/// Which mesh axis cuts first when several cut one dimension, as a type: `AxisOrder<1, 0>{}`. Axes that are not
/// listed cut in ascending order; a dimension has either all or none of its axes in the list.
template <int... Axes>
struct AxisOrder {
    [[nodiscard]] static constexpr AxisList list() noexcept {
        static_assert(sizeof...(Axes) <= max_axes, "reshard::AxisOrder: a mesh has at most 8 axes.");
        AxisList axes;
        (axes.push_back(static_cast<std::int8_t>(Axes >= 0 && Axes < max_axes ? Axes : -1)), ...);
        return axes;
    }
};

namespace detail {

/// What is wrong with a list of placements, if anything. An enumerator per sentence, because types report it at
/// compile time and values at run time.
enum class SignatureFault : std::uint8_t {
    none,
    dimension,      ///< a shard of a dimension the tensor does not have
    two_ops,        ///< two different reductions in one tensor
    order,          ///< the axis order is not a permutation, or names some of the axes of a dimension only
    cyclic_inside,  ///< a cut that interleaves and is not the last of its dimension
    cyclic_twice    ///< two cuts of a dimension that interleave: no order lets both be the last
};

/// A byte or two per fact, because every distribution has one.
struct Signature {
    PlacementForm placements[max_axes]{};
    std::int8_t axes = 0;             ///< of the mesh
    std::int8_t rank = 0;             ///< of the tensor
    std::int8_t shards = 0;           ///< how many of them cut
    std::int8_t cutting[max_axes]{};  ///< these, dimension by dimension, first cut first
    std::uint8_t cut_dims = 0;        ///< bit d is set when some axis cuts dimension d
    std::uint8_t ones = 0;            ///< types only: bit a is set when axis a is statically of size 1

    constexpr Signature() = default;
    template <class Forms>
    constexpr explicit Signature(Forms const& list) {
        for (PlacementForm const& placement : list) placements[axes++] = placement;
    }
    [[nodiscard]] constexpr PlacementForm const& operator[](int axis) const noexcept { return placements[axis]; }
    /// A bit for every axis with a placement of this kind.
    [[nodiscard]] constexpr unsigned axes_of(PlacementKind kind) const noexcept {
        unsigned mask = 0;
        for (int axis = 0; axis < axes; ++axis)
            if (placements[axis].kind() == kind) mask |= 1U << axis;
        return mask;
    }
    [[nodiscard]] constexpr bool cuts_dim(int dim) const noexcept { return ((cut_dims >> dim) & 1U) != 0; }
    /// The axes that cut a dimension, first cut first.
    [[nodiscard]] constexpr AxisList cuts(int dim) const noexcept {
        AxisList result;
        for (int i = 0; i < shards; ++i)
            if (placements[cutting[i]].dim() == dim) result.push_back(cutting[i]);
        return result;
    }
    /// Those of all dimensions: the order that makes the same signature of the same placements.
    [[nodiscard]] constexpr AxisList order() const noexcept {
        AxisList result;
        for (int i = 0; i < shards; ++i) result.push_back(cutting[i]);
        return result;
    }
    friend constexpr bool operator==(Signature const&, Signature const&) = default;
};

/// Sorts axes by what they cut and reports the first fault. \pre as many placements as axes.
constexpr SignatureFault arrange(Signature& signature, int rank, AxisList const& order) noexcept {
    int const axes = signature.axes;
    unsigned listed = 0;
    for (int axis : order) {
        if (axis < 0 || axis >= axes || ((listed >> axis) & 1U) != 0) return SignatureFault::order;
        listed |= 1U << axis;
    }
    bool owes = false;
    Reduce op = Reduce::sum;
    for (PlacementForm const& placement : signature.placements) {
        if (placement.is_shard() && (placement.dim() < 0 || placement.dim() >= rank)) return SignatureFault::dimension;
        if (!placement.is_partial()) continue;
        if (owes && placement.op() != op) return SignatureFault::two_ops;
        owes = true;
        op = placement.op();
    }
    signature.rank = static_cast<std::int8_t>(rank);
    signature.shards = 0;
    for (int dim = 0; dim < rank; ++dim) {
        int const first = signature.shards;
        auto const add = [&](int axis) {
            bool const cuts = signature[axis].is_shard() && signature[axis].dim() == dim;
            if (cuts) signature.cutting[signature.shards++] = static_cast<std::int8_t>(axis);
            if (cuts) signature.cut_dims = static_cast<std::uint8_t>(signature.cut_dims | 1U << dim);
        };
        for (int axis : order) add(axis);
        int const in_order = signature.shards;
        for (int axis = 0; axis < axes; ++axis)
            if (((listed >> axis) & 1U) == 0) add(axis);
        if (in_order != first && in_order != signature.shards) return SignatureFault::order;
        int interleaved = 0;
        bool last = false;
        for (int i = first; i < signature.shards; ++i) {
            last = interleaves(signature[signature.cutting[i]].split());
            interleaved += last ? 1 : 0;
        }
        if (interleaved > 1) return SignatureFault::cyclic_twice;
        if (interleaved == 1 && !last) return SignatureFault::cyclic_inside;
    }
    return SignatureFault::none;
}

}  // namespace detail

}  // namespace reshard::inline v0_1
