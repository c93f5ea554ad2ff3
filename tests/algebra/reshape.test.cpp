// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/algebra/reshape.hpp. What views hold is found by walking over elements (oracle.hpp).
#include <reshard/algebra/reshape.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {
using namespace reshard;

constexpr auto rows = distribution<Replicate, Shard<0>>(Mesh<2, 4>{}, Shape<8, 6>{});
static_assert(flatten(rows, 0, 1).local_shape(1).extent(0) == 12 && narrow(rows, 0, 2, 6).box(0).empty());
static_assert(unflatten(rows, 1, {2, 3}).shape().rank() == 3 && select(rows, 1, 5).shape().rank() == 1);
constexpr auto of_many = flatten(distribution<Shard<0>>(Mesh<16>{}, Shape<32, 4>{}), 0, 1);
static_assert(of_many == distribution<Shard<0>>(Mesh<16>{}, Shape<128>{}), "no list of boundaries was made");
static_assert(transpose(rows, 0, 1) == permute(rows, {1, 0}));

/// Row-major positions of a view's elements in the tensor, by definition.
struct View {
    DynamicDistribution result;
    std::vector<Index> positions;
};
std::vector<Index> all(DynamicShape const& shape) {
    std::vector<Index> result(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<Index>(i);
    return result;
}
std::vector<Index> within(DynamicShape const& shape, int dim, Index begin, Index count) {
    Index inner = 1;
    for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape.extent(d);
    std::vector<Index> result;
    for (Index i : all(shape)) {
        Index const at = i / inner % shape.extent(dim);
        if (at >= begin && at < begin + count) result.push_back(i);
    }
    return result;
}

/// Every rank's view of its part, in the order of its memory, is its part of the view.
void check_parts(DynamicDistribution const& from, View const& view) {
    std::vector<Index> place(static_cast<std::size_t>(from.shape().size()), -1);
    for (std::size_t i = 0; i < view.positions.size(); ++i) {
        place[static_cast<std::size_t>(view.positions[i])] = static_cast<Index>(i);
    }
    REQUIRE(view.result.shape().size() == static_cast<Index>(view.positions.size()));
    for (Index rank : oracle::ranks(from)) {
        std::vector<Index> wanted;
        for (Index i : oracle::elements(from, rank)) {
            if (place[static_cast<std::size_t>(i)] >= 0) wanted.push_back(place[static_cast<std::size_t>(i)]);
        }
        REQUIRE(oracle::elements(view.result, rank) == wanted);
    }
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        REQUIRE(view.result.placement(axis).is_partial() == from.placement(axis).is_partial());
    }
}

DynamicDistribution of(char const* placements, DynamicShape const& shape = Shape{8, 6}, int ranks = 2) {
    return distribution(Mesh{ranks}, shape, placements);
}
DynamicDistribution of_grid(char const* placements, DynamicShape const& shape) {
    return distribution(Mesh{2, 2}, shape, placements);
}

/// A dimension's extent as a product of up to three.
Indices factors(test::Random& random, Index extent) {
    Indices result;
    for (int i = 0; i < 2; ++i) {
        Index divisor = random.between(1, detail::larger(extent, Index{1}));
        while (extent % divisor != 0) --divisor;
        result.push_back(divisor);
        extent /= divisor;
    }
    result.push_back(extent);
    return result;
}

}  // namespace

