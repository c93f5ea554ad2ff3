// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/planner.hpp
/// \brief  What one rank sends to whom and receives from whom between two grids, in closed form.
/// \depends message; <algorithm>, <vector>. No communication: both sides derive the same list from rank numbers.
///
/// Cost grows with the pieces a rank's box meets and, where cuts are block-cyclic, with the blocks in one common period
/// instead of all of them; only between meshes that share ranks, where the source has copies, it grows with all
/// receivers of those pieces. Copies on the source side are chosen so that the load is shared (detail/share.hpp); a
/// rank that holds what it needs never asks for it.
///
/// `Grid` is detail::Grid: templates, so that only files that plan an exchange compile the planner.
#pragma once

#include <reshard/plan/detail/share.hpp>

#include <algorithm>  // is_sorted, sort
#include <vector>     // vector

namespace reshard::inline v0 {

namespace detail {

/// By peer, then by box: the boxes of one exchange with a peer differ in where they begin. Often they lie in order
/// already; else pointers are sorted, because messages are long.
template <class Messages>
void sort_messages(Messages& messages) {
    auto const before = [](Message const& a, Message const& b) {
        if (a.peer != b.peer) return a.peer < b.peer;
        for (int dim = 0; dim < a.box.size(); ++dim) {
            if (a.box[dim].begin != b.box[dim].begin) return a.box[dim].begin < b.box[dim].begin;
        }
        return false;
    };
    if (std::is_sorted(messages.begin(), messages.end(), before)) return;
    std::vector<Message const*> order;
    order.reserve(messages.size());
    for (Message const& message : messages) order.push_back(&message);
    std::sort(order.begin(), order.end(), [&](Message const* a, Message const* b) { return before(*a, *b); });
    Messages sorted;
    sorted.reserve(messages.size());
    for (Message const* message : order) sorted.push_back(*message);
    messages.swap(sorted);
}

/// How two grids of the same extents meet, dimension by dimension.
template <class Grid>
[[nodiscard]] DimForms forms_of(Grid const& a, Grid const& b) {
    return dim_forms(a.rank, a.dims.size(), [&](int dim) { return a.is_cyclic(dim) || b.is_cyclic(dim); });
}

/// What a dimension shares with a part of the other side, and what that side's axes add to the ordinal.
struct Piece {
    Segments segments;
    Index ordinal = 0;
};

/// The pieces of `grid` that meet `sets`, dimension by dimension; their products are the messages.
template <class Grid>
class Meeting {
public:
    Meeting(Grid const& grid, InlineList<IndexSet, max_grid_dims> const& sets, DimForms const& forms) {
        for (int dim = 0; dim < sets.size(); ++dim) {
            begin_.push_back(static_cast<Index>(pieces_.size()));
            grid.for_each_part(dim, sets[dim], [&](IndexSet const& part, Index ordinal) {
                for_each_sent(sets[dim], part, forms[dim].levels, [&](Segments const& segments) {
                    pieces_.push_back({segments, ordinal});
                });
            });
        }
        begin_.push_back(static_cast<Index>(pieces_.size()));
    }

    /// How many messages there are.
    [[nodiscard]] std::size_t size() const noexcept {
        Index product = 1;
        for (int dim = 0; dim + 1 < begin_.size(); ++dim) product *= begin_[dim + 1] - begin_[dim];
        return static_cast<std::size_t>(product);
    }
    /// Calls `visit(message, ordinal)` for every message, row-major. It may change the message's peer.
    template <class Visit>
    void for_each(Visit&& visit) const {
        Message message;
        walk(0, 0, message, visit);
    }

private:
    template <class Visit>
    void walk(int dim, Index ordinal, Message& message, Visit& visit) const {
        if (dim + 1 == begin_.size()) {
            visit(message, ordinal);
            return;
        }
        int const repeats = message.repeats.size();
        for (Index i = begin_[dim]; i < begin_[dim + 1]; ++i) {
            Piece const& piece = pieces_[static_cast<std::size_t>(i)];
            append(message, piece.segments);
            walk(dim + 1, ordinal + piece.ordinal, message, visit);
            message.box.pop_back();
            message.repeats.count = repeats;
        }
    }

