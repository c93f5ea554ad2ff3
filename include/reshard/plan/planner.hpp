// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/planner.hpp
/// \brief  What one rank sends to whom and receives from whom between two grids, in closed form.
/// \depends algebra; <algorithm>, <vector>. No communication: both sides derive the same list from rank numbers.
///
/// Cost grows with the pieces a rank's box meets; only between meshes that share ranks, where the source has copies, it
/// grows with all receivers of those pieces. Copies on the source side are chosen so that the load is shared
/// (detail/share.hpp); a rank that holds what it needs never asks for it.
///
/// `Grid` is detail::Grid: templates, so that only files that plan an exchange compile the planner.
#pragma once

#include <reshard/plan/detail/share.hpp>

#include <algorithm>  // sort
#include <vector>     // vector

namespace reshard::inline v0 {

/// A box of the global index space that travels between this rank and `peer`. Behind the tensor's dimensions come
/// the addends, when a partial tensor is folded.
struct Message {
    Index peer = 0;
    detail::GridBox box;

    [[nodiscard]] constexpr Index elements() const noexcept {
        Index product = 1;
        for (Interval interval : box) product *= interval.size();
        return product;
    }
};

/// One rank's part of one exchange: sorted by peer, then by box, so that the k-th send of s to d is the k-th receive
/// of d from s.
struct Exchange {
    std::vector<Message> sends;
    std::vector<Message> receives;
    std::vector<Message> kept;  ///< boxes the rank needs and holds itself; peer is the rank
};

namespace detail {

template <class Messages>
void sort_messages(Messages& messages) {
    std::sort(messages.begin(), messages.end(), [](Message const& a, Message const& b) {
        if (a.peer != b.peer) return a.peer < b.peer;
        for (int dim = 0; dim < a.box.size(); ++dim) {
            if (a.box[dim].begin != b.box[dim].begin) return a.box[dim].begin < b.box[dim].begin;
        }
        return false;
    });
}

/// One piece of a dimension on the other side, and what its axes add to the ordinal.
struct Piece {
    Interval interval;
    Index ordinal = 0;
};

/// The pieces of `grid` that meet `sets`, dimension by dimension; their products are the boxes that meet.
template <class Grid>
class Meeting {
public:
    Meeting(Grid const& grid, InlineList<IndexSet, max_grid_dims> const& sets) {
        for (int dim = 0; dim < sets.size(); ++dim) {
            begin_.push_back(static_cast<Index>(pieces_.size()));
            for (Index k = 0; k < sets[dim].segments(); ++k) {
                grid.for_each_piece(dim, sets[dim].segment(k), [&](Interval interval, Index ordinal) {
                    pieces_.push_back({interval, ordinal});
                });
            }
        }
        begin_.push_back(static_cast<Index>(pieces_.size()));
    }

    /// Calls `visit(box, ordinal)` for every box, row-major.
    template <class Visit>
    void for_each(Visit&& visit) const {
        GridBox box;
        for (int dim = 0; dim + 1 < begin_.size(); ++dim) box.push_back({});
        walk(0, 0, box, visit);
    }

private:
    template <class Visit>
    void walk(int dim, Index ordinal, GridBox& box, Visit& visit) const {
        if (dim + 1 == begin_.size()) {
            visit(box, ordinal);
            return;
        }
        for (Index i = begin_[dim]; i < begin_[dim + 1]; ++i) {
            Piece const& piece = pieces_[static_cast<std::size_t>(i)];
            box[dim] = piece.interval;
            walk(dim + 1, ordinal + piece.ordinal, box, visit);
        }
    }

