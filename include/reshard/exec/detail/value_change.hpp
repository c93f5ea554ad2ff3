// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/value_change.hpp
/// \brief  What becomes of values between the source and the destination of a plan: a cast, a factor, or nothing.
/// \depends plan, memory/convert.hpp, core.
///
/// Values are what they were in the source until the one hop that brings them into the destination: addends are folded
/// in the source's type, and every value is converted once, by that hop or, where the fold was the last thing, after
/// it.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0::detail {

struct ValueChange {
    DType from = DType::u8;
    DType to = DType::u8;
    double factor = 1.0;
    bool active = false;

    /// The smaller type travels; of two alike, the source's.
    [[nodiscard]] constexpr DType wire() const noexcept { return bytes(to) < bytes(from) ? to : from; }
    /// The two sides of the hop. The one that has the other type converts, and applies the factor.
    [[nodiscard]] constexpr Conversion send() const noexcept {
        if (!active) return {};
        return {from, wire(), wire() == from ? 1.0 : factor, true};
    }
    [[nodiscard]] constexpr Conversion receive() const noexcept {
        if (!active) return {};
        return {to, wire(), wire() == from ? factor : 1.0, true};
    }
};

/// The change that was asked for. `asked` is the factor; a plan that turns sums into averages has one of its own, and
/// where there is a change the two are one, so that values are rounded once.
/// On ranks that have no source, its type counts only if a cast was asked for.
[[nodiscard]] inline ValueChange value_change(Plan<> const& plan, Steps const& steps, int rank,
                                              ConstDynamicView const& source, DynamicView const& destination, bool cast,
                                              double asked) {
    ValueChange change;
    DType const dtype = plan.from().contains(rank) ? source.dtype() : destination.dtype();
    change.from = cast ? source.dtype() : dtype;
    change.to = cast ? destination.dtype() : dtype;
    change.active = change.from != change.to || asked != 1.0;
    if (!change.active) return change;
    change.factor = asked * static_cast<double>(steps.multiply) / static_cast<double>(steps.divide);
    return change;
}

/// A fold that would write into the destination writes into the workspace, from where its result is converted.
[[nodiscard]] inline Steps changed_steps(Steps steps, bool changes) {
    if (changes && steps.fold) steps.stages[0].place = Place::workspace;
    return steps;
}

}  // namespace reshard::inline v0::detail
