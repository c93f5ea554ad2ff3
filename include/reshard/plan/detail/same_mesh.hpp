// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/same_mesh.hpp
/// \brief  What one rank sends and receives between two grids on one mesh.
/// \depends meeting.
#pragma once

#include <reshard/plan/detail/meeting.hpp>

namespace reshard::inline v0::detail {

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

}  // namespace reshard::inline v0::detail
