// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/share.hpp
/// \brief  Which of several copies sends: the receivers of a piece lie end to end on a line, each copy serves a span.
/// \depends algebra (through grid).
///
/// A piece of the source is held by `holders` ranks. Everything that ranks without it need of it is laid out on a
/// line of `length` elements; copy h serves [h L / H, (h + 1) L / H). A message goes to the copy in whose span its
/// middle lies, and is cut first when it is longer than two spans. No copy then sends more than about twice the
/// fair share L / H, which no schedule can beat (replicas can only divide the same bytes).
#pragma once

#include <reshard/plan/detail/grid.hpp>

namespace reshard::inline v0::detail {

/// a * b / c without overflow. \pre c > 0, the result fits.
[[nodiscard]] inline Index multiply_divide(Index a, Index b, Index c) noexcept {
    __extension__ using Wide = __int128;
    return static_cast<Index>(static_cast<Wide>(a) * b / c);
}

/// The dimension along which a box is cut into `parts`: the outermost that is long enough, else the longest; -1 for a
/// scalar.
[[nodiscard]] inline int dim_to_cut(GridBox const& box, Index parts) noexcept {
    int best = -1;
    for (int dim = 0; dim < box.size(); ++dim) {
        if (box[dim].size() >= parts) return dim;
        if (best < 0 || box[dim].size() > box[best].size()) best = dim;
    }
    return best;
}

/// Calls `visit(copy, box)` for each part of a message of the line: [start, start + size(box)).
template <class Visit>
void share(GridBox const& box, Index start, Index length, Index holders, Visit& visit) {
    Index elements = 1;
    for (Interval interval : box) elements *= interval.size();
    Index parts = multiply_divide(elements, holders, length);
    int const dim = dim_to_cut(box, parts);
    Index const extent = dim < 0 ? 1 : box[dim].size();
    parts = smaller(parts, extent);
    if (parts >= 2) {
        Index const slice = elements / extent;
        SplitRule balanced;
        balanced.kind = SplitKind::balanced;
        for (Index i = 0; i < parts; ++i) {
            Interval const cut = part(balanced, extent, parts, i);
            GridBox piece = box;
            piece[dim] = {box[dim].begin + cut.begin, box[dim].begin + cut.end};
            share(piece, start + slice * cut.begin, length, holders, visit);  // a piece may still be long
        }
        return;
    }
    visit(smaller(multiply_divide(2 * start + elements, holders, 2 * length), holders - 1), box);
}

/// Row-major place of a box inside what one rank holds: elements of `sets` before the box, box by box.
[[nodiscard]] inline Index place(GridBox const& box, InlineList<IndexSet, max_grid_dims> const& sets) noexcept {
    Index before = 0;
    Index across = 1;  // elements of the box in the outer dimensions
    for (int dim = 0; dim < box.size(); ++dim) {
        Index inner = 1;
        for (int d = dim + 1; d < box.size(); ++d) inner *= sets[d].size();
        before += across * sets[dim].local_index(box[dim].begin) * inner;
        across *= box[dim].size();
    }
    return before;
}

}  // namespace reshard::inline v0::detail
