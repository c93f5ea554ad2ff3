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
          copies_(*from.mesh, ~from.cutting),
          receivers_(*to.mesh, ~to.cutting),
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
        Index turn = 0;    ///< position among the destination's copies
        Index target = 0;  ///< ordinal on the destination's mesh
        Index elements = 1;
        Index before = 0;  ///< elements of the holders before this one
    };
    /// A piece of the source with copies. Its receivers lie end to end, copy by copy of the destination, without what
    /// is at home.
    struct Line {
        Index piece = -1;
        Tally all;                    ///< of the piece
        std::vector<Holder> holders;  ///< by turn; the last ends the list
        Index length = 0;
        std::vector<TallyTile> tiles{};    ///< of what holders have at home, as far as somebody has asked
        std::vector<std::size_t> homes{};  ///< by holder and dimension: where its tiles begin and end, or 0

        /// The first holder whose turn is `turn` or later.
        [[nodiscard]] Holder const* holder(Index turn) const noexcept {
            auto const is_there = [&, this](std::size_t i) { return holders[i].turn >= turn; };
            return &holders[first_where<std::size_t>(0, holders.size() - 1, is_there)];
        }
        /// Where the receivers of a turn begin.
        [[nodiscard]] Index origin(Index turn) const noexcept { return turn * all.elements() - holder(turn)->before; }
    };

    [[nodiscard]] Line line_of(Index piece) const {
        auto const sets = index_sets(from_, piece);
        Line line{piece, Tally(to_, sets, forms_), {}, 0};
        Index const all = line_elements(receivers_.size(), line.all.elements());
        for (Index copy = 0; overlap_ && copy < copies_.size(); ++copy) {
            Index const target = to_.mesh->ordinal(from_.mesh->rank_at(piece + copies_.ordinal(copy)));
            if (target < 0) continue;
            Holder const holder{receivers_.index(target), target, common_size(sets, index_sets(to_, target))};
            if (holder.elements != 0) line.holders.push_back(holder);
        }
        line.holders.push_back({receivers_.size()});
        sort_list(line.holders, [](Holder const& a, Holder const& b) { return a.turn < b.turn; });
        for (std::size_t i = 1; i < line.holders.size(); ++i)
            line.holders[i].before = line.holders[i - 1].before + line.holders[i - 1].elements;
        line.length = all - line.holders.back().before;
        return line;
    }
    /// What a holder needs of its piece along a dimension. Many messages ask for the same.
    [[nodiscard]] std::span<TallyTile> home_of(Line& line, Holder const& holder, int dim) const {
        int const dims = forms_.size();
        line.homes.resize(2 * line.holders.size() * as_size(dims));
        std::size_t* const home = &line.homes[2 * as_size((&holder - line.holders.data()) * dims + dim)];
        std::vector<TallyTile>& tiles = line.tiles;
        if (home[1] == 0) {
            home[0] = tiles.size();
            for_each_sent(line.all.set(dim), to_.index_set(holder.target, dim), forms_[dim].levels,
                          [&](Segments const& segments) {
                              tiles.push_back({segments.first.begin, segments.size()});
                          });
            add_up(tiles, home[0]);
            home[1] = tiles.size();
        }
        return {tiles.data() + home[0], home[1] - home[0]};
    }
    /// Where a message to the rank at `target` starts on the line.
    [[nodiscard]] Index start(Line& line, Message const& message, Index target) const {
        Index const turn = receivers_.index(target);
        Index result = line.origin(turn) + line.all.place(message, target);
        for (Holder const* holder = line.holder(turn); holder->turn == turn; ++holder) {
            Index across = 1;
            Index inner = holder->elements;
            for (int dim = 0; dim < message.box.size() && across != 0; ++dim) {
                IndexSet const at_home = to_.index_set(holder->target, dim);
                std::span<TallyTile> const home = home_of(line, *holder, dim);
                Index const before = home[first_where<std::size_t>(0, home.size() - 1, [&](std::size_t i) {
                                         return home[i].begin >= message.box[dim].begin;
                                     })].before;
                inner /= home.back().before;
                result -= across * before * inner;
                across *= to_.index_set(target, dim) == at_home ? message.extent(dim) : 0;
            }
        }
        return result;
    }
    [[nodiscard]] bool holds(Index rank, Index piece) const noexcept {
        Index const source = from_.mesh->ordinal(rank);
        return source >= 0 && from_.cutting_ordinal(source) == piece;
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
        Index const copies = copies_.size();
        if (copies == 1) {
            return send_all(exchange.sends, to_, Intersections(to_, sets, forms_), receivers_, 0,
                            to_.mesh->ordinal(rank));
        }
        // Only the receivers whose messages lie around this copy's span of the line are visited.
        Line line = line_of(from_.cutting_ordinal(source));
        if (line.length == 0) return;
        Index const copy = copies_.index(source);
        Interval const mine = span_of(line.length, copy, copies);
        Index turn = first_where<Index>(0, receivers_.size(), [&](Index i) { return line.origin(i + 1) > mine.begin; });
        for (; turn < receivers_.size() && line.origin(turn) < mine.end; ++turn) {
            bool const at_home = line.holder(turn)->turn == turn;
            Index const origin = line.origin(turn);
            Interval const span =
                at_home ? Interval{0, line.all.elements()} : Interval{mine.begin - origin, mine.end - origin};
            Narrowed const near(to_, forms_, line.all, nullptr, span);
            Index next = origin;  // without blocks, messages come in the order of the line
            near.for_each([&](Message const& message, Index destination) {
                Index const target = destination + receivers_.ordinal(turn);
                Index const receiver = to_.mesh->rank_at(target);
                if (at_home && holds(receiver, line.piece)) return;
                Index const place = at_home && !line.all.any_listed() ? next : start(line, message, target);
                next += message.elements();
                if (place >= mine.end || place + message.elements() <= mine.begin) return;
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
