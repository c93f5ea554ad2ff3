// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/box_cover.hpp
/// \brief  Whether boxes hold every element of a whole exactly once; if not, where not; and who holds what.
/// \depends box, core. No I/O. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/core/sorting.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// A place where boxes do not add up to the whole once.
struct CoverFault {
    Box box;            ///< that is missing, or that is held more than once
    Index held = 0;     ///< by so many boxes; 0: missing, 1: there is no fault
    std::size_t a = 0;  ///< when held: two of those that hold it, as places in the list
    std::size_t b = 0;
};

// The sum of the boxes' indicator functions must be that of the whole. Functions that vanish outside a box are equal
// if and only if their mixed differences are, and those of a box are its corners with alternating signs. So the
// corners must cancel up to those of the whole: a question of sorting, however the boxes were cut. At the first corner
// that does not cancel the sum of signs is the number of boxes too many there. (Sweeps that compare the boxes which
// are open at the same time are quadratic as soon as the cuts run along the sweep: pytorch issue 163548.)

/// Finds the first corner that does not cancel.
class CornerSearch {
public:
    CornerSearch(Box const& whole, std::span<Box const> boxes) : whole_(whole), boxes_(boxes) {}

    /// Its sign sum, 0 when there is none. O(2^c n log n) where c is the number of dimensions that are cut.
    [[nodiscard]] int run() {
        std::vector<Item>& all = items_[0];
        all.push_back({boxes_.size(), -1});
        for (std::size_t i = 0; i < boxes_.size(); ++i)
            if (!boxes_[i].empty()) all.push_back({i, 1});
        return first_corner(0);
    }
    [[nodiscard]] Indices const& corner() const noexcept { return corner_; }

private:
    struct Item {
        std::size_t box = 0;
        int sign = 1;
    };
    struct Event {
        Index at = 0;
        Item item;
    };

    [[nodiscard]] Interval side(Item const& item, int dim) const noexcept {
        return item.box == boxes_.size() ? whole_[dim] : boxes_[item.box][dim];
    }
    /// Among the corners of items_[dim] in the dimensions from `dim` on, in lexicographic order.
    [[nodiscard]] int first_corner(int dim) {
        auto const d = as_size(dim);
        std::vector<Item> const& items = items_[d];
        if (dim == whole_.rank()) {
            int sum = 0;
            for (Item const& item : items) sum += item.sign;
            return sum;
        }
        Interval const first = items.empty() ? Interval{} : side(items[0], dim);
        bool uncut = true;
        for (Item const& item : items) uncut = uncut && side(item, dim) == first;
        corner_.values[dim] = first.begin;
        if (uncut) {  // the ends repeat what the begins say
            items_[d + 1] = items;
            return first_corner(dim + 1);
        }
        std::vector<Event>& events = events_[d];
        events.clear();
        for (Item const& item : items) {
            Interval const interval = side(item, dim);
            events.push_back({interval.begin, item});
            events.push_back({interval.end, {item.box, -item.sign}});
        }
        sort_list(events, [](Event const& a, Event const& b) { return a.at < b.at; });
        for (std::size_t e = 0; e < events.size();) {
            Index const at = events[e].at;
            items_[d + 1].clear();
            for (; e < events.size() && events[e].at == at; ++e) items_[d + 1].push_back(events[e].item);
            corner_.values[dim] = at;
            if (int const sum = first_corner(dim + 1); sum != 0) return sum;
        }
        return 0;
    }

    Box whole_;
    std::span<Box const> boxes_;
    Indices corner_;  // its values; it has no size
    std::vector<Item> items_[max_dims + 1];
    std::vector<Event> events_[max_dims];
};