    std::vector<Piece> pieces_;
    InlineList<Index, max_grid_dims + 1> begin_;
};

[[nodiscard]] inline InlineList<IndexSet, max_grid_dims> index_sets(Grid const& grid, Index ordinal) {
    InlineList<IndexSet, max_grid_dims> sets;
    for (int dim = 0; dim < grid.dims.size(); ++dim) sets.push_back(grid.index_set(ordinal, dim));
    return sets;
}

[[nodiscard]] inline Index product_size(InlineList<IndexSet, max_grid_dims> const& sets) noexcept {
    Index product = 1;
    for (auto const& set : sets) product *= set.size();
    return product;
}

/// Narrows what is visited of a piece to the places [first, last) on its line: cuts the outermost dimension, where
/// both sides hold intervals, and restores the whole of a box that was cut.
template <class Grid>
class Narrowed {
public:
    Narrowed(Grid const& to, InlineList<IndexSet, max_grid_dims> const& sets, Index first, Index last)
        : to_(to), whole_(sets), sets_(sets) {
        possible_ = !sets.empty() && sets[0].is_interval() &&
                    (to.dims[0].cuts.empty() || to.dims[0].cuts.back().rule->kind != SplitKind::cyclic);
        if (!possible_) return;
        Index inner = 1;
        for (int dim = 1; dim < sets.size(); ++dim) inner *= sets[dim].size();
        Index const origin = sets[0].span().begin;
        Index const begin = origin + larger<Index>(first, 0) / inner;
        Index const end = origin + ceil_div(larger<Index>(last, 0), inner);
        sets_[0] = IndexSet(intersect(sets[0].span(), {begin, end}));
    }

    /// Calls `visit(box, ordinal)` with whole boxes only.
    template <class Visit>
    void for_each(Visit&& visit) const {
        Meeting(to_, sets_).for_each([&](GridBox box, Index destination) {
            if (possible_) box[0] = intersect(whole_[0].span(), to_.index_set(destination, 0).span());
            visit(box, destination);
        });
    }

private:
    Grid const& to_;
    InlineList<IndexSet, max_grid_dims> const& whole_;
    InlineList<IndexSet, max_grid_dims> sets_;
    bool possible_ = false;
};

/// Both grids on one mesh. Axes fall into four classes: those that cut neither grid keep their coordinate; X cuts
/// only the destination, so the source has copies along it; Y cuts only the source, so the destination has copies
/// along it; Z cuts both. Ranks that share (Y, Z) hold the same piece; the receivers of a box share (X, Z).
template <class Grid>
class SameMesh {
public:
    SameMesh(Grid const& from, Grid const& to)
        : from_(from),
          to_(to),
          copies_(*from.mesh, to.cutting & ~from.cutting),
          receivers_(*from.mesh, from.cutting & ~to.cutting),
          kept_(*from.mesh, all_axes(*from.mesh) & ~(from.cutting | to.cutting)),
          both_(from.cutting & to.cutting) {}

    void plan(Index rank, Exchange& exchange) const {
        Index const own = from_.mesh->ordinal(rank);
        plan_receives(own, exchange);
        plan_sends(own, exchange);
    }

private:
    /// A piece of the source with copies: its measures for the line of share().
    struct Line {
        InlineList<IndexSet, max_grid_dims> sets;  ///< the piece
        InlineList<Index, max_grid_dims> own;      ///< |B_d|: elements whose destination agrees with the piece on Z
        Index ordinal = 0;                         ///< of the axes that cut the source
        Index elements = 0;
        Index length = 0;
    };

    static unsigned all_axes(DynamicMesh const& mesh) noexcept { return (1U << mesh.axes()) - 1U; }

