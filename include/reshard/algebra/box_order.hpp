// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/box_order.hpp
/// \brief  Which of many boxes of a tensor may meet another one, found in their order along one dimension.
/// \depends box; <bit>, <span>. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/algebra/box.hpp>

#include <bit>   // bit_width, countr_zero
#include <span>  // span

namespace reshard::inline v0_1::detail {

/// Boxes by how long they are along a dimension, then by where they begin along it: those of class c are longer than
/// 2^(c-1), but for c = 0, and at most 2^c. Each class is searched for itself, or one long box would have all the short
/// ones looked at. Those that begin together, as in a grid, come by where they begin along a second dimension.
struct BoxOrder {
    int dim = 0;                ///< where they are shortest in sum, as parts of the extent; of equal ones the first
    int second = -1;            ///< the next one; -1: some box is as long as the tensor there
    Index longest = 0;          ///< of all boxes along `second`
    std::uint64_t classes = 0;  ///< bit c: there are boxes of class c

    using Key = std::pair<int, std::pair<Index, Index>>;  ///< class, begins
    [[nodiscard]] Key key(Box const& box) const noexcept {
        if (box.rank() == 0) return {};
        auto const beyond_1 = static_cast<std::uint64_t>(larger<Index>(box.extent(dim), 1) - 1);
        return {static_cast<int>(std::bit_width(beyond_1)), {box.begin(dim), second < 0 ? 0 : box.begin(second)}};
    }
};

/// Of the boxes box_of(place), for the places given.
template <class BoxOf>
[[nodiscard]] BoxOrder box_order(DynamicShape const& shape, std::span<std::size_t const> places, BoxOf const& box_of) {
    double parts[max_dims] = {};
    for (int d = 0; d < shape.rank(); ++d) {
        for (std::size_t const place : places) parts[d] += static_cast<double>(box_of(place).extent(d));
        parts[d] /= static_cast<double>(larger<Index>(shape.extent(d), 1));
    }
    auto const shortest_but = [&](int other) {
        int best = -1;
        for (int d = 0; d < shape.rank(); ++d)
            if (d != other && (best < 0 || parts[d] < parts[best])) best = d;
        return best;
    };
    BoxOrder best;
    best.dim = larger(shortest_but(-1), 0);
    best.second = shortest_but(best.dim);
    for (std::size_t const place : places) {
        if (best.second >= 0) best.longest = larger(best.longest, box_of(place).extent(best.second));
    }
    if (best.second >= 0 && best.longest >= shape.extent(best.second)) best.second = -1;
    for (std::size_t const place : places) best.classes |= std::uint64_t{1} << best.key(box_of(place)).first;
    return best;
}

/// Calls visit(places) for those of each class that may meet a box, in their order. Logarithmic in the number of places
/// but for what is visited: what meets the box along `dim`, or begins before it by less than twice its own length, and
/// along `second`, or begins before it by less than the longest. key_at(i) is the key of places[i]: a search is nothing
/// but that, so who searches often keeps keys side by side.
/// \pre the places are in the order
template <class KeyAt, class Visit>
void for_each_near(std::span<std::size_t const> places, BoxOrder const& order, Box const& box, KeyAt const& key_at,
                   Visit const& visit) {
    if (box.rank() == 0) return visit(places);
    Interval const wanted = box[order.dim];
    std::size_t at = 0;
    auto const go_to = [&](BoxOrder::Key const& key) {
        for (std::size_t left = places.size() - at; left > 0;) {
            std::size_t const half = left / 2;
            bool const is_before = key_at(at + half) < key;
            at += is_before ? half + 1 : 0;
            left = is_before ? left - half - 1 : half;
        }
        return at;
    };
    for (std::uint64_t rest = order.classes; rest != 0; rest &= rest - 1) {
        int const length = std::countr_zero(rest);
        // Those that begin 2^length before the box, or earlier, end before it.
        std::size_t first = go_to({length, {wanted.begin - (INT64_MAX >> (63 - length)), INT64_MIN}});
        std::size_t const last = go_to({length, {wanted.end, INT64_MIN}});
        if (order.second < 0) {
            visit(places.subspan(first, last - first));
            continue;
        }
        Interval const across = box[order.second];
        for (at = first; at != last;) {
            auto const [begin, next] = key_at(at).second;
            if (at + 1 == last || key_at(at + 1).second.first != begin) {
                if (next > across.begin - order.longest && next < across.end) visit(places.subspan(at, 1));
                ++at;
                continue;
            }
            first = go_to({length, {begin, across.begin - order.longest + 1}});
            std::size_t const end = go_to({length, {begin, across.end}});
            if (first != end) visit(places.subspan(first, end - first));
            go_to({length, {begin, INT64_MAX}});
        }
    }
}

}  // namespace reshard::inline v0_1::detail
