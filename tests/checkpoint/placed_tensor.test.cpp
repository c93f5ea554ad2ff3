// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/placed_tensor.hpp.
#include <reshard/checkpoint/placed_tensor.hpp>

#include <doctest/doctest.h>

#include "support.hpp"

#include <vector>

namespace {
using namespace checkpoint_test;
}  // namespace

TEST_SUITE("checkpoint/placed_tensor") {
    TEST_CASE("a list of local tensors, without their memory") {
        std::vector<float> memory(8);
        auto const where = parse("(2):(S0)", Shape{4, 4});
        std::vector<LocalTensor> const tensors{{"w", where, TensorView<float>(memory.data(), Shape{2, 4})}};
        std::vector<PlacedTensor> const placed = placed_tensors(tensors);
        REQUIRE(placed.size() == 1);
        CHECK(placed[0].name == "w");
        CHECK(placed[0].distribution == where);
        CHECK(placed[0].dtype == DType::f32);
        CHECK(placed_tensors({}).empty());
    }

    TEST_CASE("a rule gives tensors of any shape one mesh, placements and order") {
        auto const placed = [](char const* rule, DynamicShape const& shape, DType dtype = DType::f32) {
            return to_string(PlacementRule(rule).of(shape, dtype));
        };
        CHECK(placed("(2,2):(S0,S1)", Shape{6, 4}) == "(2,2):(S0,S1)");
        CHECK(placed("(2,2):(S0,S1)", Shape{6}) == "(2,2):(S0,R)");
        CHECK(placed("(2,2):(S0,S1)", Shape{}) == "(2,2):(R,R)");
        CHECK(placed("(2,3):(S0,S0)@1,0", Shape{12, 2}) == "(2,3):(S0,S0)@1,0");
        CHECK(placed("(2,3):(R,S0:bal)", Shape{7}) == "(2,3):(R,S0:bal)");
        CHECK(placed("(2,2):(P+,S1)", Shape{6}) == "(2,2):(P+,R)");
        CHECK(placed("(2,2):(R,S0)", Shape{6, 4}, DType::f4) == "(2,2):(R,R)");
        CHECK(PlacementRule("(2,3):(R,R)").mesh().size() == 6);
        CHECK(caught([] { PlacementRule("2,3:(R,R)"); }).code == ErrorCode::notation);
        CHECK(caught([] { PlacementRule("(2):(S -1)"); }).code == ErrorCode::notation);
        CHECK(placed("(2)[1,0]:(S0)", Shape{4}) == "(2)[1,0]:(S0)");
        Caught const boundaries = caught([] { PlacementRule("(2)[1,0]:(S0 [0,0,1])"); });
        CHECK(boundaries.code == ErrorCode::notation);
        CHECK(contains(boundaries.message, "'(2)[1,0]:(S0 [0,0,1])' has boundaries of one extent"));
        CHECK(contains(boundaries.message, "Fix: cut by S0, "));
        CHECK(PlacementRule("(2,3,4):(S1,S4:bal,R)").dims() == 5);
        CHECK(PlacementRule("(2,3):(R,P+)").dims() == 0);
    }
}
