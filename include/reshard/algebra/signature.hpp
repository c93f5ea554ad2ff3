// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/signature.hpp
/// \brief  What the axes do to a tensor and, per dimension, which cut it in which order: all a rule needs to know.
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

/// What is wrong with a list of placements, if anything. An enumerator per sentence, because types report it at
/// compile time and values at run time.
enum class SignatureFault : std::uint8_t {
    none,
    dimension,     ///< a shard of a dimension the tensor does not have
    two_ops,       ///< two different reductions in one tensor
    order,         ///< the axis order is not a permutation, or names some of the axes of a dimension only
    cyclic_inside  ///< a block-cyclic cut that is not the last of its dimension
};

/// One byte or two per fact, because every distribution has one.
class Signature {
public:
    constexpr Signature() = default;
    template <class Forms>
    constexpr explicit Signature(Forms const& placements) {
        for (PlacementForm const& placement : placements) placements_[axes_++] = placement;
    }

    [[nodiscard]] constexpr int axes() const noexcept { return axes_; }
    [[nodiscard]] constexpr int rank() const noexcept { return rank_; }  ///< of the tensor, once arranged
    [[nodiscard]] constexpr PlacementForm const& operator[](int axis) const noexcept { return placements_[axis]; }
    [[nodiscard]] constexpr PlacementForm const* begin() const noexcept { return placements_; }
    [[nodiscard]] constexpr PlacementForm const* end() const noexcept { return placements_ + axes_; }

    /// The axes that cut a dimension, first cut first.
    [[nodiscard]] constexpr AxisList cuts(int dim) const noexcept { return list(first_[dim], first_[dim + 1]); }
    /// The axes that cut, dimension by dimension: the order that makes the same signature of the same placements.
    [[nodiscard]] constexpr AxisList order() const noexcept { return list(0, first_[max_rank]); }
    /// Types only: whether an axis is statically of size 1.
    [[nodiscard]] constexpr bool is_one(int axis) const noexcept { return ((ones_ >> axis) & 1U) != 0; }
    constexpr void set_one(int axis) noexcept { ones_ = static_cast<std::uint8_t>(ones_ | 1U << axis); }

    /// Gives an axis that cuts nothing another placement; it cuts behind all others. \pre legal there.
    constexpr void replace(int axis, PlacementForm placement) noexcept {
        placements_[axis] = placement;
        if (!placement.is_shard()) return;
        for (int i = first_[max_rank]; i > first_[placement.dim() + 1]; --i) order_[i] = order_[i - 1];
        order_[first_[placement.dim() + 1]] = static_cast<std::int8_t>(axis);
        for (int dim = placement.dim(); dim < max_rank; ++dim) ++first_[dim + 1];
    }

    friend constexpr bool operator==(Signature const&, Signature const&) = default;

private:
    friend constexpr SignatureFault arrange(Signature& signature, int rank, AxisList const& order) noexcept;

    [[nodiscard]] constexpr AxisList list(int first, int last) const noexcept {
        AxisList axes;
        while (first < last) axes.values[axes.count++] = order_[first++];
        return axes;
    }

    PlacementForm placements_[max_axes]{};
    std::int8_t order_[max_axes]{};      ///< the axes that cut
    std::int8_t first_[max_rank + 1]{};  ///< per dimension, where its axes begin in order_
    std::int8_t axes_ = 0;
    std::int8_t rank_ = 0;
    std::uint8_t ones_ = 0;
};

/// Sorts axes by what they cut and reports the first fault. \pre as many placements as axes.
constexpr SignatureFault arrange(Signature& signature, int rank, AxisList const& order) noexcept {
    int const axes = signature.axes();
    unsigned listed = 0;
    for (int axis : order) {
        if (axis < 0 || axis >= axes || ((listed >> axis) & 1U) != 0) return SignatureFault::order;
        listed |= 1U << axis;
    }
    bool owes = false;
    Reduce op = Reduce::sum;
    for (PlacementForm const& placement : signature) {
        if (placement.is_shard() && (placement.dim() < 0 || placement.dim() >= rank)) return SignatureFault::dimension;
        if (!placement.is_partial()) continue;
        if (owes && placement.op() != op) return SignatureFault::two_ops;
        owes = true;
        op = placement.op();
    }
    signature.rank_ = static_cast<std::int8_t>(rank);
    int last = 0;
    for (int dim = 0; dim < max_rank; ++dim) {
        int const first = last;
        auto const add = [&](int axis) {
            PlacementForm const& placement = signature[axis];
            if (placement.is_shard() && placement.dim() == dim)
                signature.order_[last++] = static_cast<std::int8_t>(axis);
        };
        for (int axis : order) add(axis);
        int const in_order = last;
        for (int axis = 0; axis < axes; ++axis)
            if (((listed >> axis) & 1U) == 0) add(axis);
        if (in_order != first && in_order != last) return SignatureFault::order;
        for (int i = first; i + 1 < last; ++i) {
            if (signature[signature.order_[i]].split() == SplitKind::cyclic) return SignatureFault::cyclic_inside;
        }
        signature.first_[dim + 1] = static_cast<std::int8_t>(last);
    }
    return SignatureFault::none;
}

}  // namespace reshard::inline v0
