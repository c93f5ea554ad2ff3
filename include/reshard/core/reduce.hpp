// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/reduce.hpp
/// \brief  The eight reductions a Partial placement can owe, and what the algebra needs to know of each.
/// \depends core only. constexpr.
#pragma once

#include <reshard/core/dtype.hpp>

#include <string_view>  // string_view

namespace reshard::inline v0 {

enum class Reduce : std::uint8_t { sum, avg, min, max, product, band, bor, bxor };

inline constexpr int reduce_count = 8;

/// How the notation writes it after `P`: `P+ Pavg P< P> P* P& P| P^`.
[[nodiscard]] constexpr std::string_view symbol(Reduce op) noexcept {
    constexpr std::string_view symbols[] = {"+", "avg", "<", ">", "*", "&", "|", "^"};
    return symbols[static_cast<int>(op)];
}

[[nodiscard]] constexpr std::string_view name(Reduce op) noexcept {
    constexpr std::string_view names[] = {"sum", "avg", "min", "max", "product", "band", "bor", "bxor"};
    return names[static_cast<int>(op)];
}

/// Whether there is a value that changes nothing: an average has none, so nothing can be filled in for it.
[[nodiscard]] constexpr bool has_identity(Reduce op) noexcept { return op != Reduce::avg; }

/// op(x, x) == x: copies may owe the reduction as they are.
[[nodiscard]] constexpr bool is_idempotent(Reduce op) noexcept {
    return op == Reduce::min || op == Reduce::max || op == Reduce::band || op == Reduce::bor;
}

/// band, bor, bxor: meaningless on floats.
[[nodiscard]] constexpr bool is_bitwise(Reduce op) noexcept {
    return op == Reduce::band || op == Reduce::bor || op == Reduce::bxor;
}

/// sum and avg differ by a factor only: between them a placement is scaled locally.
[[nodiscard]] constexpr bool is_linear(Reduce op) noexcept { return op == Reduce::sum || op == Reduce::avg; }

/// Whether `op` can be folded over elements of `dtype`: arithmetic on numbers, bits on integers and booleans,
/// averages on floats (an average of integers would be rounded, and silently).
[[nodiscard]] constexpr bool supports(Reduce op, DType dtype) noexcept {
    if (is_bitwise(op)) return is_integer(dtype) || dtype == DType::boolean;
    if (op == Reduce::avg) return is_floating(dtype);
    return is_floating(dtype) || is_integer(dtype);
}

}  // namespace reshard::inline v0
