// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/reduce.hpp
/// \brief  The eight reductions a Partial placement can owe, and what the algebra needs to know of each.
/// \depends core only. constexpr.
#pragma once

#include <reshard/core/dtype.hpp>

namespace reshard::inline v0_1 {

namespace enums {
enum class Reduce : std::uint8_t { sum, avg, min, max, product, band, bor, bxor };
}  // namespace enums
using enums::Reduce;

namespace detail {
struct OpProperties {
    std::string_view symbol;
    std::string_view name;
    bool has_identity;
    bool is_idempotent;
    bool is_bitwise;
    bool is_linear;
    bool is_ordered;
};
// clang-format off
/// A row an op, in the order of Reduce.
inline constexpr OpProperties op_properties[] = {
    //               identity  idempotent  bitwise  linear  ordered
    {"+",   "sum",       true,      false,   false,   true,   false},
    {"avg", "avg",      false,       true,   false,   true,   false},
    {"<",   "min",       true,       true,   false,  false,    true},
    {">",   "max",       true,       true,   false,  false,    true},
    {"*",   "product",   true,      false,   false,  false,   false},
    {"&",   "band",      true,       true,    true,  false,   false},
    {"|",   "bor",       true,       true,    true,  false,   false},
    {"^",   "bxor",      true,      false,    true,  false,   false},
};
// clang-format on
[[nodiscard]] constexpr OpProperties const& properties_of(Reduce op) noexcept {
    return op_properties[static_cast<int>(op)];
}
}  // namespace detail

inline constexpr int reduce_count = sizeof(detail::op_properties) / sizeof(detail::OpProperties);

namespace enums {
/// How the notation writes it after `P`: `P+ Pavg P< P> P* P& P| P^`.
[[nodiscard]] constexpr std::string_view symbol(Reduce op) noexcept { return detail::properties_of(op).symbol; }

[[nodiscard]] constexpr std::string_view name(Reduce op) noexcept { return detail::properties_of(op).name; }

/// Whether there is a value that changes nothing: an average has none, so nothing can be filled in for it.
[[nodiscard]] constexpr bool has_identity(Reduce op) noexcept { return detail::properties_of(op).has_identity; }

/// op(x, x) == x: copies may owe the reduction as they are.
[[nodiscard]] constexpr bool is_idempotent(Reduce op) noexcept { return detail::properties_of(op).is_idempotent; }

/// band, bor, bxor: meaningless on floats.
[[nodiscard]] constexpr bool is_bitwise(Reduce op) noexcept { return detail::properties_of(op).is_bitwise; }

/// sum and avg differ by a factor only: between them a placement is scaled locally.
[[nodiscard]] constexpr bool is_linear(Reduce op) noexcept { return detail::properties_of(op).is_linear; }

/// min and max pick an addend: which one depends on signs, and positive factors change nothing about it.
[[nodiscard]] constexpr bool is_ordered(Reduce op) noexcept { return detail::properties_of(op).is_ordered; }

/// Whether `op` can be folded over elements of `dtype`: arithmetic on numbers, bits on integers and booleans,
/// averages on floats (an average of integers would be rounded, and silently); of complex numbers sums and averages,
/// which are those of two floats (as torch.distributed has them).
[[nodiscard]] constexpr bool supports(Reduce op, DType dtype) noexcept {
    if (dtype == DType::c64) return is_linear(op);
    if (is_bitwise(op)) return is_integer(dtype) || dtype == DType::boolean;
    if (op == Reduce::avg) return is_floating(dtype);
    return is_floating(dtype) || is_integer(dtype);
}
/// The ops that are supported, as messages list them.
[[nodiscard]] constexpr std::string_view supported_ops(DType dtype) noexcept {
    constexpr std::string_view all = "avg, sum, min, max, product, band, bor, bxor";
    constexpr std::size_t order = all.find(", min");
    constexpr std::size_t bits = all.find(", band");
    if (dtype == DType::c64) return all.substr(0, order);
    if (is_floating(dtype)) return all.substr(0, bits);
    if (is_integer(dtype)) return all.substr(all.find("sum"));
    return dtype == DType::boolean ? all.substr(bits + 2) : "none: it is only moved";
}
}  // namespace enums

namespace detail {
/// Throws DTypeError for an op that an element type does not have.
inline void check_op(std::string_view who, Reduce op, std::string_view lacks, DType dtype) {
    if (supports(op, dtype)) return;
    raise(ErrorCode::dtype, "reshard::", who, ": ", name(op), lacks, name(dtype), ". Fix: use an op that it has (",
          supported_ops(dtype), ").");
}
}  // namespace detail

}  // namespace reshard::inline v0_1
