// SPDX-License-Identifier: Apache-2.0
// How plan/box_table.hpp is done.
#pragma once

#include <reshard/algebra/box_cover.hpp>
#include <reshard/algebra/notation.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/plan/box_table.hpp>

#include <algorithm>  // ranges::lower_bound, ranges::upper_bound

namespace reshard::inline v0_1 {

namespace detail {

/// Whether a box comes before another: in the order given, and so that equal ones are side by side.
[[nodiscard]] inline bool is_before(Box const& a, Box const& b, BoxOrder const& order) noexcept {
    if (order.key(a) != order.key(b)) return order.key(a) < order.key(b);
    for (int d = 0; d < a.rank(); ++d) {
        if (a.begin(d) != b.begin(d)) return a.begin(d) < b.begin(d);
        if (a.end(d) != b.end(d)) return a.end(d) < b.end(d);
    }
    return false;
}

}  // namespace detail

RESHARD_INLINE BoxTable::BoxTable(DynamicShape const& shape, std::vector<HeldBox> boxes)
    : shape_(shape), boxes_(std::move(boxes)) {
    for (HeldBox const& held : boxes_) {
        if (!detail::lies_inside(held.box, shape_)) {
            errors::raise(ErrorCode::placement, "reshard::BoxTable: ", to_string(held.box), " of rank ", held.rank,
                          " is no box of a tensor of shape ", to_string(shape_),
                          ". Fix: give one interval per dimension, begin:end, within the shape.");
        }
        if (held.rank < 0 || held.rank > INT32_MAX) {
            errors::raise(ErrorCode::mesh, "reshard::BoxTable: ", to_string(held.box), " is held by rank ", held.rank,
                          ". Fix: ranks are 0 to 2147483647.");
        }
    }
    sort();
}

RESHARD_INLINE BoxTable::BoxTable(DynamicDistribution const& distribution) : shape_(distribution.shape()) {
    DynamicMesh const& mesh = distribution.mesh();
    if (distribution.signature().axes_of(PlacementKind::partial) != 0) {
        errors::raise(ErrorCode::placement, "reshard::BoxTable: under ", detail::brief(distribution),
                      " ranks hold addends, which are no parts. Fix: fold them first: redistribute to R or S.");
    }
    for (Index i = 0; i < mesh.size(); ++i) {
        Index const rank = mesh.rank_at(i);
        for (Box const& box : distribution.boxes(rank)) boxes_.push_back({rank, box});
    }
    sort();
}

RESHARD_INLINE void BoxTable::sort() {
    detail::sort_list(boxes_, [](HeldBox const& a, HeldBox const& b) { return a.rank < b.rank; });
    for (std::size_t place = 0; place < boxes_.size(); ++place)
        if (!boxes_[place].box.empty()) sorted_.push_back(place);
    order_ = detail::box_order(shape_, sorted_, [this](std::size_t place) -> Box const& { return boxes_[place].box; });
    detail::sort_list(sorted_, [this](std::size_t a, std::size_t b) {
        return detail::is_before(boxes_[a].box, boxes_[b].box, order_);
    });
    keys_.reserve(sorted_.size());
    for (std::size_t const place : sorted_) keys_.push_back(order_.key(boxes_[place].box));
    turn_.resize(boxes_.size());
    for (std::size_t i = 0; i < sorted_.size(); ++i) turn_[sorted_[i]] = i;
}

RESHARD_INLINE std::span<HeldBox const> BoxTable::boxes_of(Index rank) const& noexcept {
    return {std::ranges::lower_bound(boxes_, rank, {}, &HeldBox::rank),
            std::ranges::upper_bound(boxes_, rank, {}, &HeldBox::rank)};
}

namespace detail {

/// Which of the copies of a box a rank reads: its own, else those of others in turn.
[[nodiscard]] inline std::size_t copy_for(BoxTable const& table, std::span<std::size_t const> copies, Index rank,
                                          std::size_t turn) noexcept {
    auto const rank_of = [&](std::size_t place) { return table.boxes()[place].rank; };
    auto const own = std::ranges::lower_bound(copies, rank, {}, rank_of);
    return own != copies.end() && rank_of(*own) == rank ? *own : copies[turn % copies.size()];
}

/// Throws PlacementError for what `holders`, places in the table, do not have of a needed box, or more than once.
inline void check_needed(BoxTable const& from, Box const& needed, Index rank, CoverFault const& fault,
                         std::vector<std::size_t> const& holders) {
    if (fault.held == 1) return;
    std::string const who = concat("reshard::BoxTable: rank ", rank, " needs ", to_string(needed), " of a tensor of ",
                                   to_string(from.shape()), ", and ", to_string(fault.box));
    if (fault.held == 0)
        raise(ErrorCode::placement, who, " of it no rank holds by its list. Fix: list who does, on every rank alike.");
    auto const holder = [&](std::size_t i) {
        HeldBox const& one = from.boxes()[holders[i]];
        return concat(to_string(one.box), " of rank ", one.rank);
    };
    raise(ErrorCode::placement, who, " is held by ", holder(fault.a), " and by ", holder(fault.b),
          ", which overlap. Fix: list equal boxes as copies, and others apart, or fold them as addends.");
}

}  // namespace detail

RESHARD_INLINE planning::BoxExchange exchange(BoxTable const& from, BoxTable const& to, Index rank, Overlap overlap) {
    if (!(from.shape() == to.shape())) {
        errors::raise(ErrorCode::shape, "reshard::BoxTable: boxes of a tensor of ", to_string(from.shape()),
                      " cannot become boxes of one of ", to_string(to.shape()), ". Fix: give tables of one tensor.");
    }
    using Copies = std::span<std::size_t const>;
    auto const place_in = [](BoxTable const& table, HeldBox const& held) {
        return detail::as_size(&held - table.boxes().data());
    };
    planning::BoxExchange mine;
    std::vector<Box> parts;
    std::vector<std::size_t> holders;
    for (HeldBox const& needed : to.boxes_of(rank)) {
        if (needed.box.empty()) continue;
        parts.clear();
        holders.clear();
        std::size_t const place = place_in(to, needed);
        from.for_each_near(needed.box, [&](Box const& box, Copies copies) {
            std::size_t const one = detail::copy_for(from, copies, rank, to.turn_[place]);
            for (std::size_t const copy : overlap == Overlap::copies ? Copies(&one, 1) : copies) {
                Index const peer = from.boxes()[copy].rank;
                parts.push_back(intersect(box, needed.box));
                holders.push_back(copy);
                (peer == rank ? mine.kept : mine.receives).push_back({peer, parts.back(), copy, place});
            }
        });
        auto const check = [&](detail::CoverFault const& fault) {
            detail::check_needed(from, needed.box, rank, fault, holders);
        };
        if (overlap == Overlap::copies) {
            check(detail::find_cover_fault(needed.box, parts));
            continue;
        }
        detail::for_each_cell(needed.box, parts, [&](Box const& box, Copies addends) {
            check({box, addends.empty() ? 0 : 1});
            planning::BoxCell& cell = mine.cells.emplace_back(planning::BoxCell{place, box, {}});
            for (std::size_t const addend : addends) cell.from.push_back(holders[addend]);
            detail::sort_list(cell.from);
        });
    }
    for (HeldBox const& held : from.boxes_of(rank)) {
        if (held.box.empty()) continue;
        Copies alike;
        from.for_each_near(held.box, [&](Box const& box, Copies copies) {
            if (box == held.box) alike = copies;
        });
        to.for_each_near(held.box, [&](Box const& box, Copies copies) {
            for (std::size_t const taker : copies) {
                Index const peer = to.boxes()[taker].rank;
                std::size_t const place = place_in(from, held);
                if (peer == rank) continue;
                if (overlap == Overlap::copies && detail::copy_for(from, alike, peer, to.turn_[taker]) != place)
                    continue;
                mine.sends.push_back({peer, intersect(box, held.box), place, taker});
            }
        });
    }
    for (auto* const messages : {&mine.sends, &mine.receives, &mine.kept})
        detail::sort_list(*messages, detail::is_sent_before);
    return mine;
}

RESHARD_INLINE Cost cost(BoxTable const& from, BoxTable const& to, Index rank, Overlap overlap) {
    planning::BoxExchange const mine = exchange(from, to, rank, overlap);
    Cost result;
    result.phases = mine.sends.empty() && mine.receives.empty() ? 0 : 1;
    result.messages_sent = detail::as_index(mine.sends.size());
    result.messages_received = detail::as_index(mine.receives.size());
    for (planning::BoxMessage const& message : mine.sends) result.sent += message.box.size();
    for (planning::BoxMessage const& message : mine.receives) result.received += message.box.size();
    return result;
}

}  // namespace reshard::inline v0_1
