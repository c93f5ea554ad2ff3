// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/two_meshes.hpp
/// \brief  What one rank sends and receives between grids on two meshes.
/// \depends intersections, tally; <vector>.
#pragma once

#include <reshard/plan/detail/intersections.hpp>
#include <reshard/plan/detail/tally.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Grids on two meshes: disjoint, overlapping or equal sets of ranks.
class TwoMeshes {
public:
    TwoMeshes(Grid const& from, Grid const& to)
        : from_(from),
          to_(to),
          copies_(*from.mesh, ~from.cutting & ((1U << from.mesh->axes()) - 1U)),
          receivers_(*to.mesh, ~to.cutting & ((1U << to.mesh->axes()) - 1U)),
          forms_(forms_of(from, to)),
          overlap_(from.mesh->lowest_rank() <= to.mesh->last_rank() &&
                   to.mesh->lowest_rank() <= from.mesh->last_rank()) {}

    void plan(Index rank, Exchange& exchange) const {
        Index const target = to_.mesh->ordinal(rank);
        Index const source = from_.mesh->ordinal(rank);
        if (target >= 0) plan_receives(rank, target, source, exchange);
        if (source >= 0) plan_sends(rank, source, exchange);
    }

private:
    /// A rank that holds a piece and is among its receivers: what it needs of the piece stays at home.
    struct Holder {
        Index target = 0;        ///< ordinal on the destination's mesh
        Index turn = 0;          ///< position among the destination's copies
        std::size_t blocks = 0;  ///< where some dimension is block-cyclic, its place in Line::blocks
        InlineList<Index, max_grid_dims> totals{};
        Index elements = 1;
        Index before = 0;  ///< elements of the holders before this one

        [[nodiscard]] bool is_before(Index other_turn, Index other) const noexcept {
            return turn != other_turn ? turn < other_turn : target < other;
        }
    };
    /// A piece of the source with copies. Its receivers lie end to end, copy by copy of the destination, without what
    /// is at home.
    struct Line {
        Index piece = -1;
        Tally all;                    ///< of the piece
        std::vector<Holder> holders;  ///< by turn
        std::vector<Tally> blocks;    ///< what a holder needs of the piece
        Index length = 0;

        /// The first holder whose turn is `turn` or later; in that turn, whose target is `target` or behind it.
        [[nodiscard]] std::size_t first_holder(Index turn, Index target = 0) const noexcept {
            return first_where<std::size_t>(0, holders.size(),
                                            [&, this](std::size_t i) { return !holders[i].is_before(turn, target); });
        }
        [[nodiscard]] bool is_holder(Index turn, Index target) const noexcept {
            std::size_t const i = first_holder(turn, target);
            return i < holders.size() && holders[i].turn == turn && holders[i].target == target;
        }
        /// Where the receivers of a turn begin.
        [[nodiscard]] Index origin(Index turn) const noexcept {
            std::size_t const next = first_holder(turn);
            Index const at_home = next < holders.size() ? holders[next].before
                                  : holders.empty()     ? 0
                                                        : holders.back().before + holders.back().elements;
            return turn * all.elements() - at_home;
        }
    };

    /// Elements of the piece before `position`, along one dimension, that are at home with a holder.
    [[nodiscard]] Index home_before(Line const& line, Holder const& holder, int dim, Index position) const noexcept {
        if (line.all.is_listed(dim)) return line.blocks[holder.blocks].before(dim, position);
        Interval const need = to_.index_set(holder.target, dim).span();
        return intersect(intersect(line.all.set(dim).span(), need), {0, position}).size();
    }
    [[nodiscard]] Line line_of(Index piece) const {
        auto const sets = index_sets(from_, piece);
        Line line{piece, Tally(to_, sets, forms_), {}, {}, 0};
        for (Index copy = 0; overlap_ && copy < copies_.size(); ++copy) {
            Index const target = to_.mesh->ordinal(from_.mesh->rank_at(piece + copies_.ordinal(copy)));
            if (target < 0) continue;
            Holder holder{target, receivers_.index(target), line.blocks.size()};
            if (line.all.any_listed()) line.blocks.emplace_back(to_, sets, forms_, target, to_.cutting);
            for (int dim = 0; dim < sets.size(); ++dim) {
                holder.totals.push_back(home_before(line, holder, dim, to_.dims[dim].extent));
                holder.elements *= holder.totals[dim];
            }
            if (holder.elements != 0) line.holders.push_back(holder);
        }
        sort_list(line.holders, [](Holder const& a, Holder const& b) { return a.is_before(b.turn, b.target); });
        // First: it throws, or what is at home fits as well.
        Index const all = line_elements(receivers_.size(), line.all.elements());
        Index at_home = 0;
        for (Holder& holder : line.holders) {
            holder.before = at_home;
            at_home += holder.elements;
        }
        line.length = all - at_home;
        return line;
    }
    /// Where a message to the rank at `target` starts on the line.
    [[nodiscard]] Index start(Line const& line, Message const& message, Index target) const noexcept {
        Index const turn = receivers_.index(target);
        Index result = line.origin(turn) + line.all.place(message, target);
        for (std::size_t i = line.first_holder(turn); i < line.holders.size() && line.holders[i].turn == turn; ++i) {
            Holder const& holder = line.holders[i];
            Index across = 1;
            for (int dim = 0; dim < message.box.size() && across != 0; ++dim) {
                Index inner = 1;
                for (int d = dim + 1; d < message.box.size(); ++d) inner *= holder.totals[d];
                result -= across * home_before(line, holder, dim, message.box[dim].begin) * inner;
                bool const same_part = to_.index_set(target, dim) == to_.index_set(holder.target, dim);
                across *= same_part ? message.extent(dim) : 0;
            }
        }
        return result;
    }

