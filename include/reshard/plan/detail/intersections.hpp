// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/intersections.hpp
/// \brief  The pieces of one grid that meet what a rank has of another, as messages.
/// \depends share.
#pragma once

#include <reshard/plan/detail/share.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// By peer, then by box: the boxes of one exchange with a peer differ in where they begin.
inline void sort_messages(std::vector<Message>& messages) {
    sort_list(messages, [](Message const& a, Message const& b) {
        if (a.peer != b.peer) return a.peer < b.peer;
        for (int dim = 0; dim < a.box.size(); ++dim) {
            if (a.box[dim].begin != b.box[dim].begin) return a.box[dim].begin < b.box[dim].begin;
        }
        return false;
    });
}

/// How two grids of the same extents meet, dimension by dimension.
[[nodiscard]] inline DimForms forms_of(Grid const& a, Grid const& b) {
    return dim_forms(a.rank, a.dims.size(), [&](int dim) { return a.is_interleaved(dim) || b.is_interleaved(dim); });
}

[[nodiscard]] inline bool holds_nothing(IndexSets const& sets) noexcept {
    for (auto const& set : sets)
        if (set.size() == 0) return true;
    return false;
}

/// The pieces of `grid` that meet `sets`, dimension by dimension; their products are the messages.
class Intersections {
public:
    Intersections(Grid const& grid, IndexSets const& sets, DimForms const& forms) {
        pieces_.reserve(8);
        bool const any = !holds_nothing(sets);  // a dimension of which nothing is had leaves nothing to meet
        for (int dim = 0; dim < sets.size(); ++dim) {
            begin_.push_back(as_index(pieces_.size()));
            if (!any) continue;
            grid.for_each_part(dim, sets[dim], [&](IndexSet const& part, Index ordinal) {
                for_each_sent(sets[dim], part, forms[dim].levels, [&](Segments const& segments) {
                    pieces_.push_back({segments, ordinal});
                });
            });
        }
        begin_.push_back(as_index(pieces_.size()));
    }

    /// How many messages there are.
    [[nodiscard]] std::size_t size() const noexcept {
        Index product = 1;
        for (int dim = 0; dim + 1 < begin_.size(); ++dim) product *= begin_[dim + 1] - begin_[dim];
        return as_size(product);
    }
    /// Calls `visit(message, ordinal)` for every message, row-major.
    void for_each(MessageVisitor visit) const {
        Message message;
        walk(0, message, 0, visit);
    }

private:
    /// What a dimension shares with a part of the other side, and what that side's axes add to the ordinal.
    struct Piece {
        Segments segments;
        Index ordinal = 0;
    };
    /// `message`, `ordinal`: of the dimensions before `dim`.
    [[gnu::noinline]] void walk(int dim, Message& message, Index ordinal, MessageVisitor visit) const {
        if (dim + 1 == begin_.size()) return visit(message, ordinal);
        int const repeats = message.repeats.size();
        for (Index i = begin_[dim]; i != begin_[dim + 1]; ++i) {
            Piece const& piece = pieces_[as_size(i)];
            append(message, piece.segments);
            walk(dim + 1, message, ordinal + piece.ordinal, visit);
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

/// All of a piece that nobody else has, to all who need it: `receivers` counts those of a part, whose ordinals are
/// from `base` on. But for `own`, who has it.
inline void send_all(std::vector<Message>& sends, Grid const& to, Intersections const& shared,
                     AxisSubset const& receivers, Index base, Index own) {
    sends.reserve(shared.size() * as_size(receivers.size()));
    shared.for_each([&](Message const& message, Index destination) {
        for (Index i = 0; i < receivers.size(); ++i) {
            Index const receiver = base + destination + receivers.ordinal(i);
            if (receiver != own) add_message(sends, to.mesh->rank_at(receiver), message);
        }
    });
}

[[nodiscard]] inline IndexSets index_sets(Grid const& grid, Index ordinal) {
    IndexSets sets;
    for (int dim = 0; dim < grid.dims.size(); ++dim) sets.push_back(grid.index_set(ordinal, dim));
    return sets;
}

}  // namespace reshard::inline v0_1::detail
