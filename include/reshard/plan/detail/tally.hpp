// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/tally.hpp
/// \brief  How many elements of a piece go to destinations that agree with a reference on certain axes.
/// \depends share; <vector>.
///
/// Parts of a cut have at most two sizes (boundaries apart), so whole parts are counted by multiplication, cut by cut,
/// and only the one that a position lies in is looked into: a million parts cost what a few cost.
#pragma once

#include <reshard/plan/detail/share.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// A family of a dimension where all that are counted lie end to end, by where they begin; the last is the end of all.
struct TallyTile {
    Index begin = 0;
    Index before = 0;  ///< elements in the tiles before this one
};
/// Puts in order those from `first` on, which come with their sizes in place of what is before them.
inline void add_up(std::vector<TallyTile>& tiles, std::size_t first) {
    std::span<TallyTile> const these(tiles.data() + first, tiles.size() - first);
    sort_list(these, [](TallyTile const& a, TallyTile const& b) { return a.begin < b.begin; });
    Index sum = 0;
    for (TallyTile& tile : these) tile.before = std::exchange(sum, sum + tile.before);
    tiles.push_back({INT64_MAX, sum});
}

/// The elements of a piece whose destination agrees with `reference` on `axes`, a product over dimensions: row-major,
/// message by message, each with a stretch of its own. Without axes all agree. Dimensions without blocks count
/// positions; of the others the families that agree are listed.
class Tally {
public:
    Tally() = default;
    /// Of no piece yet. \pre `to` outlives the tally.
    [[gnu::noinline]] Tally(Grid const& to, unsigned axes) : to_(&to), axes_(axes) {}
    Tally(Grid const& to, IndexSets const& sets, DimForms const& forms, Index reference = 0, unsigned axes = 0)
        : Tally(to, axes) {
        follow(sets, forms, reference);
    }

    /// Goes on to another piece: dimensions in which it is the same are not counted again, unless one is listed.
    void follow(IndexSets const& sets, DimForms const& forms, Index reference) {
        unsigned changed = 0;
        bool const anew = levels_.empty() || any_listed();
        if (anew) {
            tiles_.clear();
            levels_ = {};
            ends_ = 0;
        }
        for (int dim = 0; dim < sets.size(); ++dim)
            if (anew || !(sets[dim] == sets_[dim]) || !agrees(reference, dim)) changed |= 1U << dim;
        reference_ = reference;
        sets_ = sets;
        for (int dim = 0; dim < sets.size(); ++dim) {
            if (anew) {
                levels_.push_back(levels_of(dim));
                if (forms[dim].interleaved) list(dim, forms[dim].levels);
                ends_.push_back(as_index(tiles_.size()));
            }
            if (((changed >> dim) & 1U) != 0) count_dim(dim);
        }
        skipped_.count = totals_.count = sets.size();
    }

    [[nodiscard]] IndexSet const& set(int dim) const noexcept { return sets_[dim]; }
    [[nodiscard]] bool any_listed() const noexcept { return !tiles_.empty(); }
    [[nodiscard]] bool is_listed(int dim) const noexcept { return ends_[dim] != ends_[dim + 1]; }
    [[nodiscard]] Index elements() const noexcept {
        Index product = 1;
        for (Index total : totals_) product *= total;
        return product;
    }

