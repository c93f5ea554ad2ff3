// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/batch.hpp: how loads become rounds, and what every rank knows of the largest one.
#include <reshard/plan/batch.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <vector>

namespace {
using namespace reshard;
using Rounds = std::vector<std::vector<std::size_t>>;

std::vector<planning::RoundLoad> loads_of(std::vector<Index> const& bytes) {
    std::vector<planning::RoundLoad> loads;
    for (Index each : bytes) loads.push_back({true, each, 0});
    return loads;
}
}  // namespace

TEST_SUITE("plan/batch") {
    TEST_CASE("small tensors share a round up to the budget, in their order") {
        CHECK(planning::cut_into_rounds(loads_of({4, 3, 3, 1, 9}), 10, INT64_MAX) == Rounds{{0, 1, 2}, {3, 4}});
        CHECK(planning::cut_into_rounds(loads_of({4, 3, 3, 1}), 11, INT64_MAX) == Rounds{{0, 1, 2, 3}});
    }
    TEST_CASE("a large tensor travels alone and does not end the round of the small ones around it") {
        CHECK(planning::cut_into_rounds(loads_of({1, 10, 2, 99, 3}), 10, INT64_MAX) == Rounds{{1}, {3}, {0, 2, 4}});
    }
    TEST_CASE("with no budget every tensor travels alone, empty ones too") {
        CHECK(planning::cut_into_rounds(loads_of({1, 0, 2}), 0, INT64_MAX) == Rounds{{0}, {1}, {2}});
    }
    TEST_CASE("tensors that stay are in no round, and nothing makes no round") {
        CHECK(planning::cut_into_rounds({}, 10, 0).empty());
        std::vector<planning::RoundLoad> loads = loads_of({1, 1, 1});
        loads[1].travels = false;
        CHECK(planning::cut_into_rounds(loads, 10, 0) == Rounds{{0, 2}});
        loads[0].travels = loads[2].travels = false;
        CHECK(planning::cut_into_rounds(loads, 10, 0).empty());
    }
    TEST_CASE("scratch memory ends a round as well as bytes do") {
        std::vector<planning::RoundLoad> const loads{
            {true, 1, 6}, {true, 1, 0}, {true, 1, 4}, {true, 1, 1}, {true, 50, 9}};
        CHECK(planning::cut_into_rounds(loads, 50, 10) == Rounds{{0, 1, 2}, {4}, {3}});
    }
    TEST_CASE("a round ends where an owner of several tensors would have more than the budget") {
        std::vector<planning::RoundLoad> loads;
        for (Index owner : {0, 1, 2, 0, 1, 1, 5}) loads.push_back({true, 1, 0, 0, owner, 8});
        CHECK(planning::cut_into_rounds(loads, 10, 0) == Rounds{{0, 1, 2}, {3, 4}, {5, 6}});
        CHECK(planning::cut_into_rounds(loads, 16, 0) == Rounds{{0, 1, 2, 3, 4}, {5, 6}});
        for (planning::RoundLoad& load : loads) load.owned = INT64_MAX;
        CHECK(planning::cut_into_rounds(loads, INT64_MAX, 0) == Rounds{{0, 1, 2}, {3, 4}, {5, 6}});
    }
    TEST_CASE("sums of sizes near the largest number do not wrap around") {
        Index const most = INT64_MAX;
        CHECK(planning::cut_into_rounds(loads_of({most - 1, most - 1, most}), most, most) == Rounds{{0}, {2}, {1}});
    }

    TEST_CASE("the largest piece is the largest local tensor of any rank") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Limits limits;
            limits.max_elements = 5000;
            test::Random random(seed, limits);
            auto const d = random.distribution();
            INFO(test::reproduction(seed, d));
            Index largest = 0;
            for (Index i = 0; i < d.mesh().size(); ++i) {
                largest = std::max(largest, d.local_shape(d.mesh().rank_at(i)).size());
            }
            REQUIRE(detail::largest_piece(d) == largest);
        }
    }
    TEST_CASE("no rank needs more scratch memory than the closed form says, on one mesh and between two") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Limits limits;
            limits.max_elements = 5000;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            for (Plan<> const& p : {plan(from, to), plan_across(from, away)}) {
                INFO(test::reproduction(seed, p.from(), p.to()));
                planning::Steps steps = p.steps();
                Index const bound = detail::largest_scratch(steps);
                Index const bytes = detail::round_bytes(steps, DType::u8);
                Index fewest = mesh.size();
                Index most = mesh.size();
                for (planning::Layout const& layout : steps.layouts) {
                    fewest = std::min(fewest, layout.distribution.mesh().size());
                    most = std::max(most, layout.distribution.mesh().size());
                }
                for (Index i = 0; i < mesh.size(); ++i) {
                    Cost const cost = p.cost(mesh.rank_at(i));
                    REQUIRE(cost.workspace <= bound);
                    REQUIRE(cost.received * fewest <= steps.phases() * bytes * most);
                }
                if (steps.find(planning::StepKind::fold) == nullptr) continue;
                steps.fold_elements = random.between(1, 100);
                Index const in_chunks = detail::largest_scratch(steps);
                REQUIRE(in_chunks <= bound);
                for (Index i = 0; i < mesh.size(); ++i) {
                    REQUIRE(planning::scratch_elements(steps, mesh.rank_at(i)) <= in_chunks);
                }
            }
        }
    }
    TEST_CASE("tensors for single ranks share rounds as tensors for all do") {
        Shape const shape{64, 64};
        auto const rows = distribution(Mesh{8}, shape, "S0");
        auto const owned = distribution(Mesh{1}.on(first_rank(5)), shape, "R");
        auto const bytes = [](Plan<> const& p) { return detail::round_bytes(p.steps(), DType::f32); };
        CHECK(bytes(plan_across(rows, owned)) == 64 * 64 * 4 / 8);
        CHECK(bytes(plan_across(owned, rows)) == 64 * 64 * 4 / 8);
        CHECK(bytes(plan_across(distribution(Mesh{8}, shape, "P+"), owned)) == 64 * 64 * 4);
        CHECK(bytes(plan(rows, distribution(Mesh{8}, shape, "R"))) == 64 * 64 * 4);  // each of them takes all
        auto const owner_of = [](Plan<> const& p) {
            planning::RoundLoad load{true};
            detail::note_owner(load, p.steps(), DType::f32);
            return std::pair(load.owner, load.owned);
        };
        CHECK(owner_of(plan_across(rows, owned)) == std::pair<Index, Index>(5, 64 * 64 * 4));
        CHECK(owner_of(plan_across(distribution(Mesh{8}, shape, "P+"), owned)) ==
              std::pair<Index, Index>(5, 64 * 64 * 4));
        CHECK(owner_of(plan_across(distribution(Mesh{2}, shape, "S1"), rows)) ==
              std::pair<Index, Index>(0, 64 * 32 * 4));
        CHECK(owner_of(plan(rows, distribution(Mesh{8}, shape, "R"))).first == -1);
    }
    TEST_CASE("the largest piece of a world of 2^20 ranks is known without asking them") {
        auto const d = distribution(Mesh{1024, 1024}, Shape{1 << 20, 1 << 20}, "S0,S1");
        CHECK(detail::largest_piece(d) == Index{1} << 20);
    }
}
