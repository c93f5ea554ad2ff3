// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/coverage.hpp>

#include <doctest/doctest.h>

#include "manifest_support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;

namespace {

Manifest one_tensor(DynamicShape const& shape, std::vector<Box> const& boxes, int replicas = 1) {
    Manifest m;
    m.files = {{"first", 1 << 20, 0, 0}, {"second", 1 << 20, 0, 1}};
    m.tensors = {{"w", DType::f32, shape, replicas, ""}};
    for (std::size_t i = 0; i < boxes.size(); ++i)
        m.extents.push_back({0, 0, static_cast<int>(i % 2), 0, boxes[i], errors::concat("key ", i), false, 0});
    return m;
}

/// The message, empty when the coverage is right.
std::string complaint(Manifest const& manifest) {
    Caught const error = caught([&] { check_coverage(manifest, "the/manifest"); });
    if (error.code == ErrorCode::none) return {};
    CHECK(error.code == ErrorCode::format);
    CHECK(contains(error.message, "the/manifest: "));
    CHECK(contains(error.message, "Fix: "));
    return error.message;
}

/// A grid cut into so many parts in each of two dimensions, in columns first.
std::vector<Box> grid(Index rows, Index columns) {
    std::vector<Box> boxes;
    for (Index c = 0; c < columns; ++c)
        for (Index r = 0; r < rows; ++r) boxes.push_back({{r * 3, r * 3 + 3}, {0, 7}, {c * 2, c * 2 + 2}});
    return boxes;
}

}  // namespace

TEST_SUITE("checkpoint/coverage") {
    TEST_CASE("a cover is a cover: one box, grids, boxes that no straight cut parts, scalars, nothing to hold") {
        CHECK(complaint(example_manifest()).empty());
        CHECK(complaint(Manifest{}).empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{4, 2}), {{{0, 4}, {0, 2}}})).empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{12, 7, 10}), grid(4, 5))).empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{}), {Box{}})).empty());
        // A pinwheel.
        CHECK(complaint(one_tensor(
                            DynamicShape(Indices{3, 3}),
                            {{{0, 1}, {0, 2}}, {{0, 2}, {2, 3}}, {{2, 3}, {1, 3}}, {{1, 3}, {0, 1}}, {{1, 2}, {1, 2}}}))
                  .empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{0, 3}), {})).empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{0, 3}), {{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}})).empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{2}), {{{0, 2}}, {{1, 1}}, {{0, 0}}})).empty());
    }

    TEST_CASE("what is missing is named") {
        CHECK(contains(complaint(one_tensor(DynamicShape(Indices{6, 4}), {})),
                       "tensor 'w', replica 0: box [0:6,0:4] is missing"));
        CHECK(contains(complaint(one_tensor(DynamicShape(Indices{}), {})), "tensor 'w', replica 0: box [] is missing"));
        CHECK(contains(complaint(one_tensor(DynamicShape(Indices{6, 4}), {{{0, 2}, {0, 4}}, {{4, 6}, {0, 4}}})),
                       "box [2:4,0:4] is missing"));
        Manifest m = one_tensor(DynamicShape(Indices{12, 7, 10}), grid(4, 5));
        m.extents.erase(m.extents.begin() + 9);
        CHECK(contains(complaint(m), "box [3:6,0:7,4:6] is missing"));
    }

    TEST_CASE("what is held more than once is named with its two holders") {
        std::string const message =
            complaint(one_tensor(DynamicShape(Indices{6, 4}), {{{0, 4}, {0, 4}}, {{3, 6}, {0, 4}}}));
        CHECK(contains(message,
                       "tensor 'w', replica 0: box [3:4,0:4] is held more than once: by [0:4,0:4] in 'first', "
                       "by [3:6,0:4] in 'second'"));
        CHECK(contains(complaint(one_tensor(DynamicShape(Indices{}), {Box{}, Box{}, Box{}})),
                       "box [] is held more than once"));
        // As many elements as the whole, one twice and one not at all.
        CHECK(contains(complaint(one_tensor(DynamicShape(Indices{4}), {{{0, 2}}, {{1, 3}}})), "[1:2] is held more"));
    }

    TEST_CASE("every replica is checked, and only against its own") {
        Manifest m = one_tensor(DynamicShape(Indices{4}), {{{0, 4}}}, 3);
        CHECK(contains(complaint(m), "tensor 'w', replica 1: box [0:4] is missing"));
        m.extents.push_back(m.extents[0]);
        m.extents.back().replica = 2;
        CHECK(contains(complaint(m), "tensor 'w', replica 1: box [0:4] is missing"));
        m.extents.push_back(m.extents[0]);
        m.extents.back().replica = 1;
        CHECK(complaint(m).empty());
        m.extents.push_back(m.extents.back());
        CHECK(contains(complaint(m), "tensor 'w', replica 1: box [0:4] is held more than once"));
    }

    TEST_CASE("any number of replicas of nothing needs no time, and the next tensor is still checked") {
        Manifest m = one_tensor(DynamicShape(Indices{0}), {{{0, 0}}}, INT32_MAX);
        m.extents[0].replica = INT32_MAX - 1;
        CHECK(complaint(m).empty());
        m.tensors.push_back({"x", DType::u8, DynamicShape(Indices{2}), 1, ""});
        CHECK(contains(complaint(m), "tensor 'x', replica 0: box [0:2] is missing"));
        m.extents.push_back({1, 0, 0, 0, Box{{0, 2}}, "", false, 0});
        CHECK(complaint(m).empty());
        CHECK(contains(complaint(one_tensor(DynamicShape(Indices{1}), {}, INT32_MAX)),
                       "replica 0: box [0:1] is missing"));
    }

    TEST_CASE("boxes that do not fit the tensor are refused") {
        for (Box const& box : {Box{{0, 5}, {0, 2}}, Box{{0, 4}}, Box{{0, 4}, {0, 2}, {0, 1}}, Box{{-1, 3}, {0, 2}},
                               Box{{3, 2}, {0, 2}}}) {
            CHECK(contains(complaint(one_tensor(DynamicShape(Indices{4, 2}), {box})), "lies outside its shape [4,2]"));
        }
    }

    TEST_CASE("many boxes are checked at once, however they are cut") {
        CHECK(complaint(one_tensor(DynamicShape(Indices{3, 7, 32'768}), grid(1, 16'384))).empty());
        CHECK(complaint(one_tensor(DynamicShape(Indices{49'152, 7, 2}), grid(16'384, 1))).empty());
        Manifest m = one_tensor(DynamicShape(Indices{384, 7, 256}), grid(128, 128));
        CHECK(complaint(m).empty());
        m.extents[128 * 77 + 5].box.set(1, {1, 7});
        CHECK(contains(complaint(m), "box [15:18,0:1,154:156] is missing"));
    }
}
