// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/box_cover.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <vector>

using namespace reshard;
using reshard::detail::CoverFault;
using reshard::detail::find_cover_fault;

namespace {
using test::guillotine;

/// Calls f for every element of a box.
template <class F>
void for_each_element(Box const& box, F&& f) {
    if (box.empty()) return;
    Indices at;
    for (int d = 0; d < box.rank(); ++d) at.push_back(box.begin(d));
    for (;;) {
        f(at);
        int d = box.rank() - 1;
        while (d >= 0 && ++at[d] == box.end(d)) {
            at[d] = box.begin(d);
            --d;
        }
        if (d < 0) return;
    }
}

std::size_t position(Box const& whole, Indices const& at) {
    Index sum = 0;
    for (int d = 0; d < whole.rank(); ++d) sum = sum * whole.extent(d) + at[d];
    return static_cast<std::size_t>(sum);
}

/// Every element is counted one by one; the answer must be about such a count.
void check_against_counts(Box const& whole, std::vector<Box> const& boxes) {
    std::vector<int> counts(static_cast<std::size_t>(whole.size()));
    for (Box const& box : boxes) for_each_element(box, [&](Indices const& at) { ++counts[position(whole, at)]; });
    bool covered = true;
    for (int const count : counts) covered = covered && count == 1;
    CoverFault const fault = find_cover_fault(whole, boxes);
    CAPTURE(to_string(fault.box));
    REQUIRE((fault.held == 1) == covered);
    if (covered) return;
    REQUIRE_FALSE(fault.box.empty());
    REQUIRE(contains(whole, fault.box));
    for_each_element(fault.box, [&](Indices const& at) {
        if (fault.held == 0) {
            REQUIRE(counts[position(whole, at)] == 0);
        } else {
            REQUIRE(counts[position(whole, at)] >= 2);
        }
    });
    if (fault.held == 0) return;
    REQUIRE(fault.a < fault.b);
    REQUIRE(intersect(boxes[fault.a], boxes[fault.b]) == fault.box);
}

}  // namespace

TEST_CASE("coverage is what counting every element says, for cuts of any kind with any fault") {
    for (std::uint64_t const seed : reshard::test::seeds(20'000)) {
        CAPTURE(seed);
        reshard::test::Random random(seed, {.max_dims = 4, .max_extent = 9, .max_elements = 400});
        DynamicShape const shape = random.shape();
        Box const whole(shape);
        if (whole.empty()) continue;
        CAPTURE(to_string(shape));
        std::vector<Box> boxes = guillotine(random, whole, static_cast<int>(random.between(0, 14)));
        std::shuffle(boxes.begin(), boxes.end(), random.engine());
        check_against_counts(whole, boxes);
        REQUIRE(find_cover_fault(whole, boxes).held == 1);

        for (Index faults = random.between(1, 3); faults > 0 && !boxes.empty(); --faults) {
            auto const which = static_cast<std::size_t>(random.between(0, static_cast<Index>(boxes.size()) - 1));
            int const dim = whole.rank() == 0 ? 0 : static_cast<int>(random.between(0, whole.rank() - 1));
            switch (whole.rank() == 0 ? random.between(0, 1) : random.between(0, 4)) {
                case 0: boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(which)); break;
                case 1: boxes.push_back(boxes[which]); break;
                case 2:  // shorter, or empty
                    boxes[which].set(dim, {boxes[which].begin(dim), boxes[which].end(dim) - 1});
                    if (boxes[which].extent(dim) < 0) boxes[which].set(dim, {0, 0});
                    break;
                case 3:  // by one
                    if (boxes[which].end(dim) < whole.end(dim)) {
                        boxes[which].set(dim, {boxes[which].begin(dim) + 1, boxes[which].end(dim) + 1});
                    }
                    break;
                default: {  // any other box
                    for (int d = 0; d < whole.rank(); ++d) {
                        Index const begin = random.between(0, whole.end(d));
                        boxes[which].set(d, {begin, random.between(begin, whole.end(d))});
                    }
                }
            }
        }
        check_against_counts(whole, boxes);
    }
}

TEST_CASE("boxes beside each other that are cut elsewhere come to about as many cells as there are boxes") {
    std::vector<Box> boxes;
    Box const whole{{0, 400}, {0, 400}};
    for (Index column = 0; column < 400; ++column) {
        boxes.push_back(Box{{0, column}, {column, column + 1}});
        boxes.push_back(Box{{column, 400}, {column, column + 1}});
    }
    std::size_t cells = 0;
    Index elements = 0;
    detail::for_each_cell(whole, boxes, [&](Box const& cell, std::span<std::size_t const> holders) {
        CHECK(holders.size() == 1);
        elements += cell.size();
        ++cells;
    });
    CHECK(elements == whole.size());
    CHECK(cells < 2 * boxes.size());
}