    void plan_receives(Index rank, Index target, Index source, Exchange& exchange) const {
        Index const own_piece = source < 0 ? -1 : from_.cutting_ordinal(source);
        Intersections const common(from_, index_sets(to_, target), forms_);
        exchange.receives.reserve(common.size());
        std::vector<Message> shared;  // from pieces with copies; the piece stands where the peer will
        common.for_each([&](Message const& message, Index piece) {
            if (piece == own_piece) {
                add_message(exchange.kept, rank, message);
            } else if (copies_.size() == 1) {
                add_message(exchange.receives, from_.mesh->rank_at(piece), message);
            } else {
                add_message(shared, piece, message);
            }
        });
        // A line is expensive: piece by piece.
        sort_list(shared, [](Message const& a, Message const& b) { return a.peer < b.peer; });
        Line line;
        for (Message const& message : shared) {
            if (message.peer != line.piece) line = line_of(message.peer);
            auto const receive = [&](Index copy, Message const& part) {
                add_message(exchange.receives, from_.mesh->rank_at(line.piece + copies_.ordinal(copy)), part);
            };
            share(message, start(line, message, target), line.length, copies_.size(), receive);
        }
    }

    void plan_sends(Index rank, Index source, Exchange& exchange) const {
        auto const sets = index_sets(from_, source);
        if (holds_nothing(sets)) return;
        if (copies_.size() > 1) {
            plan_shared_sends(line_of(from_.cutting_ordinal(source)), copies_.index(source), exchange);
            return;
        }
        send_all(exchange.sends, to_, Intersections(to_, sets, forms_), receivers_, 0, to_.mesh->ordinal(rank));
    }

    /// Only the receivers whose messages lie around this copy's span of the line are visited.
    void plan_shared_sends(Line const& line, Index copy, Exchange& exchange) const {
        if (line.length == 0) return;
        Index const copies = copies_.size();
        Interval const mine = span_of(line.length, copy, copies);
        Index turn = first_where<Index>(0, receivers_.size(), [&](Index i) { return line.origin(i + 1) > mine.begin; });
        for (; turn < receivers_.size() && line.origin(turn) < mine.end; ++turn) {
            std::size_t const holder = line.first_holder(turn);
            bool const at_home = holder < line.holders.size() && line.holders[holder].turn == turn;
            Index const origin = line.origin(turn);
            Interval const span =
                at_home ? Interval{0, line.all.elements()} : Interval{mine.begin - origin, mine.end - origin};
            Narrowed const near(to_, forms_, line.all, nullptr, span);
            Index next = origin;  // without blocks, messages come in the order of the line
            near.for_each([&](Message const& message, Index destination) {
                Index const target = destination + receivers_.ordinal(turn);
                if (at_home && line.is_holder(turn, target)) return;
                Index const place = at_home && !line.all.any_listed() ? next : start(line, message, target);
                next += message.elements();
                if (place >= mine.end || place + message.elements() <= mine.begin) return;
                Index const receiver = to_.mesh->rank_at(target);
                auto const send = [&](Index sender, Message const& part) {
                    if (sender == copy) add_message(exchange.sends, receiver, part);
                };
                share(message, place, line.length, copies, send);
            });
        }
    }

    Grid const& from_;
    Grid const& to_;
    AxisSubset copies_;
    AxisSubset receivers_;
    DimForms forms_;
    bool overlap_;  ///< the meshes may have ranks in common
};

}  // namespace reshard::inline v0_1::detail
