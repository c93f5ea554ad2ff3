// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/one_mesh.hpp
/// \brief  What one rank sends and receives between two grids on one mesh, whose ranks may sit in nodes.
/// \depends intersections, tally.
#pragma once

#include <reshard/plan/detail/intersections.hpp>
#include <reshard/plan/detail/tally.hpp>

namespace reshard::inline v0_1::detail {

/// Both grids on one mesh. Axes fall into four classes: those that cut neither grid keep their coordinate; X cuts only
/// the destination, so the source has copies along it; Y cuts only the source, so the destination has copies along it;
/// Z cuts both. Ranks that share (Y, Z) hold the same piece; the receivers of a box share (X, Z).
///
/// Without nodes every receiver is served by one of all copies of a piece. With nodes each class has axes inside nodes
/// and axes between them, and a copy lies in the receiver's node exactly when the receiver agrees with the piece on the
/// Y and Z axes between nodes. These receivers are served by the copies of their own node (X inside nodes), all others
/// by all copies, each group along a line of its own. Balance comes second then: a byte that a node has does not cross
/// nodes, even where one copy sends more.
class OneMesh {
public:
    /// `inside`: the axes of the mesh along which ranks stay in their node; 0: there are no nodes. They only count
    /// where the source has copies in other nodes.
    OneMesh(Grid const& from, Grid const& to, unsigned inside = 0)
        : OneMesh(from, to, to.cutting & ~from.cutting, from.cutting & ~to.cutting, from.cutting & to.cutting,
                  (to.cutting & ~from.cutting & ~inside) != 0 ? inside : 0) {}

    void plan(Index rank, Exchange& exchange) const {
        Index const own = mesh_.ordinal(rank);
        if (near_.copies.size() * far_.copies.size() > 1) {
            Line lines[] = {{to_, near_}, {to_, far_}};
            plan_receives(own, exchange, lines);
        } else {
            plan_receives(own, exchange, nullptr);
        }
        if (has_nodes_) plan_sends(own, exchange, near_);
        plan_sends(own, exchange, far_);
    }

private:
    /// Receivers of a piece, and how they lie on its line: `turning` outermost, starting behind the piece's own
    /// coordinates; then `following`; then what lies in a box. At the end of the line, where `turning` is back at the
    /// piece, what agrees with the piece on the axes `home` as well is left out: its receivers hold it.
    struct Group {
        AxisSubset copies;  ///< who serves them
        AxisSubset turning;
        AxisSubset following;
        unsigned visible;  ///< receivers are those that agree on these axes with the line's reference; 0: all
        unsigned home;

        [[nodiscard]] bool is_near() const noexcept { return visible != 0; }
    };

    struct Line {
        Line(Grid const& to, Group const& group) : seen(to, group.visible), left_out(to, group.visible | group.home) {}

        Tally seen;  ///< without axes, all
        Tally left_out;
        Index piece = -1;     ///< ordinal of the axes that cut the source
        Index reference = 0;  ///< coordinates to agree with
        Index elements = 0;   ///< in each stretch of receivers, and in those at the end, where some are left out
        Index rest = 0;
        Index length = 0;
    };

    /// Goes on to the line of another piece; for the near group, in the node where `member` is. Messages come dimension
    /// by dimension, so most of the line stays as it is.
    void follow(Line& line, Group const& group, Index piece, Index member) const {
        if (piece == line.piece) return;
        line.piece = piece;
        line.reference = group.is_near() ? piece + copies_outside_.ordinal(copies_outside_.index(member)) : piece;
        auto const sets = index_sets(from_, piece);
        for (Tally* tally : {&line.seen, &line.left_out}) tally->follow(sets, forms_, line.reference);
        line.elements = line.seen.elements();
        line.rest = line.elements - line.left_out.elements();
        Index const stretches = group.turning.size() * group.following.size();
        line.length = line_elements(stretches, line.elements) - group.following.size() * line.left_out.elements();
    }

    /// Where a receiver's message starts on the line: the part that is at home is again a product of dimensions, so it
    /// can be counted.
    [[nodiscard]] Index start(Group const& group, Line const& line, Message const& message, Index receiver) const {
        Index const count = group.turning.size();
        Index const turn = (group.turning.index(receiver) - group.turning.index(line.reference) + count) % count;
        Index const follower = group.following.index(receiver);
        Index const position = line.seen.place(message, receiver);
        if (turn != 0) return ((turn - 1) * group.following.size() + follower) * line.elements + position;
        return (count - 1) * group.following.size() * line.elements + follower * line.rest + position -
               line.left_out.place(message, receiver);
    }

