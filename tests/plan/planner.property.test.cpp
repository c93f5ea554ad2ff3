// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/plan.ipp, its planners: laws of the messages, for random transitions.

#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/plan_laws.hpp"
#include "support/random.hpp"

#include <string>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::check_laws;

test::Limits small() {
    test::Limits limits;
    limits.max_elements = 600;
    limits.max_extent = 20;
    return limits;
}

}  // namespace

TEST_SUITE("plan/planner") {
    TEST_CASE("random transitions on one mesh: partners, coverage, bound and balance") {
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Limits limits = small();
            limits.partial = seed % 3 == 0;
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            if (fills_average(from.signature(), to.signature())) continue;
            INFO(test::reproduction(seed, from, to));
            check_laws(plan(from, to), true);
        }
    }

    TEST_CASE("random transitions between meshes: partners, coverage, bound and balance") {
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Limits limits = small();
            limits.partial = seed % 3 == 0;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(random.mesh(), shape);
            auto const to = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            check_laws(plan_across(from, to), true);
        }
    }

    TEST_CASE("random block-cyclic transitions on one mesh and between meshes") {
        for (std::uint64_t seed : test::seeds(3000)) {
            test::Limits limits = small();
            limits.max_extent = seed % 5 == 0 ? 200 : 30;
            limits.max_dims = seed % 7 == 0 ? 5 : 2;
            limits.partial = seed % 3 == 0;
            limits.mostly_cyclic = true;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            {
                INFO(test::reproduction(seed, from, to));
                check_laws(plan(from, to), true);
            }
            INFO(test::reproduction(seed, from, away));
            check_laws(plan_across(from, away), true);
        }
    }

    TEST_CASE("all pairs of placements on small meshes stay within twice the optimum") {
        std::vector<std::string> const placements{"R", "S0", "S1", "S0:bal"};
        std::size_t count = 0;
        for (auto const& extents : {std::pair<Index, Index>{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {4, 4}}) {
            DynamicMesh const mesh = Mesh{extents.first, extents.second};
            for (DynamicShape const& shape :
                 {DynamicShape(Shape{8, 16}), DynamicShape(Shape{5, 7}), DynamicShape(Shape{13, 3})}) {
                std::vector<DynamicDistribution> all;
                for (auto const& a : placements)
                    for (auto const& b : placements) {
                        all.push_back(distribution(mesh, shape, a + "," + b));
                        if (a[0] == 'S' && b[0] == 'S' && a[1] == b[1]) {
                            all.push_back(distribution(mesh, shape, a + "," + b + "@1,0"));
                        }
                    }
                for (auto const& from : all)
                    for (auto const& to : all) {
                        if (count++ % test::step() != 0) continue;
                        INFO(test::reproduction(0, from, to));
                        check_laws(plan(from, to), true);
                    }
            }
        }
    }

    TEST_CASE("(8,8):(R,S0)->(S0,R) and back share the copies") {
        DynamicMesh const mesh = Mesh{8, 8};
        DynamicShape const shape = Shape{64, 8};
        auto const a = distribution(mesh, shape, "R,S0");
        auto const b = distribution(mesh, shape, "S0,R");
        check_laws(plan(a, b), true);
        check_laws(plan(b, a), true);
        for (Index rank = 0; rank < 64; ++rank) CHECK(plan(a, b).cost(rank).sent <= 64);
    }
}
