// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/distribution.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

using namespace reshard;

namespace {

/// A list of ascending indices as intervals.
std::vector<Interval> runs(oracle::Elements const& list) {
    std::vector<Interval> result;
    for (Index i : list) {
        if (result.empty() || result.back().end != i) result.push_back({i, i});
        ++result.back().end;
    }
    return result;
}

/// The indices boxes cover along one dimension, ascending.
oracle::Elements covered(std::vector<Box> const& boxes, int dim) {
    std::set<Index> seen;
    for (Box const& box : boxes)
        for (Index i = box.begin(dim); i < box.end(dim); ++i) seen.insert(i);
    return {seen.begin(), seen.end()};
}

void check_rank(DynamicDistribution const& d, Index rank) {
    CAPTURE(rank);
    std::vector<oracle::Elements> const held = oracle::held_indices(d, rank);
    Indices const coordinates = d.mesh().coordinates(rank);
    DynamicShape const local = d.local_shape(rank);
    Indices const offset = d.offset(rank);
    REQUIRE(local.rank() == d.shape().rank());

    Index size = 1;
    bool one_box = true;
    Box hull;
    Index boxes_expected = 1;
    for (int dim = 0; dim < d.shape().rank(); ++dim) {
        CAPTURE(dim);
        oracle::Elements const& list = held[oracle::at(dim)];
        auto const extent = static_cast<Index>(list.size());
        size *= extent;
        CHECK(local.extent(dim) == extent);
        CHECK(offset[dim] == (list.empty() ? d.shape().extent(dim) : list.front()));
        std::vector<Interval> const pieces = runs(list);
        boxes_expected *= static_cast<Index>(pieces.size());
        one_box = one_box && pieces.size() <= 1;
        hull.push_back(list.empty() ? Interval{d.shape().extent(dim), d.shape().extent(dim)}
                                    : Interval{list.front(), list.back() + 1});

        IndexSet const set = d.index_set(coordinates, dim);
        CHECK(set.size() == extent);
        REQUIRE(set.segments() == static_cast<Index>(pieces.size()));
        for (Index k = 0; k < set.segments(); ++k) CHECK(set.segment(k) == pieces[oracle::at(k)]);
        Index before = 0;
        int wrong = 0;
        for (Index i = 0; i < d.shape().extent(dim); ++i) {
            bool const here = before < extent && list[oracle::at(before)] == i;
            wrong += set.contains(i) != here || set.local_index(i) != before ? 1 : 0;
            before += here ? 1 : 0;
        }
        CHECK(wrong == 0);
    }

    if (one_box) {
        CHECK(d.box(rank) == hull);
    } else {
        CHECK_THROWS_AS(static_cast<void>(d.box(rank)), PlacementError);
    }
    std::vector<Box> const boxes = d.boxes(rank);
    REQUIRE(static_cast<Index>(boxes.size()) == boxes_expected);
    Index total = 0;
    for (std::size_t i = 0; i != boxes.size(); ++i) {
        CHECK_FALSE(boxes[i].empty());
        total += boxes[i].size();
        CHECK(d.holds(rank, boxes[i]));
        if (i > 0) {  // row-major: the first dimension that differs ascends
            int dim = 0;
            while (dim + 1 < d.shape().rank() && boxes[i][dim] == boxes[i - 1][dim]) ++dim;
            CHECK(boxes[i - 1].end(dim) <= boxes[i].begin(dim));
        }
    }
    CHECK(total == size);
    if (!boxes.empty()) {
        for (int dim = 0; dim < d.shape().rank(); ++dim) CHECK(covered(boxes, dim) == held[oracle::at(dim)]);
    }
}

Box random_box(test::Random& random, DynamicShape const& shape) {
    Box box;
    for (Index extent : shape.extents()) {
        Index const begin = random.between(0, extent);
        box.push_back({begin, std::min(extent, begin + random.between(0, random.chance(70) ? 2 : extent))});
    }
    return box;
}

void check_holders(DynamicDistribution const& d, Box const& box) {
    INFO("box ", to_string(box));
    std::vector<Index> expected;
    for (Index rank : oracle::ranks(d)) {
        std::vector<oracle::Elements> const held = oracle::held_indices(d, rank);
        bool all = true;
        for (int dim = 0; dim < box.rank() && !box.empty(); ++dim) {
            for (Index i = box.begin(dim); i < box.end(dim); ++i) {
                auto const& list = held[oracle::at(dim)];
                all = all && std::find(list.begin(), list.end(), i) != list.end();
            }
        }
        CHECK(d.holds(rank, box) == all);
        if (all) expected.push_back(rank);
    }
    CHECK(d.holders(box) == expected);
}

}  // namespace

TEST_CASE("boxes, local shapes, offsets and index sets are what cutting by definition gives") {
    int empty = 0;
    int several = 0;
    for (std::uint64_t seed : test::seeds(3000)) {
        test::Random random(seed);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        for (Index rank : oracle::ranks(d)) {
            check_rank(d, rank);
            std::size_t const boxes = d.boxes(rank).size();
            empty += boxes == 0 ? 1 : 0;
            several += boxes > 1 ? 1 : 0;
        }
    }
    CHECK(empty > test::of_seeds(100));  // the cases are not all easy ones
    CHECK(several > test::of_seeds(100));
}

TEST_CASE("holders of a box are the ranks whose lists have all of it") {
    int found = 0;
    for (std::uint64_t seed : test::seeds(2000)) {
        test::Limits limits;
        limits.max_dims = 3;
        test::Random random(seed, limits);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        for (int i = 0; i < 3; ++i) {
            Box const box = random_box(random, d.shape());
            check_holders(d, box);
            found += d.holders(box).empty() ? 0 : 1;
        }
    }
    CHECK(found > test::of_seeds(500));
}

TEST_CASE("every element of every addend is held by as many ranks as there are replicas") {
    for (std::uint64_t seed : test::seeds(500)) {
        test::Limits limits;
        limits.max_elements = 300;
        test::Random random(seed, limits);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        Index copies = 1;
        for (int axis = 0; axis < d.mesh().axes(); ++axis) {
            if (!d.placement(axis).is_shard()) copies *= d.mesh().extent(axis);
        }
        std::vector<Index> count(oracle::at(d.shape().size()), 0);
        for (Index rank : oracle::ranks(d)) {
            for (Index i : oracle::elements(d, rank)) ++count[oracle::at(i)];
        }
        int wrong = 0;
        for (std::size_t i = 0; i != count.size(); ++i) {
            Indices position;
            Indices reverse;
            auto rest = static_cast<Index>(i);
            for (int dim = d.shape().rank() - 1; dim >= 0; --dim) {
                reverse.push_back(rest % d.shape().extent(dim));
                rest /= d.shape().extent(dim);
            }
            while (!reverse.empty()) {
                position.push_back(reverse.back());
                reverse.pop_back();
            }
            wrong += count[i] != copies || static_cast<Index>(d.holders(position).size()) != copies ? 1 : 0;
        }
        CHECK(wrong == 0);
    }
}