    /// Whether a destination agrees with the reference on those of the axes that cut `dim`.
    [[nodiscard]] bool agrees(Index destination, int dim) const noexcept { return agree(destination, to_->cuts(dim)); }
    /// The same in all dimensions.
    [[nodiscard]] bool agrees(Index destination) const noexcept { return agree(destination, to_->all_cuts); }
    /// Indices before `position` along one dimension. \pre where it is listed, a family begins there, or it is the
    /// extent.
    [[nodiscard]] Index before(int dim, Index position) const noexcept {
        if (is_listed(dim)) {
            auto const begins_there = [&, this](Index i) { return tile(i).begin >= position; };
            return tile(first_where(ends_[dim], ends_[dim + 1] - 1, begins_there)).before;
        }
        Interval const span = sets_[dim].span();
        if (position <= span.begin) return 0;
        if (position >= span.end) return totals_[dim];
        return counted(dim, 0, extent(dim), position) - skipped_[dim];
    }
    /// Elements per index of `dim`, in the dimensions behind it.
    [[nodiscard]] Index inner(int dim) const noexcept {
        Index product = 1;
        for (int d = dim + 1; d < totals_.size(); ++d) product *= totals_[d];
        return product;
    }
    /// Elements before a message.
    [[nodiscard, gnu::noinline]] Index place(Message const& message, Index destination) const noexcept {
        Index sum = 0;
        Index across = 1;  // elements of the message in the outer dimensions
        for (int dim = 0; dim < message.box.size() && across != 0; ++dim) {
            sum += across * before(dim, message.box[dim].begin) * inner(dim);
            across *= agrees(destination, dim) ? message.extent(dim) : 0;
        }
        return sum;
    }

private:
    [[nodiscard]] TallyTile const& tile(Index i) const noexcept { return tiles_[as_size(i)]; }
    /// The cuts of a dimension up to the last one by any of the axes.
    [[nodiscard]] int levels_of(int dim) const noexcept {
        int levels = 0;
        int level = 0;
        for (GridCut const& cut : to_->cuts(dim)) {
            ++level;
            if ((to_->axes_of(cut) & axes_) != 0) levels = level;
        }
        return levels;
    }
    void list(int dim, int levels) {
        std::size_t const first = tiles_.size();
        to_->for_each_part(dim, sets_[dim], [&, this](IndexSet const& part, Index ordinal) {
            if (!agrees(ordinal, dim)) return;
            for_each_sent(sets_[dim], part, levels, [&, this](Segments const& segments) {
                tiles_.push_back({segments.first.begin, segments.size()});
            });
        });
        add_up(tiles_, first);
    }

    /// Which coordinates along a cut agree: those with coordinate / block % count == value. A cut can be by two axes
    /// of a finer mesh at once, of which the reference may concern one.
    struct Agreeing {
        Index block = 1;
        Index count = 1;
        Index value = 0;

        [[nodiscard]] bool has(Index coordinate) const noexcept { return coordinate / block % count == value; }
        /// Of the coordinates 0 .. limit - 1.
        [[nodiscard]] Index before(Index limit) const noexcept {
            Index const rest = limit % (block * count) - value * block;
            return limit / (block * count) * block + smaller(larger<Index>(rest, 0), block);
        }
    };
    [[nodiscard, gnu::noinline]] Agreeing agreeing(GridCut const& cut) const noexcept {
        unsigned const of_cut = to_->axes_of(cut);
        unsigned const wanted = of_cut & axes_;
        if (wanted == 0) return {};
        Index const coordinate = reference_ / cut.stride % cut.parts;
        if (wanted == of_cut) return {1, cut.parts, coordinate};
        Index const outer = to_->mesh->extent(cut.axis);
        Index const inner = cut.parts / outer;
        if (((wanted >> cut.axis) & 1U) != 0) return {inner, outer, coordinate / inner};
        return {1, inner, coordinate % inner};
    }
    [[nodiscard]] bool agree(Index destination, Grid::Cuts cuts) const noexcept {
        if (axes_ == 0) return true;
        for (GridCut const& cut : cuts)
            if (!agreeing(cut).has(destination / cut.stride % cut.parts)) return false;
        return true;
    }
    void count_dim(int dim) noexcept {
        if (is_listed(dim)) {
            totals_[dim] = before(dim, extent(dim));
            return;
        }
        Interval const span = sets_[dim].span();
        skipped_[dim] = counted(dim, 0, extent(dim), span.begin);
        totals_[dim] = counted(dim, 0, extent(dim), span.end) - skipped_[dim];
    }
    [[nodiscard]] Index extent(int dim) const noexcept { return to_->dims[dim].extent; }

    /// Of the first `position` indices of a span that the cuts from `level` on cut further. \pre not block-cyclic.
    [[nodiscard]] Index counted(int dim, int level, Index size, Index position) const noexcept {
        Index sum = 0;
        for (; level < levels_[dim] && position != 0; ++level) {
            GridCut const& cut = to_->all_cuts[to_->dims[dim].first + level];
            Agreeing const those = agreeing(cut);
            Index const i = part_of(cut.rule, size, cut.parts, position - 1);
            auto const add = [&, this](Index count, Index k) {  // so many parts of the size of part k
                if (count == 0) return;
                Index const part_size = part(cut.rule, size, cut.parts, k).size();
                sum += count * counted(dim, level + 1, part_size, part_size);
            };
            if (cut.rule.kind == SplitKind::boundaries) {
                for (Index k = 0; k < i; ++k) add(those.has(k) ? 1 : 0, k);
            } else {
                Index const as_first = those.before(parts_as_first(cut.rule, size, cut.parts, i));
                add(as_first, 0);
                add(those.before(i) - as_first, cut.parts - 1);
            }
            if (!those.has((i + cut.shift) % cut.parts)) return sum;  // only cuts of one index are shifted
            Interval const own = part(cut.rule, size, cut.parts, i);
            size = own.size();
            position -= own.begin;
        }
        return sum + position;
    }