/// Whether boxes add up to a whole. \pre the whole is not empty, all boxes lie inside it.
[[nodiscard]] inline CoverFault find_cover_fault(Box const& whole, std::span<Box const> boxes) {
    CoverFault fault;
    CornerSearch search(whole, boxes);
    fault.held = 1 + search.run();
    if (fault.held == 1) return fault;
    Indices corner;
    for (int d = 0; d < whole.rank(); ++d) corner.push_back(search.corner()[d]);
    if (fault.held == 0) {  // from the corner on, as far as no box is in the way
        fault.box = whole;
        for (int d = 0; d < whole.rank(); ++d) fault.box.set(d, {corner[d], whole.end(d)});
        for (Box const& box : boxes) {
            if (box.empty() || intersect(box, fault.box).empty()) continue;
            int dim = 0;
            while (box.begin(dim) <= corner[dim]) ++dim;  // it meets the box but not its corner
            fault.box.set(dim, {corner[dim], box.begin(dim)});
        }
        return fault;
    }
    fault.a = 0;
    while (boxes[fault.a].empty() || !boxes[fault.a].contains(corner)) ++fault.a;
    fault.b = fault.a + 1;
    while (boxes[fault.b].empty() || !boxes[fault.b].contains(corner)) ++fault.b;
    fault.box = intersect(boxes[fault.a], boxes[fault.b]);
    return fault;
}

/// `cell` cut into parts that the same boxes hold, some of `active`, which ascend and all have something of it.
/// Each cut is in the middle of the ends that lie within, along the dimension where it leaves each side the fewest
/// boxes. (Cuts along one dimension after the other would be through all boxes that lie beside each other.)
template <class Visit>
void for_each_cell(Box const& cell, std::span<Box const> boxes, std::span<std::size_t const> active,
                   Visit const& visit) {
    int dim = -1;
    Index cut = 0;
    std::size_t least = 0;
    {
        std::vector<Index> ends;
        for (int d = 0; d < cell.rank(); ++d) {
            ends.clear();
            for (std::size_t const box : active)
                for (Index const end : {boxes[box].begin(d), boxes[box].end(d)})
                    if (cell.begin(d) < end && end < cell.end(d)) ends.push_back(end);
            if (ends.empty()) continue;
            sort_list(ends, [](Index a, Index b) { return a < b; });
            Index const middle = ends[ends.size() / 2];
            std::size_t below = 0;
            std::size_t above = 0;
            for (std::size_t const box : active) {
                if (boxes[box].begin(d) < middle) ++below;
                if (boxes[box].end(d) > middle) ++above;
            }
            if (dim >= 0 && larger(below, above) >= least) continue;
            dim = d;
            cut = middle;
            least = larger(below, above);
        }
    }
    if (dim < 0) return visit(cell, active);
    std::vector<std::size_t> some;
    for (Interval const side : {Interval{cell.begin(dim), cut}, Interval{cut, cell.end(dim)}}) {
        some.clear();
        for (std::size_t const box : active)
            if (boxes[box].begin(dim) < side.end && boxes[box].end(dim) > side.begin) some.push_back(box);
        Box part = cell;
        part.set(dim, side);
        for_each_cell(part, boxes, std::span<std::size_t const>(some), visit);
    }
}
/// Calls visit(cell, holders) for parts of a whole that fill it: `holders` are the places in the list of all boxes that
/// hold the cell, ascending; of no box that holds a part of it.
template <class Visit>
void for_each_cell(Box const& whole, std::span<Box const> boxes, Visit const& visit) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < boxes.size(); ++i)
        if (!intersect(boxes[i], whole).empty()) all.push_back(i);
    for_each_cell(whole, boxes, std::span<std::size_t const>(all), visit);
}

/// Whether a box is one of a tensor of this shape.
[[nodiscard]] inline bool lies_inside(Box const& box, DynamicShape const& shape) noexcept {
    if (box.rank() != shape.rank()) return false;
    for (int d = 0; d < box.rank(); ++d)
        if (box.begin(d) < 0 || box.begin(d) > box.end(d) || box.end(d) > shape.extent(d)) return false;
    return true;
}

}  // namespace reshard::inline v0_1::detail
