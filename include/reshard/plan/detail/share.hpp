// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/share.hpp
/// \brief  Which of several copies sends: the receivers of a piece lie end to end on a line, each copy serves a span.
/// \depends message.
///
/// A piece of the source is held by `holders` ranks. Everything that ranks without it need of it is laid out on a
/// line of `length` elements; copy h serves [h L / H, (h + 1) L / H). A message goes to the copy in whose span its
/// middle lies, and is cut first when it is longer than two spans. No copy then sends more than about twice the
/// fair share L / H, which no schedule can beat (replicas can only divide the same bytes).
#pragma once

#include <reshard/core/sorting.hpp>
#include <reshard/plan/message.hpp>

namespace reshard::inline v0_1::detail {

[[noreturn]] inline void raise_uncounted() {
    raise(ErrorCode::shape,
          "reshard::plan: what one rank sends, receives or folds is more elements than 64 bits count. "
          "Fix: plan a smaller tensor of the same placements and scale.");
}
/// total += count * elements. Throws ShapeError when that does not fit.
inline void add_elements(Index& total, Index elements, Index count = 1) {
    if (!add_fits(total, elements, count)) raise_uncounted();
}
/// What `receivers` of a piece of so many elements need at most. Throws ShapeError when it does not fit.
[[nodiscard]] inline Index line_elements(Index receivers, Index elements) {
    Index length = 0;
    add_elements(length, elements, receivers);
    return length;
}

/// a * b / c without overflow. \pre c > 0, the result fits.
[[nodiscard]] inline Index multiply_divide(Index a, Index b, Index c) noexcept {
    __extension__ using Wide = __int128;
    return static_cast<Index>(static_cast<Wide>(a) * b / c);
}

/// A copy's span of the line, one element wider on each side against rounding.
[[nodiscard]] inline Interval span_of(Index length, Index copy, Index copies) noexcept {
    return {larger<Index>(multiply_divide(length, copy, copies) - 1, 0),
            smaller(multiply_divide(length, copy + 1, copies), length - 1) + 1};
}

/// Takes a message, and the ordinal of the ranks it goes to or comes from.
using MessageVisitor = FunctionRef<void(Message const& message, Index ordinal)>;

/// One of the loops of a message, outer to inner: a repeat of a dimension or, where `repeat` is negative, its box.
struct Loop {
    int dim = -1;  ///< -1: there is none, as in a scalar
    int repeat = -1;
    Index extent = 1;
};

/// The loop along which a message is cut into `parts`: the outermost that is long enough, else the longest.
[[nodiscard]] inline Loop loop_to_cut(Message const& message, Index parts) noexcept {
    Loop best;
    int repeat = 0;
    for (int dim = 0; dim < message.box.size(); ++dim) {
        for (; repeat < message.repeats.size() && message.repeats[repeat].dim == dim; ++repeat) {
            Loop const loop{dim, repeat, message.repeats[repeat].count};
            if (loop.extent >= parts) return loop;
            if (best.dim < 0 || loop.extent > best.extent) best = loop;
        }
        Loop const loop{dim, -1, message.box[dim].size()};
        if (loop.extent >= parts) return loop;
        if (best.dim < 0 || loop.extent > best.extent) best = loop;
    }
    return best;
}

/// The part [cut.begin, cut.end) of a message along a loop.
[[nodiscard]] inline Message slice(Message const& message, Loop const& loop, Interval cut) noexcept {
    Message piece = message;
    Interval& first = piece.box[loop.dim];
    if (loop.repeat < 0) {
        first = {first.begin + cut.begin, first.begin + cut.end};
        return piece;
    }
    Index const shift = cut.begin * message.repeats[loop.repeat].pitch;
    first = {first.begin + shift, first.end + shift};
    piece.repeats[loop.repeat].count = cut.size();
    if (cut.size() > 1) return piece;
    for (int i = loop.repeat; i + 1 < piece.repeats.size(); ++i) piece.repeats[i] = piece.repeats[i + 1];
    piece.repeats.pop_back();
    return piece;
}

/// Calls `visit(copy, part)` for each part of a message of the line: [start, start + message.elements()).
inline void share(Message const& message, Index start, Index length, Index holders,
                  FunctionRef<void(Index copy, Message const& part)> visit) {
    Index const elements = message.elements();
    Index const wanted = multiply_divide(elements, holders, length);
    Loop const loop = wanted < 2 ? Loop{} : loop_to_cut(message, wanted);
    Index const parts = smaller(wanted, loop.extent);
    if (parts < 2) {
        __extension__ using Wide = __int128;  // twice the middle of the message may not fit
        Wide const copy = (2 * static_cast<Wide>(start) + elements) * holders / (2 * static_cast<Wide>(length));
        visit(smaller(static_cast<Index>(copy), holders - 1), message);
        return;
    }
    Index const step = elements / loop.extent;
    for (Index i = 0; i < parts; ++i) {
        Interval const cut = part({SplitKind::balanced, nullptr}, loop.extent, parts, i);
        share(slice(message, loop, cut), start + step * cut.begin, length, holders, visit);  // may still be long
    }
}

}  // namespace reshard::inline v0_1::detail
