// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/shape.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <vector>

using namespace reshard;

namespace {

static_assert(Shape<8192, 1024>::is_static && !Shape<dynamic, 1024>::is_static);
static_assert(Shape<8192, 1024>{}.size() == 8192 * 1024);
static_assert(Shape<dynamic, 1024>{3, 1024}.size() == 3072);
static_assert(Shape<dynamic, 1024>::static_extent(0) == dynamic && Shape<dynamic, 1024>::static_extent(1) == 1024);
static_assert(std::is_same_v<decltype(Shape{8192, 1024}), Shape<dynamic, dynamic>>, "run-time extents");
static_assert(std::is_same_v<decltype(Shape{}), Shape<>>, "a scalar");
static_assert(Shape<>{}.size() == 1 && Shape<>::rank() == 0 && Shape<>::is_static);
static_assert(DynamicShape{}.rank() == 0 && DynamicShape{}.size() == 1);
static_assert(Shape{3, 0, 5}.size() == 0);
static_assert(!std::is_default_constructible_v<Shape<dynamic>>, "an extent nobody gave");
static_assert(!std::is_constructible_v<Shape<dynamic, dynamic>, int>, "one number per dimension");
static_assert(Shape{2, 3} == Shape{2, 3} && !(Shape{2, 3} == Shape{3, 2}));
static_assert(DynamicShape(Shape<2, 3>{}) == DynamicShape(Shape{2, 3}), "types and values meet in the value");

Index constexpr extents[] = {4, 5, 6};
static_assert(DynamicShape(extents, 3) == Shape{4, 5, 6} && DynamicShape(extents, 0) == DynamicShape{});

}  // namespace

TEST_CASE("a shape refuses negative extents, too many dimensions and sizes beyond 64 bits, and says why") {
    CHECK_THROWS_WITH_AS((Shape{2, -3}), "reshard::Shape: dimension 1 has extent -3. Fix: extents are zero or more.",
                         ShapeError);
    Index const many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    CHECK_THROWS_AS((DynamicShape{many, 9}), ShapeError);
    CHECK_NOTHROW((DynamicShape{many, 8}));
    CHECK_THROWS_AS((DynamicShape{many, -1}), ShapeError);
    Index const half = Index{1} << 32;
    CHECK_THROWS_AS((Shape{half, half}), ShapeError);
    CHECK_NOTHROW((Shape{half, half / 2 - 1}));
    // Extents that overflow are refused even when a zero would hide it: strides would overflow all the same.
    CHECK_THROWS_AS((Shape{half, half, 0}), ShapeError);
    CHECK_THROWS_AS((Shape{0, half, half}), ShapeError);
    CHECK((Shape{0, half}).size() == 0);
}

TEST_CASE("a list of integers is a shape whose rank is known at run time; text is none") {
    CHECK(DynamicShape(std::vector<Index>{4, 5, 6}) == Shape{4, 5, 6});
    CHECK(DynamicShape(std::vector<unsigned>{4, 5}) == Shape{4, 5});
    static_assert(DynamicShape({7}) == Shape{7} && DynamicShape({7, 8U}) == Shape{7, 8});
    static_assert(DynamicShape({std::size_t{7}}) == Shape{7} && DynamicShape({DynamicShape({7})}) == Shape{7});
    static_assert(!std::is_constructible_v<DynamicShape, char const(&)[1]>);
    CHECK(DynamicShape(std::vector<int>{}) == DynamicShape{});
    CHECK_THROWS_AS(DynamicShape(std::vector<int>(9, 1)), ShapeError);
    CHECK_THROWS_AS(DynamicShape(std::vector<int>{-1}), ShapeError);
    static_assert(!std::is_constructible_v<DynamicShape, std::string>);
    static_assert(!std::is_constructible_v<DynamicShape, std::vector<double>>);
    static_assert(!std::is_convertible_v<std::vector<int>, DynamicShape>, "a list may mean other things");
}

TEST_CASE("an extent given at run time must be the one in the type") {
    CHECK_NOTHROW((Shape<4, dynamic>{4, 7}));
    CHECK_THROWS_AS((Shape<4, dynamic>{5, 7}), ShapeError);
    CHECK_THROWS_AS((Shape<4>{5}), ShapeError);
}

TEST_CASE("shapes and lists print as bracketed numbers") {
    CHECK(to_string(Shape{8192, 1024}) == "[8192,1024]");
    CHECK(to_string(DynamicShape{}) == "[]");
    CHECK(to_string(Shape{7}.extents()) == "[7]");
}

TEST_CASE("a shape narrows one dimension and keeps the others") {
    DynamicShape shape = Shape{4, 5, 6};
    shape.narrow(1, 2);
    CHECK(shape == Shape{4, 2, 6});
    shape.narrow(0, 0);
    CHECK(shape.size() == 0);
}