    /// Whether an ordinal agrees with the piece on every Z axis that cuts `dim` of the destination.
    [[nodiscard]] bool agrees(Index destination, Index piece, int dim) const noexcept {
        for (GridCut const& cut : to_.dims[dim].cuts) {
            if (((both_ >> cut.axis) & 1U) == 0) continue;
            if (to_.coordinate(destination, cut) != to_.coordinate(piece, cut)) return false;
        }
        return true;
    }
    [[nodiscard]] bool shares_dim(int dim) const noexcept {
        for (GridCut const& cut : to_.dims[dim].cuts)
            if (((both_ >> cut.axis) & 1U) != 0) return true;
        return false;
    }
    /// Elements of the piece before `position` whose destination agrees with the piece on the Z axes of `dim`.
    [[nodiscard]] Index own_before(Line const& line, int dim, Index position) const {
        IndexSet const& set = line.sets[dim];
        if (!shares_dim(dim)) return set.local_index(position);
        Index count = 0;
        for (Index k = 0; k < set.segments() && set.segment(k).begin < position; ++k) {
            Interval const query = intersect(set.segment(k), {0, position});
            to_.for_each_piece(dim, query, [&](Interval interval, Index ordinal) {
                if (agrees(ordinal, line.ordinal, dim)) count += interval.size();
            });
        }
        return count;
    }

    [[nodiscard]] Line line_of(Index piece) const {
        Line line;
        line.ordinal = piece;
        line.sets = index_sets(from_, piece);
        line.elements = product_size(line.sets);
        Index own = 1;
        for (int dim = 0; dim < line.sets.size(); ++dim) {
            line.own.push_back(own_before(line, dim, to_.dims[dim].extent));
            own *= line.own[dim];
        }
        line.length = receivers_.size() * line.elements - own;
        return line;
    }

    /// Where a receiver's box starts on the line. Receivers with the Y coordinates of the piece come last, without
    /// the part that is at home: in a product of dimensions that part is again a product, so it can be counted.
    [[nodiscard]] Index start(Line const& line, GridBox const& box, Index destination) const {
        Index const position = place(box, line.sets);
        Index const count = receivers_.size();
        Index const turn = (receivers_.index(destination) - receivers_.index(line.ordinal) + count) % count;
        if (turn != 0) return (turn - 1) * line.elements + position;
        Index own_position = 0;
        Index across = 1;
        for (int dim = 0; dim < box.size() && across != 0; ++dim) {
            Index inner = 1;
            for (int d = dim + 1; d < box.size(); ++d) inner *= line.own[d];
            own_position += across * own_before(line, dim, box[dim].begin) * inner;
            across *= agrees(destination, line.ordinal, dim) ? box[dim].size() : 0;
        }
        return (count - 1) * line.elements + position - own_position;
    }

    void plan_receives(Index own, Exchange& exchange) const {
        Meeting const meeting(from_, index_sets(to_, own));
        Index const own_piece = from_.cutting_ordinal(own);
        Index const same = kept_.ordinal(kept_.index(own));
        meeting.for_each([&](GridBox const& box, Index piece) {
            if (piece == own_piece) {
                exchange.kept.push_back({from_.mesh->rank_at(own), box});
                return;
            }
            if (copies_.size() == 1) {
                exchange.receives.push_back({from_.mesh->rank_at(piece + same), box});
                return;
            }
            Line const line = line_of(piece);
            auto const receive = [&](Index copy, GridBox const& part) {
                exchange.receives.push_back({from_.mesh->rank_at(piece + same + copies_.ordinal(copy)), part});
            };
            share(box, start(line, box, own), line.length, copies_.size(), receive);
        });
    }

