// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/box_move.hpp
/// \brief  BoxMove: a tensor that goes from one list of boxes to another, as one rank sees it.
/// \depends core, plan/box_table. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/core/reduce.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/plan/box_table.hpp>

#include <optional>  // optional

namespace reshard::inline v0_1 {

namespace detail {
struct BoxFolding;  // exec/detail/box_folds.hpp
[[nodiscard]] BoxFolding const& box_folding() noexcept;
}  // namespace detail

/// How boxes that share elements become one, where they are addends: in the order of their ranks, then of their list,
/// rounded once. An average is divided by how many boxes have the element.
struct BoxFold {
    BoxFold(Reduce how) noexcept : op(how), with(&detail::box_folding) {}  // NOLINT(google-explicit-constructor)
    Reduce op;
    /// A pointer, so that header-only programs that fold no boxes compile none of it.
    detail::BoxFolding const& (*with)() noexcept;
};

/// A tensor that goes from one list of boxes to another, as one rank sees it. All ranks give the same tables, element
/// type and name; `source` and `destination` are this rank's views of its boxes, none where it has no box.
struct BoxMove {
    BoxTable const& from;  ///< outlives this, as `to` and the lists of views do
    BoxTable const& to;
    DType dtype = DType::f32;
    std::span<ConstDynamicView const> source;
    std::span<DynamicView const> destination;
    std::string name{};  ///< for messages; part of the agreement
    /// Given, boxes of `from` that share elements are addends; otherwise they are copies. A source may then be the
    /// memory of the destination of an equal box; after a failure that is unspecified.
    std::optional<BoxFold> fold{};
};

}  // namespace reshard::inline v0_1
