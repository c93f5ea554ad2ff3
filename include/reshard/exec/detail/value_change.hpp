// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/value_change.hpp
/// \brief  What becomes of values between the source and the destination of a plan: a cast, a factor, or nothing.
/// \depends exec/prepare_options.hpp, plan, memory/convert.hpp.
///
/// Values are what they were in the source until the one hop that brings them into the destination: addends are folded
/// in the source's type, and every value is converted once, by that hop or, where the fold was the last thing, after
/// it or with it.
#pragma once

#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/exec/prepare_options.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1::detail {

struct ValueChange {
    DType from = DType::u8;
    DType to = DType::u8;
    double factor = 1.0;
    ConvertBox convert = nullptr;  ///< null: nothing changes
    bool averages = false;         ///< the plan turns sums into averages or back

    [[nodiscard]] constexpr bool is_active() const noexcept { return convert != nullptr; }
    /// The smaller type travels; of two alike, the source's.
    [[nodiscard]] constexpr DType wire() const noexcept { return bytes(to) < bytes(from) ? to : from; }
    /// The two sides of the hop. The one that has the other type converts, and applies the factor.
    [[nodiscard]] constexpr Conversion send() const noexcept {
        if (!is_active()) return {};
        return {from, wire(), wire() == from ? 1.0 : factor, convert};
    }
    [[nodiscard]] constexpr Conversion receive() const noexcept {
        if (!is_active()) return {};
        return {to, wire(), wire() == from ? factor : 1.0, convert};
    }
};

/// A plan, and the tensors that one rank has for it, which outlive this.
struct RankMove {
    PlanValue plan;
    int rank;
    ConstDynamicView const& source;
    DynamicView const& destination;

    [[nodiscard]] bool gives() const noexcept { return plan.from.contains(rank); }
    [[nodiscard]] bool takes() const noexcept { return plan.to.contains(rank); }
};

/// A plan's steps as one rank carries them out with its tensors, and what becomes of their values on the way.
struct RankSteps : RankMove {
    planning::Steps steps;
    ValueChange change;

    /// The change that was asked for is carried out on the host by `convert`. A plan that turns sums into averages has
    /// a factor of its own, and where there is a change the two are one, so that values are rounded once.
    /// On ranks that have no source, its type counts only if a cast was asked for.
    RankSteps(RankMove const& move, planning::Steps&& planned, PrepareOptions const& options, ConvertBox convert)
        : RankMove(move), steps(std::move(planned).folding(options.fold_elements)) {
        DType const dtype = gives() ? source.dtype() : destination.dtype();
        planning::Step const* const scale = steps.find(planning::StepKind::scale);
        change.from = options.cast ? source.dtype() : dtype;
        change.to = options.cast ? destination.dtype() : dtype;
        change.averages = scale != nullptr;
        if (change.from == change.to && options.factor == 1.0) return;
        change.convert = convert;
        change.factor = options.factor;
        if (scale != nullptr) {
            change.factor = options.factor * static_cast<double>(scale->multiply) / static_cast<double>(scale->divide);
        }
        steps.convert();
    }
};

/// Throws DTypeError for changes that have no meaning. \pre change.is_active().
inline void check_change(PlanValue const& plan, ValueChange const& change) {
    if (!(change.factor - change.factor == 0.0)) {
        raise(ErrorCode::dtype, "reshard::prepare: the factor is not a finite number. Fix: scale by a number.");
    }
    if (!can_convert(change.from, change.to)) {
        raise(ErrorCode::dtype, "reshard::prepare: there is no cast from ", name(change.from), " to ", name(change.to),
              ". Fix: casts lead between integers, BOOL and floats of 16 bits and more; move other elements as they "
              "are.");
    }
    if (!can_convert(change.from, change.to, change.factor)) {
        raise(ErrorCode::dtype, "reshard::prepare: a factor of ", number_text(change.factor, 9), " from ",
              name(change.from), " to ", name(change.to),
              ". Fix: scale floats; cast integers to floats in a move of their own first.");
    }
    for (PlacementForm const& placement : plan.to.signature().placements) {
        if (!placement.is_partial()) continue;
        Reduce const op = placement.op();
        if (!supports(op, change.to)) {
            raise(ErrorCode::dtype, "reshard::prepare: ", name(op), " is not defined for ", name(change.to),
                  ", which the destination holds addends of. "
                  "Fix: cast to a type that has the op, or resolve the Partial first.");
        }
        if (change.factor != 1.0 && !is_linear(op) && !(is_ordered(op) && change.factor > 0.0)) {
            raise(ErrorCode::dtype, "reshard::prepare: a factor of ", number_text(change.factor, 9),
                  " for the addends of a ", name(op), " is not that factor for their ", name(op),
                  ". Fix: resolve the Partial, then scale.");
        }
    }
}

}  // namespace reshard::inline v0_1::detail