    std::vector<Piece> pieces_;
    InlineList<Index, max_grid_dims + 1> begin_;
};

/// `message`, to or from `peer`.
inline void add_message(std::vector<Message>& messages, Index peer, Message const& message) {
    messages.push_back(message);
    messages.back().peer = peer;
}

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
    Narrowed(Grid const& to, InlineList<IndexSet, max_grid_dims> const& sets, DimForms const& forms, Index first,
             Index last)
        : to_(to), whole_(sets), sets_(sets), forms_(forms) {
        possible_ = !sets.empty() && !forms[0].is_cyclic;
        if (!possible_) return;
        Index inner = 1;
        for (int dim = 1; dim < sets.size(); ++dim) inner *= sets[dim].size();
        Index const origin = sets[0].span().begin;
        Index const begin = origin + larger<Index>(first, 0) / inner;
        Index const end = origin + ceil_div(larger<Index>(last, 0), inner);
        sets_[0] = IndexSet(intersect(sets[0].span(), {begin, end}));
    }

    /// Calls `visit(message, ordinal)` with whole messages only.
    template <class Visit>
    void for_each(Visit&& visit) const {
        Meeting(to_, sets_, forms_).for_each([&](Message& message, Index destination) {
            Interval const found = possible_ ? message.box[0] : Interval{};
            if (possible_) message.box[0] = intersect(whole_[0].span(), to_.index_set(destination, 0).span());
            visit(message, destination);
            if (possible_) message.box[0] = found;
        });
    }

private:
    Grid const& to_;
    InlineList<IndexSet, max_grid_dims> const& whole_;
    InlineList<IndexSet, max_grid_dims> sets_;
    DimForms const& forms_;
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
          both_(from.cutting & to.cutting),
          forms_(forms_of(from, to)) {}

    void plan(Index rank, Exchange& exchange) const {
        Index const own = from_.mesh->ordinal(rank);
        plan_receives(own, exchange);
        plan_sends(own, exchange);
    }

private:
    /// A piece of the source with copies: its measures for the line of share().
    struct Line {
        Places places;
        Index ordinal = 0;                     ///< of the axes that cut the source
        InlineList<Index, max_grid_dims> own;  ///< |B_d|: elements whose destination agrees with the piece on Z
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
        if (line.places.is_listed(dim)) return line.places.tile(dim, position).own_before;
        IndexSet const& set = line.places.set(dim);
        if (!shares_dim(dim)) return set.local_index(position);
        Index count = 0;
        Interval const query = intersect(set.span(), {0, position});
        to_.for_each_part(dim, IndexSet(query), [&](IndexSet const& part, Index ordinal) {
            if (agrees(ordinal, line.ordinal, dim)) count += intersect(part.span(), query).size();
        });
        return count;
    }

    [[nodiscard]] Line line_of(Index piece) const {
        auto const is_own = [&](int dim, Index destination) { return agrees(destination, piece, dim); };
        Line line{Places(to_, index_sets(from_, piece), forms_, is_own), piece, {}, 0};
        Index own = 1;
        for (int dim = 0; dim < to_.dims.size(); ++dim) {
            line.own.push_back(own_before(line, dim, to_.dims[dim].extent));
            own *= line.own[dim];
        }
        line.length = receivers_.size() * line.places.elements() - own;
        return line;
    }