    void plan_sends(Index own, Exchange& exchange) const {
        InlineList<IndexSet, max_grid_dims> const sets = index_sets(from_, own);
        if (product_size(sets) == 0) return;
        Index const piece = from_.cutting_ordinal(own);
        Index const same = kept_.ordinal(kept_.index(own));
        Index const own_turn = receivers_.index(own);
        if (copies_.size() == 1) {
            Meeting(to_, sets).for_each([&](GridBox const& box, Index destination) {
                for (Index y = 0; y < receivers_.size(); ++y) {
                    Index const receiver = destination + same + receivers_.ordinal(y);
                    if (receiver == own) continue;
                    exchange.sends.push_back({from_.mesh->rank_at(receiver), box});
                }
            });
            return;
        }
        Line const line = line_of(piece);
        if (line.length == 0) return;
        Index const copy = copies_.index(own);
        Index const copies = copies_.size();
        // My span of the line, one element wider on each side against rounding.
        Index const first = multiply_divide(line.length, copy, copies) - 1;
        Index const last = multiply_divide(line.length, copy + 1, copies) + 1;
        Index const count = receivers_.size();
        Index const first_turn = smaller(larger<Index>(first, 0) / line.elements + 1, count);
        Index const last_turn = smaller(last / line.elements + 1, count);
        for (Index turn = first_turn; turn <= last_turn; ++turn) {
            bool const home = turn == count;  // the receivers with the piece's own Y coordinates
            Index const y = home ? own_turn : (own_turn + turn) % count;
            Index const origin = home ? 0 : (turn - 1) * line.elements;
            Narrowed const near(to_, sets, home ? 0 : first - origin, home ? line.elements : last - origin);
            near.for_each([&](GridBox const& box, Index destination) {
                Index const receiver = destination + same + receivers_.ordinal(y);
                if (from_.cutting_ordinal(receiver) == piece) return;
                auto const send = [&](Index sender, GridBox const& part) {
                    if (sender == copy) exchange.sends.push_back({from_.mesh->rank_at(receiver), part});
                };
                share(box, start(line, box, receiver), line.length, copies, send);
            });
        }
    }

    Grid const& from_;
    Grid const& to_;
    AxisSubset copies_;     // X
    AxisSubset receivers_;  // Y
    AxisSubset kept_;
    unsigned both_;  // Z
};

/// Grids on two meshes: disjoint, overlapping or equal sets of ranks.
template <class Grid>
class TwoMeshes {
public:
    TwoMeshes(Grid const& from, Grid const& to)
        : from_(from),
          to_(to),
          copies_(*from.mesh, ~from.cutting & ((1U << from.mesh->axes()) - 1U)),
          receivers_(*to.mesh, ~to.cutting & ((1U << to.mesh->axes()) - 1U)),
          overlap_(ranks_overlap(*from.mesh, *to.mesh)) {}

    void plan(Index rank, Exchange& exchange) const {
        Index const target = to_.mesh->ordinal(rank);
        Index const source = from_.mesh->ordinal(rank);
        if (target >= 0) plan_receives(rank, target, source, exchange);
        if (source >= 0) plan_sends(rank, source, exchange);
    }

private:
    static bool ranks_overlap(DynamicMesh const& a, DynamicMesh const& b) noexcept {
        if (a.ranks().ranks.empty() && b.ranks().ranks.empty()) {
            return a.ranks().first <= b.last_rank() && b.ranks().first <= a.last_rank();
        }
        for (Index i = 0; i < a.size(); ++i)
            if (b.contains(a.rank_at(i))) return true;
        return false;
    }
    [[nodiscard]] bool holds(Index rank, Index piece) const noexcept {
        Index const ordinal = from_.mesh->ordinal(rank);
        return ordinal >= 0 && from_.cutting_ordinal(ordinal) == piece;
    }

    /// Calls `visit(rank, box, start)` for every receiver of a piece that does not hold it, and returns the length
    /// of their line. Where the meshes share ranks the receivers are counted one by one, because those who hold the
    /// piece lie anywhere among them.
    template <class Visit>
    Index for_each_receiver(Index piece, InlineList<IndexSet, max_grid_dims> const& sets, Visit&& visit) const {
        Index const elements = product_size(sets);
        Meeting const meeting(to_, sets);
        Index start = 0;
        for (Index y = 0; y < receivers_.size(); ++y) {
            meeting.for_each([&](GridBox const& box, Index destination) {
                Index const rank = to_.mesh->rank_at(destination + receivers_.ordinal(y));
                if (overlap_ && holds(rank, piece)) return;
                visit(rank, box, overlap_ ? start : y * elements + place(box, sets));
                start += Message{0, box}.elements();
            });
        }
        return start;
    }
    [[nodiscard]] Index line_length(Index piece, InlineList<IndexSet, max_grid_dims> const& sets) const {
        if (!overlap_) return receivers_.size() * product_size(sets);
        return for_each_receiver(piece, sets, [](Index, GridBox const&, Index) {});
    }

