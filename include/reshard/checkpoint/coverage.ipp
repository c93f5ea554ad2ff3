// SPDX-License-Identifier: Apache-2.0
// How checkpoint/coverage.hpp is done.
#pragma once

#include <reshard/checkpoint/coverage.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0 {

namespace detail {

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
        auto const d = static_cast<std::size_t>(dim);
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
    std::vector<Item> items_[max_rank + 1];
    std::vector<Event> events_[max_rank];
};

[[nodiscard]] inline bool lies_inside(Box const& box, DynamicShape const& shape) noexcept {
    if (box.rank() != shape.rank()) return false;
    for (int d = 0; d < box.rank(); ++d)
        if (box.begin(d) < 0 || box.begin(d) > box.end(d) || box.end(d) > shape.extent(d)) return false;
    return true;
}

}  // namespace detail

RESHARD_INLINE detail::CoverFault detail::find_cover_fault(Box const& whole, std::span<Box const> boxes) {
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

RESHARD_INLINE std::string detail::coverage_fault(Manifest const& manifest) {
    std::vector<Extent const*> order;
    for (Extent const& extent : manifest.extents) order.push_back(&extent);
    detail::sort_list(order, [](Extent const* a, Extent const* b) {
        if (a->tensor != b->tensor) return a->tensor < b->tensor;
        return a->replica != b->replica ? a->replica < b->replica : a < b;
    });
    auto const place = [&](Extent const& extent) {
        return quote_name(manifest.files[static_cast<std::size_t>(extent.file)].leaf);
    };
    std::vector<Box> boxes;
    auto at = order.begin();
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
        StoredTensor const& tensor = manifest.tensors[t];
        Box const whole(tensor.shape);
        for (int replica = 0; replica < tensor.replicas; ++replica) {
            auto const who = [&] { return concat("tensor ", quote_name(tensor.name), ", replica ", replica, ": "); };
            auto const first = at;
            boxes.clear();
            for (; at != order.end() && (*at)->tensor == t && (*at)->replica == replica; ++at) {
                boxes.push_back((*at)->box);
                if (lies_inside(boxes.back(), tensor.shape)) continue;
                return concat(who(), "box ", to_string(boxes.back()), " in ", place(**at), " lies outside its shape ",
                              to_string(tensor.shape));
            }
            if (whole.empty()) {  // nothing to hold; do not count to any number of replicas
                if (at == order.end() || (*at)->tensor != t) break;
                replica = (*at)->replica - 1;
                continue;
            }
            CoverFault const fault = find_cover_fault(whole, boxes);
            if (fault.held == 1) continue;
            if (fault.held == 0) return concat(who(), "box ", to_string(fault.box), " is missing");
            Extent const& a = *first[static_cast<std::ptrdiff_t>(fault.a)];
            Extent const& b = *first[static_cast<std::ptrdiff_t>(fault.b)];
            return concat(who(), "box ", to_string(fault.box), " is held more than once: by ", to_string(a.box), " in ",
                          place(a), ", by ", to_string(b.box), " in ", place(b));
        }
    }
    return {};
}

RESHARD_INLINE void check_coverage(Manifest const& manifest, std::string_view file) {
    std::string const fault = detail::coverage_fault(manifest);
    if (fault.empty()) return;
    raise(ErrorCode::format, "reshard::Manifest: ", file, ": ", fault, ". Fix: restore the file, or save anew.");
}

}  // namespace reshard::inline v0