    /// Where a receiver's message starts on the line. Receivers with the Y coordinates of the piece come last, without
    /// the part that is at home: in a product of dimensions that part is again a product, so it can be counted.
    [[nodiscard]] Index start(Line const& line, Message const& message, Index destination) const {
        Index const position = line.places.place(message);
        Index const elements = line.places.elements();
        Index const count = receivers_.size();
        Index const turn = (receivers_.index(destination) - receivers_.index(line.ordinal) + count) % count;
        if (turn != 0) return (turn - 1) * elements + position;
        Index own_position = 0;
        Index across = 1;
        for (int dim = 0; dim < message.box.size() && across != 0; ++dim) {
            Index inner = 1;
            for (int d = dim + 1; d < message.box.size(); ++d) inner *= line.own[d];
            own_position += across * own_before(line, dim, message.box[dim].begin) * inner;
            across *= agrees(destination, line.ordinal, dim) ? message.extent(dim) : 0;
        }
        return (count - 1) * elements + position - own_position;
    }

    void plan_receives(Index own, Exchange& exchange) const {
        Meeting const meeting(from_, index_sets(to_, own), forms_);
        Index const own_piece = from_.cutting_ordinal(own);
        Index const same = kept_.ordinal(kept_.index(own));
        exchange.receives.reserve(meeting.size());
        meeting.for_each([&](Message const& message, Index piece) {
            if (piece == own_piece) {
                add_message(exchange.kept, from_.mesh->rank_at(own), message);
                return;
            }
            if (copies_.size() == 1) {
                add_message(exchange.receives, from_.mesh->rank_at(piece + same), message);
                return;
            }
            Line const line = line_of(piece);
            auto const receive = [&](Index copy, Message const& part) {
                add_message(exchange.receives, from_.mesh->rank_at(piece + same + copies_.ordinal(copy)), part);
            };
            share(message, start(line, message, own), line.length, copies_.size(), receive);
        });
    }

