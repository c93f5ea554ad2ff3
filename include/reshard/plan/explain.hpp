// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/explain.hpp
/// \brief  A plan in words: what moves, why, between whom, and how far that is from the bound.
/// \depends plan/plan.
#pragma once

#include <reshard/plan/plan.hpp>

namespace reshard::inline v0_1 {

namespace detail {
[[nodiscard]] std::string explain(Plan<> const& plan, TransitionKind kind, Index rank, DType dtype,
                                  Index fold_elements);
}

/// One rank's part of a plan as text of a few lines: the kind and the reason, each phase with peers and bytes, and
/// the bound beside the actual figure, or that no bound is known. `fold_elements` is what prepare() will be given
/// (PrepareOptions): it says in how many chunks, each with a part of every message, addends are exchanged and folded.
template <class From, class To>
[[nodiscard]] std::string explain(Plan<From, To> const& typed, Index rank, DType dtype, Index fold_elements = 0) {
    Plan<> const plan = typed;
    // Types know axes of size 1, values know the numbers of boundaries and blocks: what either proves local is local.
    return detail::explain(plan, detail::smaller(typed.kind(), plan.kind()), rank, dtype, fold_elements);
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/plan/explain.ipp>
#endif
