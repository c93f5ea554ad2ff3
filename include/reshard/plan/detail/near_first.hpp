// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/near_first.hpp
/// \brief  Both grids on one mesh whose ranks sit in nodes: who has a copy in its own node is served by that copy.
/// \depends meeting, nodes, tally.
///
/// The axes are classified as by SameMesh: X cuts only the destination (the source has copies along it), Y only the
/// source, Z both; each class has axes inside nodes and axes between them. A copy of a piece lies in the receiver's
/// node exactly when the receiver agrees with the piece on the Y and Z axes between nodes. These receivers are served
/// by the copies of their own node (X inside nodes), all others by all copies (X), each group along a line of its own.
/// Balance comes second: a byte that a node has does not cross nodes, even where one copy then sends more.
#pragma once

#include <reshard/plan/detail/meeting.hpp>
#include <reshard/plan/detail/nodes.hpp>
#include <reshard/plan/detail/tally.hpp>

namespace reshard::inline v0::detail {

class NearFirst {
public:
    /// `inside`: the axes of the mesh along which ranks stay in their node.
    NearFirst(Grid const& from, Grid const& to, unsigned inside)
        : from_(from),
          to_(to),
          mesh_(*from.mesh),
          kept_(mesh_, ~(from.cutting | to.cutting) & all_axes()),
          copies_outside_(mesh_, to.cutting & ~from.cutting & ~inside),
          receivers_outside_(mesh_, from.cutting & ~to.cutting & ~inside),
          held_outside_(mesh_, from.cutting & ~inside),
          forms_(forms_of(from, to)),
          near_{AxisSubset(mesh_, to.cutting & ~from.cutting & inside),
                AxisSubset(mesh_, from.cutting & ~to.cutting & inside),
                AxisSubset(mesh_, 0),
                to.cutting & ~inside,
                from.cutting & to.cutting & inside,
                true},
          far_{AxisSubset(mesh_, to.cutting & ~from.cutting),
               receivers_outside_,
               AxisSubset(mesh_, from.cutting & ~to.cutting & inside),
               0,
               from.cutting & to.cutting & ~inside,
               false} {}

    void plan(Index rank, Exchange& exchange) const {
        Index const own = mesh_.ordinal(rank);
        plan_receives(own, exchange);
        plan_sends(own, exchange, near_);
        plan_sends(own, exchange, far_);
    }

private:
    /// One of the two groups of receivers, and how they lie on the line of a piece: `turning` outermost, starting
    /// behind the piece's own coordinates; then `following`; then what lies in a box. At the end of the line, where
    /// `turning` is back at the piece, what agrees with the piece on the axes `home` is left out.
    struct Group {
        AxisSubset copies;
        AxisSubset turning;
        AxisSubset following;
        unsigned visible;  ///< destinations belong to the group when they agree on these axes
        unsigned home;
        bool near;
    };

    struct Line {
        Index reference = 0;  ///< coordinates to agree with
        Tally seen;
        Tally left_out;
        Index rest = 0;  ///< elements at the end of the line, where some are left out
        Index length = 0;
    };

    [[nodiscard]] unsigned all_axes() const noexcept { return (1U << mesh_.axes()) - 1U; }

    /// Whether a destination agrees with a tally's reference in all dimensions.
    [[nodiscard]] bool agrees(Index destination, Tally const& tally) const noexcept {
        for (int dim = 0; dim < to_.dims.size(); ++dim)
            if (!tally.agrees(destination, dim)) return false;
        return true;
    }
    /// The line of a piece; for the near group, in the node where `member` is.
    [[nodiscard]] Line line_of(Group const& group, Index piece, Index member) const {
        Index const reference = group.near ? piece + copies_outside_.ordinal(copies_outside_.index(member)) : piece;
        auto const sets = index_sets(from_, piece);
        Line line{reference, Tally(to_, sets, forms_, reference, group.visible),
                  Tally(to_, sets, forms_, reference, group.visible | group.home), 0, 0};
        line.rest = line.seen.elements() - line.left_out.elements();
        Index const stretches = group.turning.size() * group.following.size();
        Index const left_out = group.following.size() * line.left_out.elements();
        line.length = line_elements(stretches, line.seen.elements()) - left_out;
        return line;
    }

    [[nodiscard]] Index start(Group const& group, Line const& line, Message const& message, Index receiver) const {
        Index const count = group.turning.size();
        Index const turn = (group.turning.index(receiver) - group.turning.index(line.reference) + count) % count;
        Index const follower = group.following.index(receiver);
        Index const elements = line.seen.elements();
        Index const position = line.seen.place(message, receiver);
        if (turn != 0) return ((turn - 1) * group.following.size() + follower) * elements + position;
        return (count - 1) * group.following.size() * elements + follower * line.rest + position -
               line.left_out.place(message, receiver);
    }