    /// `lines`: for the near group and the far one; null where pieces have no copies.
    void plan_receives(Index own, Exchange& exchange, Line* lines) const {
        Intersections const shared(from_, index_sets(to_, own), forms_);
        Index const own_piece = from_.cutting_ordinal(own);
        Index const own_node = held_outside_.index(own);
        Index const same = kept_.ordinal(kept_.index(own));
        Index const here = copies_outside_.ordinal(copies_outside_.index(own));
        exchange.receives.reserve(shared.size());
        shared.for_each([&](Message const& message, Index piece) {
            if (piece == own_piece) {
                add_message(exchange.kept, mesh_.rank_at(own), message);
                return;
            }
            bool const near = has_nodes_ && held_outside_.index(piece) == own_node;
            Group const& group = near ? near_ : far_;
            Index const base = piece + same + (near ? here : 0);
            auto const receive = [&](Index copy, Message const& part) {
                add_message(exchange.receives, mesh_.rank_at(base + group.copies.ordinal(copy)), part);
            };
            if (group.copies.size() == 1) return receive(0, message);
            Line& line = lines[near ? 0 : 1];
            follow(line, group, piece, own);
            share(message, start(group, line, message, own), line.length, group.copies.size(), receive);
        });
    }

    void plan_sends(Index own, Exchange& exchange, Group const& group) const {
        auto const sets = index_sets(from_, own);
        if (holds_nothing(sets)) return;
        Index const same = kept_.ordinal(kept_.index(own)) +
                           (group.is_near() ? receivers_outside_.ordinal(receivers_outside_.index(own)) : 0);
        Index const copies = group.copies.size();
        if (!has_nodes_ && copies == 1) {
            return send_all(exchange.sends, to_, Intersections(to_, sets, forms_), group.turning, same, own);
        }
        Line line(to_, group);
        follow(line, group, from_.cutting_ordinal(own), own);
        if (line.length == 0) return;
        Index const copy = group.copies.index(own);
        Interval const mine = span_of(line.length, copy, copies);  // one copy serves the whole line
        Index const followers = group.following.size();
        Index const whole = (group.turning.size() - 1) * followers;  // stretches of which nothing is left out
        for (Index stretch = smaller(mine.begin / line.elements, whole); stretch < whole + followers; ++stretch) {
            bool const at_home = stretch >= whole;
            Index const origin =
                smaller(stretch, whole) * line.elements + larger<Index>(stretch - whole, 0) * line.rest;
            if (origin >= mine.end) break;
            if (at_home && origin + line.rest <= mine.begin) continue;
            Index const turn = (group.turning.index(own) + 1 + stretch / followers) % group.turning.size();
            Index const receivers = same + group.turning.ordinal(turn) + group.following.ordinal(stretch % followers);
            Narrowed const around(to_, forms_, line.seen, at_home ? &line.left_out : nullptr,
                                  {mine.begin - origin, mine.end - origin});
            around.for_each([&](Message const& message, Index destination) {
                if (!line.seen.agrees(destination)) return;
                if (at_home && line.left_out.agrees(destination)) return;
                Index const receiver = destination + receivers;
                auto const send = [&](Index sender, Message const& part) {
                    if (sender == copy) add_message(exchange.sends, mesh_.rank_at(receiver), part);
                };
                if (copies == 1) return send(0, message);
                share(message, start(group, line, message, receiver), line.length, copies, send);
            });
        }
    }

    OneMesh(Grid const& from, Grid const& to, unsigned x, unsigned y, unsigned z, unsigned inside)
        : from_(from),
          to_(to),
          mesh_(*from.mesh),
          kept_(mesh_, ~(x | y | z)),
          copies_outside_(mesh_, x & ~inside),
          receivers_outside_(mesh_, y & ~inside),
          held_outside_(mesh_, (y | z) & ~inside),
          forms_(forms_of(from, to)),
          has_nodes_(inside != 0),
          near_{AxisSubset(mesh_, x & inside), AxisSubset(mesh_, y & inside), AxisSubset(mesh_, 0), (x | z) & ~inside,
                z & inside},
          far_{AxisSubset(mesh_, x), receivers_outside_, AxisSubset(mesh_, y & inside), 0, z & ~inside} {}

    Grid const& from_;
    Grid const& to_;
    DynamicMesh const& mesh_;
    AxisSubset kept_;
    AxisSubset copies_outside_;
    AxisSubset receivers_outside_;
    AxisSubset held_outside_;
    DimForms forms_;
    bool has_nodes_;
    Group near_;
    Group far_;
};

}  // namespace reshard::inline v0_1::detail