    void plan_sends(Index own, Exchange& exchange) const {
        InlineList<IndexSet, max_grid_dims> const sets = index_sets(from_, own);
        if (product_size(sets) == 0) return;
        Index const piece = from_.cutting_ordinal(own);
        Index const same = kept_.ordinal(kept_.index(own));
        Index const own_turn = receivers_.index(own);
        if (copies_.size() == 1) {
            Meeting const meeting(to_, sets, forms_);
            exchange.sends.reserve(meeting.size() * static_cast<std::size_t>(receivers_.size()));
            meeting.for_each([&](Message const& message, Index destination) {
                for (Index y = 0; y < receivers_.size(); ++y) {
                    Index const receiver = destination + same + receivers_.ordinal(y);
                    if (receiver != own) add_message(exchange.sends, from_.mesh->rank_at(receiver), message);
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
        Index const elements = line.places.elements();
        Index const count = receivers_.size();
        Index const first_turn = smaller(larger<Index>(first, 0) / elements + 1, count);
        Index const last_turn = smaller(last / elements + 1, count);
        for (Index turn = first_turn; turn <= last_turn; ++turn) {
            bool const home = turn == count;  // the receivers with the piece's own Y coordinates
            Index const y = home ? own_turn : (own_turn + turn) % count;
            Index const origin = home ? 0 : (turn - 1) * elements;
            Narrowed const near(to_, sets, forms_, home ? 0 : first - origin, home ? elements : last - origin);
            near.for_each([&](Message const& message, Index destination) {
                Index const receiver = destination + same + receivers_.ordinal(y);
                if (from_.cutting_ordinal(receiver) == piece) return;
                auto const send = [&](Index sender, Message const& part) {
                    if (sender == copy) add_message(exchange.sends, from_.mesh->rank_at(receiver), part);
                };
                share(message, start(line, message, receiver), line.length, copies, send);
            });
        }
    }

    Grid const& from_;
    Grid const& to_;
    AxisSubset copies_;     // X
    AxisSubset receivers_;  // Y
    AxisSubset kept_;
    unsigned both_;  // Z
    DimForms forms_;
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
          forms_(forms_of(from, to)),
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

    [[nodiscard]] Places places_of(InlineList<IndexSet, max_grid_dims> const& sets) const {
        return Places(to_, sets, forms_, [](int, Index) { return false; });
    }

    /// Calls `visit(rank, message, start)` for every receiver of a piece that does not hold it, and returns the length
    /// of their line. Where the meshes share ranks the receivers are counted one by one, because those who hold the
    /// piece lie anywhere among them; elsewhere nobody asks for the start.
    template <class Visit>
    Index for_each_receiver(Index piece, InlineList<IndexSet, max_grid_dims> const& sets, Visit&& visit) const {
        Meeting const meeting(to_, sets, forms_);
        Index start = 0;
        for (Index y = 0; y < receivers_.size(); ++y) {
            meeting.for_each([&](Message const& message, Index destination) {
                Index const rank = to_.mesh->rank_at(destination + receivers_.ordinal(y));
                if (overlap_ && holds(rank, piece)) return;
                visit(rank, message, start);
                start += message.elements();
            });
        }
        return start;
    }
    [[nodiscard]] Index line_length(Index piece, InlineList<IndexSet, max_grid_dims> const& sets) const {
        if (!overlap_) return receivers_.size() * product_size(sets);
        return for_each_receiver(piece, sets, [](Index, Message const&, Index) {});
    }

    void plan_receives(Index rank, Index target, Index source, Exchange& exchange) const {
        Index const own_piece = source < 0 ? -1 : from_.cutting_ordinal(source);
        Meeting const meeting(from_, index_sets(to_, target), forms_);
        exchange.receives.reserve(meeting.size());
        meeting.for_each([&](Message const& message, Index piece) {
            if (piece == own_piece) {
                add_message(exchange.kept, rank, message);
                return;
            }
            auto const receive = [&](Index copy, Message const& part) {
                add_message(exchange.receives, from_.mesh->rank_at(piece + copies_.ordinal(copy)), part);
            };
            if (copies_.size() == 1) {
                receive(0, message);
                return;
            }
            auto const sets = index_sets(from_, piece);
            Index const length = line_length(piece, sets);
            if (!overlap_) {
                Places const places = places_of(sets);
                Index const start = receivers_.index(target) * places.elements() + places.place(message);
                share(message, start, length, copies_.size(), receive);
                return;
            }
            for_each_receiver(piece, sets, [&](Index other, Message const& its, Index start) {
                if (other == rank && its.box == message.box) share(message, start, length, copies_.size(), receive);
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
        for_each_receiver(piece, sets, [&](Index receiver, Message const& message, Index start) {
            if (receiver == rank) return;
            if (copies == 1) {
                add_message(exchange.sends, receiver, message);
                return;
            }
            auto const send = [&](Index sender, Message const& part) {
                if (sender == copy) add_message(exchange.sends, receiver, part);
            };
            share(message, start, length, copies, send);
        });
    }

    /// Disjoint meshes: only the receivers whose boxes lie around this copy's span of the line are visited.
    void plan_shared_sends(InlineList<IndexSet, max_grid_dims> const& sets, Index copy, Exchange& exchange) const {
        Places const places = places_of(sets);
        Index const elements = places.elements();
        Index const copies = copies_.size();
        Index const length = receivers_.size() * elements;
        Index const first = larger<Index>(multiply_divide(length, copy, copies) - 1, 0);
        Index const last = smaller(multiply_divide(length, copy + 1, copies) + 1, length);
        for (Index y = first / elements; y < receivers_.size() && y * elements < last; ++y) {
            Narrowed const near(to_, sets, forms_, first - y * elements, last - y * elements);
            near.for_each([&](Message const& message, Index destination) {
                Index const receiver = to_.mesh->rank_at(destination + receivers_.ordinal(y));
                Index const start = y * elements + places.place(message);
                auto const send = [&](Index sender, Message const& part) {
                    if (sender == copy) add_message(exchange.sends, receiver, part);
                };
                share(message, start, length, copies, send);
            });
        }
    }

    Grid const& from_;
    Grid const& to_;
    AxisSubset copies_;
    AxisSubset receivers_;
    DimForms forms_;
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