    void plan_receives(Index rank, Index target, Index source, Exchange& exchange) const {
        Index const own_piece = source < 0 ? -1 : from_.cutting_ordinal(source);
        Meeting(from_, index_sets(to_, target)).for_each([&](GridBox const& box, Index piece) {
            if (piece == own_piece) {
                exchange.kept.push_back({rank, box});
                return;
            }
            auto const receive = [&](Index copy, GridBox const& part) {
                exchange.receives.push_back({from_.mesh->rank_at(piece + copies_.ordinal(copy)), part});
            };
            if (copies_.size() == 1) {
                receive(0, box);
                return;
            }
            auto const sets = index_sets(from_, piece);
            Index const length = line_length(piece, sets);
            if (!overlap_) {
                Index const start = receivers_.index(target) * product_size(sets) + place(box, sets);
                share(box, start, length, copies_.size(), receive);
                return;
            }
            for_each_receiver(piece, sets, [&](Index other, GridBox const& its_box, Index start) {
                if (other == rank && its_box == box) share(box, start, length, copies_.size(), receive);
            });
        });
    }

    void plan_sends(Index rank, Index source, Exchange& exchange) const {
        auto const sets = index_sets(from_, source);
        if (product_size(sets) == 0) return;
        Index const piece = from_.cutting_ordinal(source);
        Index const copy = copies_.index(source);
        Index const copies = copies_.size();
        if (copies > 1 && !overlap_) {
            plan_shared_sends(sets, copy, exchange);
            return;
        }
        Index const length = copies == 1 ? 1 : line_length(piece, sets);
        for_each_receiver(piece, sets, [&](Index receiver, GridBox const& box, Index start) {
            if (receiver == rank) return;
            if (copies == 1) {
                exchange.sends.push_back({receiver, box});
                return;
            }
            auto const send = [&](Index sender, GridBox const& part) {
                if (sender == copy) exchange.sends.push_back({receiver, part});
            };
            share(box, start, length, copies, send);
        });
    }

    /// Disjoint meshes: only the receivers whose boxes lie around this copy's span of the line are visited.
    void plan_shared_sends(InlineList<IndexSet, max_grid_dims> const& sets, Index copy, Exchange& exchange) const {
        Index const elements = product_size(sets);
        Index const copies = copies_.size();
        Index const length = receivers_.size() * elements;
        Index const first = larger<Index>(multiply_divide(length, copy, copies) - 1, 0);
        Index const last = smaller(multiply_divide(length, copy + 1, copies) + 1, length);
        for (Index y = first / elements; y < receivers_.size() && y * elements < last; ++y) {
            Narrowed const near(to_, sets, first - y * elements, last - y * elements);
            near.for_each([&](GridBox const& box, Index destination) {
                Index const receiver = to_.mesh->rank_at(destination + receivers_.ordinal(y));
                Index const start = y * elements + place(box, sets);
                auto const send = [&](Index sender, GridBox const& part) {
                    if (sender == copy) exchange.sends.push_back({receiver, part});
                };
                share(box, start, length, copies, send);
            });
        }
    }

    Grid const& from_;
    Grid const& to_;
    AxisSubset copies_;
    AxisSubset receivers_;
    bool overlap_;
};

/// One rank's part of the exchange between two grids of the same extents. \pre same mesh unless `across`.
template <class Grid>
[[nodiscard]] Exchange plan_exchange(Grid const& from, Grid const& to, Index rank, bool across) {
    Exchange exchange;
    if (!across && !from.mesh->contains(rank)) return exchange;
    if (across) {
        TwoMeshes(from, to).plan(rank, exchange);
    } else {
        SameMesh(from, to).plan(rank, exchange);
    }
    sort_messages(exchange.sends);
    sort_messages(exchange.receives);
    sort_messages(exchange.kept);
    return exchange;
}

}  // namespace detail

}  // namespace reshard::inline v0
