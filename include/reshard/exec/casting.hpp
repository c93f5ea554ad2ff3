// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/casting.hpp
/// \brief  Casts and factors on the way: what Casting{} and PrepareOptions::factor take.
/// \depends exec/prepare.hpp, memory/convert.hpp; <cstdio>. An include of its own: the umbrella does not have it.
///
///     redistribute(plan, comm, gradient.view(), master.view(), Casting{0.25});      // BF16 to F32, a quarter of it
///     redistribute(plan, comm, master.view(), scaled.view(), PrepareOptions{.factor = 0.5});
#pragma once

#include <reshard/exec/prepare.hpp>
#include <reshard/memory/convert.hpp>

#include <cstdio>  // snprintf

namespace reshard::inline v0::detail {

struct ValueChanging {
    [[nodiscard]] static consteval bool can_cast(DType from, DType to) { return can_convert(from, to); }

private:
    [[nodiscard]] static std::string number(double value) {
        char text[32];
        std::snprintf(text, sizeof text, "%.9g", value);
        return text;
    }

    /// \pre change.is_active().
    static void check(Plan<> const& plan, ValueChange const& change) {
        if (!(change.factor - change.factor == 0.0)) {
            raise(ErrorCode::dtype, "reshard::prepare: the factor is not a finite number. Fix: scale by a number.");
        }
        if (!can_convert(change.from, change.to)) {
            raise(ErrorCode::dtype,
                  concat("reshard::prepare: there is no cast from ", name(change.from), " to ", name(change.to),
                         ". Fix: cast numbers and booleans of at least a byte; move "
                         "other elements as they are."));
        }
        if (!can_convert(change.from, change.to, change.factor)) {
            raise(
                ErrorCode::dtype,
                concat("reshard::prepare: a factor of ", number(change.factor), " from ", name(change.from), " to ",
                       name(change.to), ". Fix: scale floats; cast integers to floats in a move of their own first."));
        }
        for (int axis = 0; axis < plan.to().mesh().axes(); ++axis) {
            Placement const& placement = plan.to().placement(axis);
            if (!placement.is_partial()) continue;
            Reduce const op = placement.op();
            if (!supports(op, change.to)) {
                raise(ErrorCode::dtype, concat("reshard::prepare: ", name(op), " is not defined for ", name(change.to),
                                               ", which the destination holds addends of. "
                                               "Fix: cast to a type that has the op, or resolve the Partial first."));
            }
            bool const sums = op == Reduce::sum || op == Reduce::avg;
            bool const ordered = (op == Reduce::min || op == Reduce::max) && change.factor > 0.0;
            if (change.factor != 1.0 && !sums && !ordered) {
                raise(ErrorCode::dtype, concat("reshard::prepare: a factor of ", number(change.factor),
                                               " for the addends of a ", name(op), " is not that factor for their ",
                                               name(op), ". Fix: resolve the Partial, then scale."));
            }
        }
    }

public:
    static constexpr ChangeMethods methods{convert<std::byte>, check, number};
};

}  // namespace reshard::inline v0::detail