    void plan_receives(Index own, Exchange& exchange) const {
        Index const own_piece = from_.cutting_ordinal(own);
        Index const own_node = held_outside_.index(own);
        Index const same = kept_.ordinal(kept_.index(own));
        Meeting(from_, index_sets(to_, own), forms_).for_each([&](Message const& message, Index piece) {
            if (piece == own_piece) {
                add_message(exchange.kept, mesh_.rank_at(own), message);
                return;
            }
            bool const near = held_outside_.index(piece) == own_node;
            Group const& group = near ? near_ : far_;
            Index const base = piece + same + (near ? copies_outside_.ordinal(copies_outside_.index(own)) : 0);
            auto const receive = [&](Index copy, Message const& part) {
                add_message(exchange.receives, mesh_.rank_at(base + group.copies.ordinal(copy)), part);
            };
            if (group.copies.size() == 1) {
                receive(0, message);
                return;
            }
            Line const line = line_of(group, piece, own);
            share(message, start(group, line, message, own), line.length, group.copies.size(), receive);
        });
    }

    void plan_sends(Index own, Exchange& exchange, Group const& group) const {
        auto const sets = index_sets(from_, own);
        if (holds_nothing(sets)) return;
        Line const line = line_of(group, from_.cutting_ordinal(own), own);
        if (line.length == 0) return;
        Index const copies = group.copies.size();
        Index const copy = group.copies.index(own);
        Index const same = kept_.ordinal(kept_.index(own)) +
                           (group.near ? receivers_outside_.ordinal(receivers_outside_.index(own)) : 0);
        // My span of the line, one element wider on each side against rounding; one copy serves the whole line.
        Index const first = copies == 1 ? 0 : larger<Index>(multiply_divide(line.length, copy, copies) - 1, 0);
        Index const last =
            copies == 1 ? line.length : smaller(multiply_divide(line.length, copy + 1, copies) + 1, line.length);
        Index const elements = line.seen.elements();
        Index const followers = group.following.size();
        Index const whole = (group.turning.size() - 1) * followers;  // stretches of which nothing is left out
        for (Index stretch = smaller(first / elements, whole); stretch < whole + followers; ++stretch) {
            bool const at_home = stretch >= whole;
            Index const origin = smaller(stretch, whole) * elements + larger<Index>(stretch - whole, 0) * line.rest;
            if (origin >= last) break;
            if (at_home && origin + line.rest <= first) continue;
            Index const turn = (group.turning.index(own) + 1 + stretch / followers) % group.turning.size();
            Index const receivers = same + group.turning.ordinal(turn) + group.following.ordinal(stretch % followers);
            auto const visit = [&](Message const& message, Index destination) {
                if (group.near && !agrees(destination, line.seen)) return;
                if (at_home && agrees(destination, line.left_out)) return;
                Index const receiver = destination + receivers;
                auto const send = [&](Index sender, Message const& part) {
                    if (sender == copy) add_message(exchange.sends, mesh_.rank_at(receiver), part);
                };
                if (copies == 1) {
                    send(0, message);
                } else {
                    share(message, start(group, line, message, receiver), line.length, copies, send);
                }
            };
            Interval const span{first - origin, last - origin};
            if (at_home) {
                Narrowed(to_, sets, forms_, line.seen, line.left_out, span).for_each(visit);
            } else {
                Narrowed(to_, sets, forms_, line.seen, Nothing{}, span).for_each(visit);
            }
        }
    }

    Grid const& from_;
    Grid const& to_;
    DynamicMesh const& mesh_;
    AxisSubset kept_;
    AxisSubset copies_outside_;
    AxisSubset receivers_outside_;
    AxisSubset held_outside_;
    DimForms forms_;
    Group near_;
    Group far_;
};

/// One rank's part of an exchange in which copies serve their own node first.
[[nodiscard]] inline Exchange plan_near_first(Grid const& from, Grid const& to, Index rank, unsigned inside) {
    Exchange exchange;
    if (!from.mesh->contains(rank)) return exchange;
    NearFirst(from, to, inside).plan(rank, exchange);
    sort_messages(exchange.sends);
    sort_messages(exchange.receives);
    sort_messages(exchange.kept);
    return exchange;
}

}  // namespace reshard::inline v0::detail
