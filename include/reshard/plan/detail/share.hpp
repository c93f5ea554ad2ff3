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

namespace reshard::inline v0::detail {

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
    SplitRule balanced;
    balanced.kind = SplitKind::balanced;
    for (Index i = 0; i < parts; ++i) {
        Interval const cut = part(balanced, loop.extent, parts, i);
        share(slice(message, loop, cut), start + step * cut.begin, length, holders, visit);  // may still be long
    }
}

/// Numbers the places of a piece: every message from it gets a stretch of its own, [place, place + elements).
/// Dimensions without blocks count positions; of the others the families are listed.
class Places {
public:
    /// Where one family of a dimension lies when all of them are laid end to end, by where they begin.
    struct Tile {
        Index begin = 0;
        Index before = 0;      ///< elements of the piece in the tiles before this one
        Index own_before = 0;  ///< of these, the ones the piece's own side needs
    };

    Places() = default;
    /// `is_own(dim, ordinal)`: whether a part of the other side counts for Tile::own_before.
    Places(Grid const& other, InlineList<IndexSet, max_grid_dims> const& sets, DimForms const& forms,
           FunctionRef<bool(int dim, Index ordinal)> is_own)
        : sets_(sets) {
        for (int dim = 0; dim < sets.size(); ++dim) {
            begin_.push_back(static_cast<Index>(tiles_.size()));
            if (forms[dim].interleaved) list(other, dim, forms[dim].levels, is_own);
            elements_ *= sets[dim].size();
        }
        begin_.push_back(static_cast<Index>(tiles_.size()));
    }
    [[nodiscard]] IndexSet const& set(int dim) const noexcept { return sets_[dim]; }
    [[nodiscard]] bool any_listed() const noexcept { return !tiles_.empty(); }
    [[nodiscard]] Index elements() const noexcept { return elements_; }

    /// Goes on to another piece of the same grid. \pre no dimension is listed.
    void follow(InlineList<IndexSet, max_grid_dims> const& sets) noexcept {
        sets_ = sets;
        elements_ = 1;
        for (IndexSet const& set : sets) elements_ *= set.size();
    }

    [[nodiscard]] bool is_listed(int dim) const noexcept { return begin_[dim] != begin_[dim + 1]; }
    /// The family that begins at `begin`; from the extent on, the end of all. \pre is_listed(dim).
    [[nodiscard]] Tile const& tile(int dim, Index begin) const noexcept {
        Index low = begin_[dim];
        Index high = begin_[dim + 1] - 1;
        while (low < high) {
            Index const middle = low + (high - low) / 2;
            if (tiles_[static_cast<std::size_t>(middle)].begin < begin) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return tiles_[static_cast<std::size_t>(low)];
    }

    /// Indices of the piece before `position` along one dimension.
    [[nodiscard]] Index before(int dim, Index position) const noexcept {
        return is_listed(dim) ? tile(dim, position).before : sets_[dim].local_index(position);
    }
    /// Elements per index of `dim`, in the dimensions behind it.
    [[nodiscard]] Index inner(int dim) const noexcept {
        Index product = 1;
        for (int d = dim + 1; d < sets_.size(); ++d) product *= sets_[d].size();
        return product;
    }

    /// Row-major, message by message.
    [[nodiscard]] Index place(Message const& message) const noexcept {
        Index sum = 0;
        Index across = 1;  // elements of the message in the outer dimensions
        for (int dim = 0; dim < message.box.size(); ++dim) {
            sum += across * before(dim, message.box[dim].begin) * inner(dim);
            across *= message.extent(dim);
        }
        return sum;
    }

private:
    void list(Grid const& other, int dim, int levels, FunctionRef<bool(int dim, Index ordinal)> is_own) {
        std::vector<Tile> tiles;  // with their sizes, then with those before them
        other.for_each_part(dim, sets_[dim], [&](IndexSet const& part, Index ordinal) {
            bool const own = is_own(dim, ordinal);
            for_each_sent(sets_[dim], part, levels, [&](Segments const& segments) {
                tiles.push_back({segments.first.begin, segments.size(), own ? segments.size() : 0});
            });
        });
        sort_list(tiles, [](Tile const& a, Tile const& b) { return a.begin < b.begin; });
        Tile sum;
        for (Tile const& sizes : tiles) {
            tiles_.push_back({sizes.begin, sum.before, sum.own_before});
            sum.before += sizes.before;
            sum.own_before += sizes.own_before;
        }
        tiles_.push_back({INT64_MAX, sum.before, sum.own_before});
    }

    InlineList<IndexSet, max_grid_dims> sets_;
    InlineList<Index, max_grid_dims + 1> begin_;  ///< of the tiles of a dimension
    std::vector<Tile> tiles_;
    Index elements_ = 1;
};

}  // namespace reshard::inline v0::detail