    Grid const* to_ = nullptr;
    Index reference_ = 0;
    unsigned axes_ = 0;
    IndexSets sets_;
    std::vector<TallyTile> tiles_;
    InlineList<Index, max_grid_dims + 1> ends_;  ///< of the tiles of the dimensions before each
    InlineList<int, max_grid_dims> levels_;      ///< per dimension, as levels_of()
    InlineList<Index, max_grid_dims> skipped_;   ///< per dimension: indices before the piece begins
    InlineList<Index, max_grid_dims> totals_;
};

/// Visits those messages from a piece that lie around [first, last) of a line on which the elements `seen` without
/// those `left_out` (null: none) lie message by message, row-major. Along each dimension without blocks, what
/// can matter is found by bisection; of the others everything is visited.
class Narrowed {
public:
    Narrowed(Grid const& to, DimForms const& forms, Tally const& seen, Tally const* left_out, Interval line)
        : to_(to), forms_(forms), seen_(seen), left_out_(left_out), line_(line) {}

    /// Calls `visit(message, ordinal)` with whole messages, and perhaps with some outside of the line's interval.
    void for_each(MessageVisitor visit) const {
        Message message;
        walk(0, Outer{0, 0, 1, left_out_ != nullptr ? 1 : 0}, message, visit);
    }

private:
    /// The dimensions passed: what they add to the destination and to the place, and their elements.
    struct Outer {
        Index destination = 0;
        Index place = 0;
        Index seen = 1;
        Index left_out = 0;
    };
    /// Where on the line the elements from `position` on begin.
    [[nodiscard]] Index place(int dim, Outer const& outer, Index position) const noexcept {
        Index result = outer.place;
        if (outer.seen != 0) result += outer.seen * seen_.before(dim, position) * seen_.inner(dim);
        if (outer.left_out != 0) result -= outer.left_out * left_out_->before(dim, position) * left_out_->inner(dim);
        return result;
    }
    /// The lowest position of a dimension whose place is beyond `limit`; the span's end when there is none.
    [[nodiscard]] Index beyond(int dim, Outer const& outer, Interval span, Index limit) const noexcept {
        return first_where(span.begin, span.end, [&, this](Index at) { return place(dim, outer, at) > limit; });
    }
    [[nodiscard]] Interval narrowed(int dim, Outer const& outer) const noexcept {
        Interval span = seen_.set(dim).span();
        if (span.empty()) return span;
        if (place(dim, outer, span.end) > line_.end - 1) span.end = beyond(dim, outer, span, line_.end - 1);
        if (span.empty() || place(dim, outer, span.begin) >= line_.begin) return span;
        return {beyond(dim, outer, span, line_.begin) - 1, span.end};
    }

    void walk(int dim, Outer const& outer, Message& message, MessageVisitor visit) const {
        if (dim == forms_.size()) return visit(message, outer.destination);
        int const repeats = message.repeats.size();
        IndexSet const& set = seen_.set(dim);
        IndexSet const met = forms_[dim].interleaved ? set : IndexSet(narrowed(dim, outer));
        to_.for_each_part(dim, met, [&](IndexSet const& part, Index ordinal) {
            Index const destination = outer.destination + ordinal;
            for_each_sent(set, part, forms_[dim].levels, [&](Segments const& segments) {
                append(message, segments);
                Outer next{destination, 0, 1, 0};
                if (dim + 1 < forms_.size()) {  // else there is nothing left to narrow
                    bool const seen = seen_.agrees(destination, dim);
                    bool const left_out = left_out_ != nullptr && left_out_->agrees(destination, dim);
                    next.place = place(dim, outer, segments.first.begin);
                    next.seen = seen ? outer.seen * segments.size() : 0;
                    next.left_out = left_out ? outer.left_out * segments.size() : 0;
                }
                walk(dim + 1, next, message, visit);
                message.box.pop_back();
                message.repeats.count = repeats;
            });
        });
    }

    Grid const& to_;
    DimForms const& forms_;
    Tally const& seen_;
    Tally const* left_out_;
    Interval line_;
};

}  // namespace reshard::inline v0_1::detail
