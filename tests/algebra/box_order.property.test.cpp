// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/box_order.hpp>

#include <reshard/core/sorting.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <vector>

using namespace reshard;
using reshard::detail::BoxOrder;

namespace {

/// Boxes in their order, and how often one was looked at.
struct Ordered {
    std::vector<Box> boxes;
    std::vector<std::size_t> places;
    BoxOrder order;
    mutable int looks = 0;

    Ordered(DynamicShape const& shape, std::vector<Box> list) : boxes(std::move(list)) {
        for (std::size_t i = 0; i < boxes.size(); ++i) places.push_back(i);
        auto const box_of = [this](std::size_t place) -> Box const& { return boxes[place]; };
        order = detail::box_order(shape, places, box_of);
        detail::sort_list(places,
                          [this](std::size_t a, std::size_t b) { return order.key(boxes[a]) < order.key(boxes[b]); });
    }
    [[nodiscard]] std::vector<std::size_t> near(Box const& box) const {
        std::vector<std::size_t> result;
        auto const key_at = [this](std::size_t i) {
            ++looks;
            return order.key(boxes[places[i]]);
        };
        detail::for_each_near(places, order, box, key_at, [&](std::span<std::size_t const> some) {
            result.insert(result.end(), some.begin(), some.end());
        });
        return result;
    }
};

/// Of any length, from none to all of it, short ones as often as long ones.
Interval interval(test::Random& random, Index extent) {
    Index const length = random.between(0, std::min(extent, Index{1} << random.between(0, 62)));
    Index const begin = random.between(0, extent - length);
    return {begin, begin + length};
}

}  // namespace

TEST_CASE("boxes of very different lengths: each that meets another is near it, once") {
    for (std::uint64_t const seed : test::seeds(1'000)) {
        CAPTURE(seed);
        test::Random random(seed);
        Indices extents;
        Index most = INT64_MAX;
        for (Index dims = random.between(0, 3); dims > 0; --dims) {
            extents.push_back(random.chance(20) ? most : std::min(most, Index{1} << random.between(0, 62)));
            most /= extents[extents.size() - 1];
        }
        DynamicShape const shape(extents);
        auto const any_box = [&] {
            Box box;
            for (Index const extent : extents)
                box.push_back(random.chance(10) ? Interval{0, extent} : interval(random, extent));
            return box;
        };
        std::vector<Box> boxes;
        for (Index count = random.between(0, 60); count > 0; --count) {
            boxes.push_back(any_box());
            while (random.chance(20)) boxes.push_back(boxes.back());
        }
        Ordered const ordered(shape, boxes);
        for (int turn = 0; turn < 10; ++turn) {
            Box const wanted = any_box();
            std::vector<std::size_t> const near = ordered.near(wanted);
            REQUIRE(std::is_sorted(near.begin(), near.end(), [&](std::size_t a, std::size_t b) {
                return ordered.order.key(boxes[a]) < ordered.order.key(boxes[b]);
            }));
            for (std::size_t i = 0; i < boxes.size(); ++i) {
                auto const visits = std::count(near.begin(), near.end(), i);
                REQUIRE(visits <= 1);
                REQUIRE((visits == 1 || intersect(boxes[i], wanted).empty()));
            }
        }
    }
}

TEST_CASE("a whole box among small ones makes no search one of all of them, along whichever dimension they are cut") {
    for (int const dim : {0, 1}) {
        CAPTURE(dim);
        DynamicShape const shape = Shape{10'000, 10'000};
        std::vector<Box> boxes;
        for (Index i = 0; i < 10'000; ++i) {
            boxes.emplace_back(shape);
            boxes.back().set(dim, {i, i + 1});
        }
        boxes.emplace_back(shape);
        Ordered const ordered(shape, boxes);
        CHECK(ordered.near(boxes[9'000]) == std::vector<std::size_t>{9'000, 10'000});
        CHECK(ordered.looks < 100);
    }
}

TEST_CASE(
    "in a grid of three dimensions a search looks at a row of it, not at a layer; a box as long as the tensor changes "
    "that") {
    DynamicShape const shape = Shape{240, 240, 240};
    std::vector<Box> boxes;
    for (Index i = 0; i < 30; ++i) {
        for (Index j = 0; j < 30; ++j) {
            for (Index k = 0; k < 30; ++k) {
                boxes.emplace_back(Box{{8 * i, 8 * i + 8}, {8 * j, 8 * j + 8}, {8 * k, 8 * k + 8}});
            }
        }
    }
    Box const ghosts{{80, 81}, {159, 161}, {0, 240}};
    Ordered const grid(shape, boxes);
    CHECK(grid.near(ghosts).size() == 2 * 30);
    CHECK(grid.looks < 200);
    boxes.emplace_back(Box{{80, 88}, {0, 240}, {0, 8}});
    Ordered const crossed(shape, boxes);
    CHECK(crossed.near(ghosts).size() == 30 * 30 + 1);
}
