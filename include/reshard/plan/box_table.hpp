// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/box_table.hpp
/// \brief  BoxTable: who holds what of a tensor as a list of boxes, for shards that no placement describes; and what
///         moves from one such table to another.
/// \depends algebra/{box_order,distribution}, core/sorting, plan/message; <span>, <vector>. Opt-in: not part of the
/// umbrella.
///
/// A distribution says in closed form what each rank of a mesh holds. Where shards are of any sizes, on any ranks, some
/// with copies and some without (the shards of a table in TorchRec, of a ShardedTensor in PyTorch, of an optimizer that
/// cuts its state as it likes), they are listed. Every rank gives the same list, and each finds its own part of an
/// exchange in it.
#pragma once

#include <reshard/algebra/box_order.hpp>
#include <reshard/algebra/distribution.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/plan/message.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// A box of a tensor, and the rank that has it.
struct HeldBox {
    Index rank = 0;  ///< of the communicator that moves it
    Box box;
};

enum class Overlap : std::uint8_t;
namespace planning {
struct BoxExchange;
}

/// Boxes of one tensor and who holds each. Where boxes that are read share elements, they are copies or addends, as
/// Overlap says.
class BoxTable {
public:
    /// Throws PlacementError for a box that is none of a tensor of this shape, MeshError for ranks below 0 or beyond 31
    /// bits. Empty boxes are legal.
    BoxTable(DynamicShape const& shape, std::vector<HeldBox> boxes);
    /// What the ranks of a distribution hold, each in row-major order: one box, several where blocks are dealt out in
    /// turn, none where the rank's part is empty (box_views() gives as many views). Throws PlacementError where it is
    /// Partial: addends are no parts.
    explicit BoxTable(DynamicDistribution const& distribution);

    [[nodiscard]] DynamicShape const& shape() const noexcept { return shape_; }
    /// By rank; those of one rank in the order in which they were given.
    [[nodiscard]] std::span<HeldBox const> boxes() const& noexcept { return boxes_; }
    std::span<HeldBox const> boxes() const&& = delete;
    /// Those of a rank.
    [[nodiscard]] std::span<HeldBox const> boxes_of(Index rank) const& noexcept;
    std::span<HeldBox const> boxes_of(Index rank) const&& = delete;
    /// The highest rank that has any; -1 when there is none.
    [[nodiscard]] Index last_rank() const noexcept { return boxes_.empty() ? -1 : boxes_.back().rank; }

    /// Calls visit(box, copies) for each box that has something of `wanted`, once: `copies` are the places in boxes()
    /// of all that are equal to it, by rank.
    template <class Visit>
    void for_each_near(Box const& wanted, Visit&& visit) const {
        auto const key_at = [this](std::size_t i) -> detail::BoxOrder::Key const& { return keys_[i]; };
        detail::for_each_near(sorted_, order_, wanted, key_at, [&, this](std::span<std::size_t const> near) {
            for_each_class(near, [&](Box const& box, std::span<std::size_t const> copies) {
                if (!intersect(box, wanted).empty()) visit(box, copies);
            });
        });
    }
    /// Calls visit(box, copies) for each box that is not empty, as above.
    template <class Visit>
    void for_each_class(Visit&& visit) const {
        for_each_class(sorted_, visit);
    }

private:
    friend planning::BoxExchange exchange(BoxTable const& from, BoxTable const& to, Index rank, Overlap overlap);
    void sort();
    /// For each box among some of sorted_, equal ones of which are side by side.
    template <class Visit>
    void for_each_class(std::span<std::size_t const> places, Visit&& visit) const {
        for (std::size_t i = 0; i < places.size();) {
            Box const& box = boxes_[places[i]].box;
            std::size_t const first = i++;
            while (i < places.size() && boxes_[places[i]].box == box) ++i;
            visit(box, places.subspan(first, i - first));
        }
    }

    DynamicShape shape_;
    std::vector<HeldBox> boxes_;
    std::vector<std::size_t> sorted_;  ///< places of those that are not empty, in order_; equal ones side by side
    std::vector<std::size_t> turn_;    ///< per place, where it stands in sorted_
    detail::BoxOrder order_;
    std::vector<detail::BoxOrder::Key> keys_;  ///< of the boxes of sorted_
};

namespace planning {

/// What travels from a box of one table to a box of another.
struct BoxMessage {
    Index peer = 0;
    Box box;               ///< what both have
    std::size_t from = 0;  ///< place in the boxes() of the table that is read, of the sender's
    std::size_t to = 0;    ///< and of the one that is written, of the receiver's
    friend bool operator==(BoxMessage const&, BoxMessage const&) = default;
};

/// A part of a box that is written, all of which the same addends reach.
struct BoxCell {
    std::size_t to = 0;  ///< place of the box
    Box box;
    std::vector<std::size_t> from;  ///< and of those that are read, by rank
};

/// One rank's part of an exchange between two tables: by peer, then by the box that is written, then by the one that is
/// read, so that the k-th send of s to d is the k-th receive of d from s.
struct BoxExchange {
    std::vector<BoxMessage> sends;
    std::vector<BoxMessage> receives;
    std::vector<BoxMessage> kept;  ///< the rank needs and holds it; peer is the rank
    std::vector<BoxCell> cells;    ///< where there are addends: what the rank's boxes are made of
    /// Elements of scratch memory: what arrives for cells, and the addends of all that have several.
    [[nodiscard]] Index scratch() const noexcept {
        Index elements = 0;
        for (BoxCell const& cell : cells)
            if (cell.from.size() > 1) elements += detail::as_index(cell.from.size()) * cell.box.size();
        for (BoxMessage const& message : receives) elements += cells.empty() ? 0 : message.box.size();
        return elements;
    }
};

}  // namespace planning

/// What boxes of the table that is read are where they share elements.
enum class Overlap : std::uint8_t {
    copies,  ///< equal ones are copies, of which one is read; others may not
    addends  ///< whoever needs an element gets it from all of them, to fold them
};

/// What rank `rank` sends, receives and keeps, so that it has its boxes of `to`. Of copies its own is read; of what
/// others hold they take turns. O((n + m) log n) for the n boxes of a table and the m messages of the rank, where one
/// dimension tells the boxes apart.
///
/// Throws ShapeError for tables of different shapes; PlacementError where an element that the rank needs is held by no
/// rank, or, where boxes are copies, by some that are not equal.
[[nodiscard]] planning::BoxExchange exchange(BoxTable const& from, BoxTable const& to, Index rank,
                                             Overlap overlap = Overlap::copies);

/// What rank `rank` moves, in elements.
[[nodiscard]] Cost cost(BoxTable const& from, BoxTable const& to, Index rank, Overlap overlap = Overlap::copies);

namespace detail {

using planning::BoxExchange;
using planning::BoxMessage;

/// The order of BoxExchange.
[[nodiscard]] inline bool is_sent_before(BoxMessage const& a, BoxMessage const& b) noexcept {
    if (a.peer != b.peer) return a.peer < b.peer;
    return a.to != b.to ? a.to < b.to : a.from < b.from;
}

}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/plan/box_table.ipp>
#endif
