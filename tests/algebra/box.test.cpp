// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/box.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

using namespace reshard;

namespace {

constexpr Box a{{0, 5}, {2, 8}};
constexpr Box b{{3, 9}, {0, 4}};
static_assert(intersect(a, b) == Box{{3, 5}, {2, 4}} && intersect(a, b) == intersect(b, a) && intersect(a, a) == a);
static_assert(intersect(a, Box{{5, 6}, {2, 8}}).empty());
static_assert(contains(a, intersect(a, b)) && contains(b, intersect(a, b)) && !contains(a, b));
static_assert(contains(a, Box{{7, 7}, {0, 9}}), "an empty box is inside any");
static_assert(a.size() == 30 && a.extent(1) == 6 && a.begin(1) == 2 && a.end(0) == 5 && a.rank() == 2);
static_assert(Box{}.size() == 1 && !Box{}.empty(), "the one element of a scalar");
static_assert(Box{}.contains(Indices{}) && contains(Box{}, Box{}));
static_assert(Box(DynamicShape{}) == Box{} && Box(Shape{4, 7}) == Box{{0, 4}, {0, 7}});
static_assert(Box(Shape{4, 0}).empty());
static_assert(!Box{{0, Index{1} << 32}, {0, Index{1} << 32}}.empty(), "whatever the product is");
static_assert(a.shape() == Shape{5, 6});

Box random_box(test::Random& random, int rank) {
    Box box;
    for (int d = 0; d < rank; ++d) {
        Index const begin = random.between(0, 6);
        box.push_back({begin, begin + random.between(0, 5)});
    }
    return box;
}

/// Calls `f` with every index of a cube of side 12.
template <class F>
void for_each_index(int rank, F f) {
    Index count = 1;
    for (int d = 0; d < rank; ++d) count *= 12;
    for (Index i = 0; i < count; ++i) {
        Indices index;
        for (Index rest = i, d = 0; d < rank; ++d, rest /= 12) index.push_back(rest % 12);
        f(index);
    }
}

}  // namespace

TEST_CASE("a box has at most as many dimensions as a tensor") {
    Box box;
    for (int d = 0; d < max_dims; ++d) box.push_back({0, 1});
    CHECK_THROWS_AS(box.push_back({0, 1}), ShapeError);
    CHECK(box.rank() == max_dims);
}

TEST_CASE("intersect and contains mean what they mean for every element") {
    for (std::uint64_t seed : test::seeds(200)) {
        CAPTURE(seed);
        test::Random random(seed);
        int const rank = static_cast<int>(random.between(0, 3));
        Box const x = random_box(random, rank);
        Box const y = random_box(random, rank);
        Box const both = intersect(x, y);
        Index in_x = 0;
        Index in_both = 0;
        bool y_inside_x = true;
        int wrong = 0;
        for_each_index(rank, [&](Indices const& index) {
            in_x += x.contains(index) ? 1 : 0;
            in_both += both.contains(index) ? 1 : 0;
            wrong += both.contains(index) != (x.contains(index) && y.contains(index)) ? 1 : 0;
            y_inside_x = y_inside_x && (!y.contains(index) || x.contains(index));
        });
        CHECK(wrong == 0);
        CHECK(x.size() == in_x);
        CHECK(both.size() == in_both);
        CHECK(both.empty() == (in_both == 0));
        CHECK(contains(x, y) == y_inside_x);
        Box const z = random_box(random, rank);
        Box const left = intersect(intersect(x, y), z);
        Box const right = intersect(x, intersect(y, z));
        CHECK((left == right || (left.empty() && right.empty())));
    }
}

TEST_CASE("a box prints its begins and ends") {
    CHECK(to_string(Box{{0, 3}, {4, 8}}) == "[0:3,4:8]");
    CHECK(to_string(Box{}) == "[]");
}