TEST_SUITE("algebra/reshape") {
    TEST_CASE("the table of the header") {
        Indices const sizes{4, 2};
        CHECK(flatten(of("S0"), 0, 1) == of("S0", Shape{48}));
        CHECK(unflatten(of("S0"), 0, sizes) == of("S0", Shape{4, 2, 6}));
        CHECK(narrow(of("S0"), 0, 2, 5) == of("S0[0,2,5]", Shape{5, 6}));
        CHECK_THROWS_WITH_AS(static_cast<void>(select(of("S0"), 0, 3)),
                             "reshard::select: (2):(S0) of [8,6]: dimension 0 is cut. "
                             "Fix: redistribute it to R first: others would hold nothing.",
                             PlacementError);
        CHECK_THROWS_WITH_AS(static_cast<void>(flatten(of("S1"), 0, 1)),
                             "reshard::flatten: (2):(S1) of [8,6]: dimension 1 is cut. Fix: redistribute it first, so "
                             "that of the dimensions that are merged only the first is cut.",
                             PlacementError);
        CHECK(unflatten(of("S1"), 0, sizes) == of("S2", Shape{4, 2, 6}));
        CHECK(narrow(of("S1"), 0, 2, 5) == of("S1", Shape{5, 6}));
        CHECK(select(of("S1"), 0, 3) == of("S0", Shape{6}));
        CHECK(flatten(of("S0[0,5,8]"), 0, 1) == of("S0[0,30,48]", Shape{48}));
        CHECK_THROWS_WITH_AS(static_cast<void>(unflatten(of("S0[0,5,8]"), 0, sizes)),
                             "reshard::unflatten: (2):(S0[0,5,8]) of [8,6]: the parts of dimension 0 are no parts of "
                             "what it becomes. Fix: redistribute it first, to parts of whole rows: cuts at multiples "
                             "of the product of the later extents.",
                             PlacementError);
        CHECK(narrow(of("S0[0,5,8]"), 0, 2, 5) == of("S0[0,3,5]", Shape{5, 6}));
        CHECK(flatten(of("S0:cyc2"), 0, 1) == of("S0:cyc12", Shape{48}));
        CHECK(unflatten(of("S0:cyc2"), 0, sizes) == of("S0:cyc1", Shape{4, 2, 6}));
        CHECK_THROWS_WITH_AS(static_cast<void>(narrow(of("S0:cyc2"), 0, 2, 5)),
                             "reshard::narrow: (2):(S0:cyc2) of [8,6]: the parts of dimension 0 are no parts of what "
                             "it becomes. Fix: redistribute it to R first, or to cuts by one axis that deals out no "
                             "blocks.",
                             PlacementError);
        CHECK(narrow(of("S0:cyc2"), 0, 4, 3) == of("S0:cyc2", Shape{3, 6}));  // starts with a round
    }

    TEST_CASE("a rule stays where it makes the same parts, and becomes boundaries where one list fits") {
        CHECK(flatten(of("S0", Shape{5, 6}), 0, 1) == of("S0[0,18,30]", Shape{30}));
        CHECK(flatten(of("S0", Shape{5, 1}), 0, 1) == of("S0", Shape{5}));
        CHECK(flatten(of("S1", Shape{1, 8, 6}), 0, 2) == of("S0", Shape{48}));
        CHECK(unflatten(of("S0", Shape{8}), 0, {1, 4, 2}) == of("S1", Shape{1, 4, 2}));
        CHECK(unflatten(of("S0", Shape{16}, 4), 0, {8, 2}) == of("S0", Shape{8, 2}, 4));
        CHECK(narrow(of("S0"), 0, 0, 8) == of("S0"));
        CHECK(narrow(of("S0:bal", Shape{9}), 0, 0, 5) == of("S0[0,5,5]", Shape{5}));
        CHECK(flatten(of_grid("S0,S0", Shape{8, 3}), 0, 1) == of_grid("S0,S0", Shape{24}));
        CHECK(flatten(of_grid("S0,S0", Shape{6, 2}), 0, 1) == of_grid("S0,S0[0,4,6]", Shape{12}));
        CHECK_THROWS_AS(static_cast<void>(flatten(of_grid("S0,S0", Shape{5, 6}), 0, 1)), PlacementError);
        CHECK(flatten(of_grid("P+,S0", Shape{8, 6}), 0, 1) == of_grid("P+,S0", Shape{48}));
        auto const turned = distribution(Mesh{2, 2}, Shape{8, 3}, "S0,S0@1,0");
        CHECK(flatten(turned, 0, 1) == distribution(Mesh{2, 2}, Shape{24}, "S0,S0@1,0"));
        CHECK(flatten(distribution(Mesh{2, 1}, Shape{8, 6}, "S0,S1"), 0, 1) ==
              distribution(Mesh{2, 1}, Shape{48}, "S0,R"));
    }

    TEST_CASE("what the tensor does not have") {
        CHECK_THROWS_AS(static_cast<void>(flatten(of("S0"), 1, 0)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(flatten(of("S0"), 0, 2)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(unflatten(of("S0"), 0, {3, 2})), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(unflatten(of("S0"), 0, {1, 1, 1, 1, 1, 1, 1, 8})), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(unflatten(of("S0", Shape{0}), 0, {0, Index{1} << 40, Index{1} << 40})),
                        ShapeError);
        CHECK_THROWS_AS(static_cast<void>(narrow(of("S0"), 0, 4, 5)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(narrow(of("S0"), 0, -1, 5)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(select(of("S1"), 0, 8)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(transpose(of("S1"), 0, 2)), ShapeError);
    }

    TEST_CASE("random views: what each rank holds is its part of the view") {
        int accepted[4] = {};
        int refused[4] = {};
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Limits limits;
            limits.max_elements = 400;
            limits.max_ranks = 12;
            test::Random random(seed, limits);
            DynamicDistribution const from = random.distribution();
            DynamicShape const& shape = from.shape();
            if (shape.rank() == 0) continue;
            auto const dim = static_cast<int>(random.between(0, shape.rank() - 1));
            auto const last = static_cast<int>(random.between(dim, shape.rank() - 1));
            Index const begin = random.between(0, shape.extent(dim));
            Index const count = random.between(0, shape.extent(dim) - begin);
            INFO(test::reproduction(seed, from), ", dimension ", dim, " to ", last, ", ", begin, " and ", count);
            auto const attempt = [&](int which, auto const& make) {
                try {
                    View const view = make();
                    ++accepted[which];
                    check_parts(from, view);
                } catch (PlacementError const& error) {
                    ++refused[which];
                    CHECK(std::string(error.what()).find("Fix: redistribute") != std::string::npos);
                }
            };
            attempt(0, [&] { return View{flatten(from, dim, last), all(shape)}; });
            if (shape.rank() <= max_dims - 2) {
                attempt(1, [&] { return View{unflatten(from, dim, factors(random, shape.extent(dim))), all(shape)}; });
            }
            attempt(2, [&] { return View{narrow(from, dim, begin, count), within(shape, dim, begin, count)}; });
            if (begin < shape.extent(dim)) {
                attempt(3, [&] { return View{select(from, dim, begin), within(shape, dim, begin, 1)}; });
            }
        }
        for (int which = 0; which < 4; ++which) {
            CAPTURE(which);
            CHECK(accepted[which] > test::of_seeds(400));
            CHECK(refused[which] > test::of_seeds(50));
        }
    }
}
