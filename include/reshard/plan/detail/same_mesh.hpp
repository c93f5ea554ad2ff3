// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/same_mesh.hpp
/// \brief  What one rank sends and receives between two grids on one mesh.
/// \depends meeting, tally.
#pragma once

#include <reshard/plan/detail/meeting.hpp>
#include <reshard/plan/detail/tally.hpp>

namespace reshard::inline v0::detail {

/// Both grids on one mesh. Axes fall into four classes: those that cut neither grid keep their coordinate; X cuts
/// only the destination, so the source has copies along it; Y cuts only the source, so the destination has copies
/// along it; Z cuts both. Ranks that share (Y, Z) hold the same piece; the receivers of a box share (X, Z).
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
    /// A piece of the source with copies, for the line of share().
    struct Line {
        Index piece = -1;  ///< ordinal of the axes that cut the source
        Tally own;         ///< elements whose destination agrees with the piece on Z
        Index length = 0;
    };

    static unsigned all_axes(DynamicMesh const& mesh) noexcept { return (1U << mesh.axes()) - 1U; }

    [[nodiscard]] Line line_of(Index piece) const {
        Line line{piece, Tally(to_, index_sets(from_, piece), forms_, piece, both_), 0};
        measure(line);
        return line;
    }
    /// Goes on to another piece. Messages come dimension by dimension, so most of the line stays as it is.
    void follow(Line& line, Index piece) const {
        if (piece == line.piece) return;
        if (line.own.places().any_listed()) {
            line = line_of(piece);
            return;
        }
        line.piece = piece;
        line.own.follow(index_sets(from_, piece), piece);
        measure(line);
    }
    void measure(Line& line) const {
        line.length = line_elements(receivers_.size(), line.own.places().elements()) - line.own.elements();
    }

    /// Where a receiver's message starts on the line. Receivers with the Y coordinates of the piece come last, without
    /// the part that is at home: in a product of dimensions that part is again a product, so it can be counted.
    [[nodiscard]] Index start(Line const& line, Message const& message, Index destination) const {
        Index const position = line.own.places().place(message);
        Index const elements = line.own.places().elements();
        Index const count = receivers_.size();
        Index const turn = (receivers_.index(destination) - receivers_.index(line.piece) + count) % count;
        if (turn != 0) return (turn - 1) * elements + position;
        return (count - 1) * elements + position - line.own.place(message, destination);
    }

    void plan_receives(Index own, Exchange& exchange) const {
        Meeting const meeting(from_, index_sets(to_, own), forms_);
        Index const own_piece = from_.cutting_ordinal(own);
        Index const same = kept_.ordinal(kept_.index(own));
        exchange.receives.reserve(meeting.size());
        if (copies_.size() == 1) {
            meeting.for_each([&](Message const& message, Index piece) {
                auto& list = piece == own_piece ? exchange.kept : exchange.receives;
                add_message(list, from_.mesh->rank_at(piece + same), message);
            });
            return;
        }
        if (meeting.size() == 0) return;
        Line line = line_of(own_piece);
        meeting.for_each([&](Message const& message, Index piece) {
            if (piece == own_piece) {
                add_message(exchange.kept, from_.mesh->rank_at(own), message);
                return;
            }
            follow(line, piece);
            auto const receive = [&](Index copy, Message const& part) {
                add_message(exchange.receives, from_.mesh->rank_at(piece + same + copies_.ordinal(copy)), part);
            };
            share(message, start(line, message, own), line.length, copies_.size(), receive);
        });
    }

    void plan_sends(Index own, Exchange& exchange) const {
        InlineList<IndexSet, max_grid_dims> const sets = index_sets(from_, own);
        if (holds_nothing(sets)) return;
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
        Index const elements = line.own.places().elements();
        Index const count = receivers_.size();
        Index const first_turn = smaller(larger<Index>(first, 0) / elements + 1, count);
        Index const last_turn = smaller(last / elements + 1, count);
        for (Index turn = first_turn; turn <= last_turn; ++turn) {
            bool const home = turn == count;  // the receivers with the piece's own Y coordinates
            Index const y = home ? own_turn : (own_turn + turn) % count;
            Index const origin = (turn - 1) * elements;
            Interval const span{first - origin, last - origin};
            auto const visit = [&](Message const& message, Index destination) {
                Index const receiver = destination + same + receivers_.ordinal(y);
                if (from_.cutting_ordinal(receiver) == piece) return;
                auto const send = [&](Index sender, Message const& part) {
                    if (sender == copy) add_message(exchange.sends, from_.mesh->rank_at(receiver), part);
                };
                share(message, start(line, message, receiver), line.length, copies, send);
            };
            Everything const all(line.own.places());
            if (home) {
                Narrowed(to_, sets, forms_, all, line.own, span).for_each(visit);
            } else {
                Narrowed(to_, sets, forms_, all, Nothing{}, span).for_each(visit);
            }
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
