// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/signature.hpp
/// \brief  The placements of a tensor and, per dimension, which axes cut it in which order: all a rule needs to know.
/// \depends placement. constexpr.
///
/// One structure serves both faces: run-time distributions carry one, typed distributions have one per type.
#pragma once

#include <reshard/algebra/placement.hpp>

namespace reshard::inline v0 {

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

struct Signature {
    Placements placements;
    InlineList<AxisList, max_rank> cuts;  ///< per tensor dimension: the axes that cut it, first cut first
    unsigned ones = 0;                    ///< types only: bit a is set when axis a is statically of size 1
};

/// What is wrong with a list of placements, if anything. An enumerator per sentence, because types report it at
/// compile time and values at run time.
enum class SignatureFault : std::uint8_t {
    none,
    dimension,     ///< a shard of a dimension the tensor does not have
    two_ops,       ///< two different reductions in one tensor
    order,         ///< the axis order is not a permutation, or names some of the axes of a dimension only
    cyclic_inside  ///< a block-cyclic cut that is not the last of its dimension
};

/// Sorts axes into `cuts` and reports the first fault. \pre as many placements as axes.
constexpr SignatureFault arrange(Signature& signature, int rank, AxisList const& order) noexcept {
    int const axes = signature.placements.size();
    unsigned listed = 0;
    for (int axis : order) {
        if (axis < 0 || axis >= axes || ((listed >> axis) & 1U) != 0) return SignatureFault::order;
        listed |= 1U << axis;
    }
    bool owes = false;
    Reduce op = Reduce::sum;
    for (auto const& placement : signature.placements) {
        if (placement.is_shard() && (placement.dim() < 0 || placement.dim() >= rank)) return SignatureFault::dimension;
        if (!placement.is_partial()) continue;
        if (owes && placement.op() != op) return SignatureFault::two_ops;
        owes = true;
        op = placement.op();
    }
    signature.cuts = {};
    for (int dim = 0; dim < rank; ++dim) {
        AxisList axes_of_dim;
        auto const cuts_dim = [&](int axis) {
            return signature.placements[axis].is_shard() && signature.placements[axis].dim() == dim;
        };
        for (std::int8_t axis : order)
            if (cuts_dim(axis)) axes_of_dim.push_back(axis);
        int const in_order = axes_of_dim.size();
        for (int axis = 0; axis < axes; ++axis) {
            if (cuts_dim(axis) && ((listed >> axis) & 1U) == 0) axes_of_dim.push_back(static_cast<std::int8_t>(axis));
        }
        if (in_order != 0 && in_order != axes_of_dim.size()) return SignatureFault::order;
        for (int i = 0; i + 1 < axes_of_dim.size(); ++i) {
            if (signature.placements[axes_of_dim[i]].rule().kind == SplitKind::cyclic) {
                return SignatureFault::cyclic_inside;
            }
        }
        signature.cuts.push_back(axes_of_dim);
    }
    return SignatureFault::none;
}

/// Whether the axis cuts by the same rule on both sides, by the rule's numbers. Types know it from the rule's type.
[[nodiscard]] constexpr bool same_cut(Signature const& a, Signature const& b, int axis) noexcept {
    return a.placements[axis].rule() == b.placements[axis].rule();
}

}  // namespace reshard::inline v0
