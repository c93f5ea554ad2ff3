// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/equal_addends.hpp.
#include <reshard/plan/equal_addends.hpp>

#include <doctest/doctest.h>

using namespace reshard;

TEST_SUITE("plan/equal_addends") {
    TEST_CASE("equal addends: copies are averages, and a sum is n averages") {
        Shape const shape{8, 6};
        auto const of = [&](char const* text) { return distribution(Mesh{4, 2}, shape, text); };
        Plan<> const move = plan_equal_addends(of("R,S0"), of("P+,S0"));
        CHECK(move == plan(of("Pavg,S0"), of("P+,S0")));
        CHECK(move.kind() == TransitionKind::copy);
        CHECK(move.steps().find(planning::StepKind::scale)->divide == 4);
        CHECK(plan_equal_addends(of("R,R"), of("P+,P+")).steps().find(planning::StepKind::scale)->divide == 8);
        CHECK(plan_equal_addends(of("R,S0"), of("P+,P+")).steps().find(planning::StepKind::scale)->divide == 4);
        CHECK(plan_equal_addends(of("R,S0"), of("P+,R")).kind() == TransitionKind::collective);
        CHECK(plan_equal_addends(of("R,S0"), of("S1,R")) == plan(of("R,S0"), of("S1,R")));
        CHECK_THROWS_WITH_AS(static_cast<void>(plan_equal_addends(of("R,P+"), of("P+,P+"))),
                             "reshard::plan_equal_addends: (4,2):(R,P+) -> (4,2):(P+,P+) divides copies of addends. "
                             "Fix: use plan(from, to), where the first of them keeps its value.",
                             TransitionError);
        CHECK_THROWS_AS(static_cast<void>(plan_equal_addends(of("R,R"), distribution(Mesh{8}, shape, "P+"))),
                        MismatchError);
    }
}
