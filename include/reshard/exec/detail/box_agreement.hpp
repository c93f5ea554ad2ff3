// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/box_agreement.hpp
/// \brief  What ranks compare before they move boxes, and how one that differs is described.
/// \depends exec/{box_move,detail/batch_check}; <unordered_map>.
#pragma once

#include <reshard/exec/box_move.hpp>
#include <reshard/exec/detail/batch_check.hpp>

#include <unordered_map>  // unordered_map

namespace reshard::inline v0_1::detail {

/// The tables of a list of moves, each content once, in the order in which it is met: many tensors may be cut alike.
struct BoxTables {
    std::vector<BoxTable const*> list;
    std::vector<std::pair<std::size_t, std::size_t>> of;  ///< of each move, the numbers of `from` and `to`
    std::vector<std::uint64_t> boxes;                     ///< hashes of all boxes, table after table

    explicit BoxTables(std::span<BoxMove const> moves) {
        std::unordered_map<BoxTable const*, std::size_t> by_place;
        std::unordered_map<std::uint64_t, std::size_t> by_content;
        auto const number = [&](BoxTable const& table) {
            auto const [known, is_new] = by_place.try_emplace(&table, list.size());
            if (!is_new) return known->second;
            std::size_t const first = boxes.size();
            Digest whole;
            for (Index extent : table.shape().extents()) whole.add_signed(extent);
            for (HeldBox const& held : table.boxes()) {
                Digest box;
                box.add_word_signed(held.rank);
                for (int d = 0; d < held.box.rank(); ++d)
                    box.add_word_signed(held.box.begin(d)).add_word_signed(held.box.end(d));
                boxes.push_back(box.value());
                whole.add(box.value());
            }
            known->second = by_content.try_emplace(whole.value(), list.size()).first->second;
            known->second == list.size() ? list.push_back(&table) : boxes.resize(first);
            return known->second;
        };
        for (BoxMove const& move : moves) {
            std::size_t const from = number(move.from);
            of.emplace_back(from, number(move.to));
        }
    }
    /// Calls visit(move), and visit(move, table) for each table that this move is the first to have.
    template <class Move, class Table>
    void for_each(Move const& on_move, Table const& on_table) const {
        std::size_t met = 0;
        for (std::size_t i = 0; i < of.size(); ++i) {
            on_move(i);
            for (bool const reads : {true, false}) {
                std::size_t const table = reads ? of[i].first : of[i].second;
                if (table == met) on_table(i, *list[met++], reads);
            }
        }
    }
};

/// What this rank brings to the agreement: its tensors, and the boxes of each table behind the first that has it.
[[nodiscard]] inline BatchDigest digest_of(std::span<BoxMove const> moves, BoxTables const& tables) {
    BatchDigest result;
    auto next = tables.boxes.begin();
    tables.for_each(
        [&](std::size_t i) {
            BoxMove const& move = moves[i];
            Digest tensor;
            tensor.add_text(move.name).add(static_cast<std::uint64_t>(move.dtype)).add(move.from.boxes().size());
            tensor.add(move.fold ? static_cast<std::uint64_t>(move.fold->op) + 1 : 0);
            tensor.add(tables.of[i].first).add(tables.of[i].second);
            for (BoxTable const* table : {&move.from, &move.to})
                for (Index extent : table->shape().extents()) tensor.add_signed(extent);
            result.tensors.push_back(tensor.value());
        },
        [&](std::size_t, BoxTable const& table, bool) {
            auto const end = next + as_index(table.boxes().size());
            result.tensors.insert(result.tensors.end(), std::exchange(next, end), end);
        });
    return result;
}
/// "tensor 17 'ec.user'"; nothing where there is but one without a name.
[[nodiscard]] inline std::string label(std::span<BoxMove const> moves, std::size_t i) {
    if (moves.size() == 1 && moves[0].name.empty()) return {};
    return moves[i].name.empty() ? concat("tensor ", i) : concat("tensor ", i, " '", moves[i].name, "'");
}
/// Completes "rank 3 ..., but rank 0 ...". `place` as first_difference() gives it.
[[nodiscard]] inline std::string describe(std::span<BoxMove const> moves, BoxTables const& tables, Index place) {
    std::string text;
    auto const of = [&](std::size_t i) {
        std::string const tensor = label(moves, i);
        return tensor.empty() ? tensor : concat(" of ", tensor);
    };
    tables.for_each(
        [&](std::size_t i) {
            if (place-- != 0) return;
            BoxMove const& move = moves[i];
            auto const [from, to] = tables.of[i];
            auto const known = [&](std::size_t table) {  // another rank may have two where this one has the same
                for (std::size_t k = 0; k < i; ++k) {
                    bool const read = tables.of[k].first == table;
                    if (read || tables.of[k].second == table)
                        return concat(" (as ", read ? "read" : "written", " for ", label(moves, k), ")");
                }
                return std::string();
            };
            text =
                concat("moves ", move.from.boxes().size(), " boxes of ", to_string(move.from.shape()), known(from),
                       " into boxes of ", to_string(move.to.shape()), from == to ? " (the same)" : known(to), ", ",
                       name(move.dtype), move.fold ? ", folded by " : "", move.fold ? name(move.fold->op) : "", of(i));
        },
        [&](std::size_t i, BoxTable const& table, bool reads) {
            auto const count = as_index(table.boxes().size());
            if (place >= 0 && place < count) {
                HeldBox const& held = table.boxes()[as_size(place)];
                text = concat("lists ", to_string(held.box), " of rank ", held.rank, " as box ", place,
                              " of those that are ", reads ? "read" : "written", of(i));
            }
            place -= count;
        });
    return text.empty() ? concat("moves ", moves.size(), " tensors, and lists no more boxes") : text;
}

}  // namespace reshard::inline v0_1::detail
