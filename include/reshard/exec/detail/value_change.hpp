// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/value_change.hpp
/// \brief  What becomes of values between the source and the destination of a plan: a cast, a factor, or nothing.
/// \depends plan, core.
///
/// Values are what they were in the source until the one hop that brings them into the destination: addends are folded
/// in the source's type, and every value is converted once, by that hop or, where the fold was the last thing, after
/// it or with it. How is what exec/casting.hpp knows; whoever asks for a change names its methods.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0::detail {

struct ValueChange;

/// What only moves that cast or scale need.
struct ChangeMethods {
    ConvertBox convert;
    void (*check)(Plan<> const& plan, ValueChange const& change);  ///< throws for changes that have no meaning
    std::string (*number)(double number);                          ///< factors in messages
};
struct ValueChanging;  // exec/casting.hpp

template <class Changing = ValueChanging>
[[nodiscard]] constexpr ChangeMethods const* change_methods() noexcept {
    static_assert(
        requires { sizeof(Changing); },
        "reshard: casts and factors are an include of their own. "
        "Fix: #include <reshard/exec/casting.hpp>.");
    return &Changing::methods;
}

/// An option that changes values, and the methods it takes.
template <class T>
struct ChangeOption {
    T value;
    ChangeMethods const* methods;

    constexpr ChangeOption(T given, ChangeMethods const* by) noexcept : value(given), methods(by) {}
    template <std::convertible_to<T> Given, class Changing = ValueChanging>
    constexpr ChangeOption(Given given) noexcept : ChangeOption(given, change_methods<Changing>()) {}
    [[nodiscard]] constexpr operator T() const noexcept { return value; }
};

struct ValueChange {
    DType from = DType::u8;
    DType to = DType::u8;
    double factor = 1.0;
    ChangeMethods const* methods = nullptr;

    [[nodiscard]] constexpr bool is_active() const noexcept { return methods != nullptr; }
    /// The smaller type travels; of two alike, the source's.
    [[nodiscard]] constexpr DType wire() const noexcept { return bytes(to) < bytes(from) ? to : from; }
    /// The two sides of the hop. The one that has the other type converts, and applies the factor.
    [[nodiscard]] constexpr Conversion send() const noexcept {
        if (!is_active()) return {};
        return {from, wire(), wire() == from ? 1.0 : factor, methods->convert};
    }
    [[nodiscard]] constexpr Conversion receive() const noexcept {
        if (!is_active()) return {};
        return {to, wire(), wire() == from ? factor : 1.0, methods->convert};
    }
};

/// The change that was asked for. A plan that turns sums into averages has a factor of its own, and where there is a
/// change the two are one, so that values are rounded once.
/// On ranks that have no source, its type counts only if a cast was asked for.
[[nodiscard]] inline ValueChange value_change(Plan<> const& plan, Steps const& steps, int rank,
                                              ConstDynamicView const& source, DynamicView const& destination,
                                              ChangeOption<double> factor, ChangeOption<bool> cast) {
    ValueChange change;
    DType const dtype = plan.from().contains(rank) ? source.dtype() : destination.dtype();
    change.from = cast.value ? source.dtype() : dtype;
    change.to = cast.value ? destination.dtype() : dtype;
    if (change.from == change.to && factor.value == 1.0) return change;
    change.methods = cast.value ? cast.methods : factor.methods;
    change.factor = factor.value * static_cast<double>(steps.multiply) / static_cast<double>(steps.divide);
    return change;
}

/// A fold that would write into the destination writes into the workspace, from where its result is converted.
[[nodiscard]] inline Steps changed_steps(Steps steps, bool changes) {
    if (changes && steps.fold) steps.stages[0].place = Place::workspace;
    return steps;
}

}  // namespace reshard::inline v0::detail
