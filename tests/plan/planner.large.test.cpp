// SPDX-License-Identifier: Apache-2.0
// The laws of tests/plan/planner.property.test.cpp for a million random plans between small tensors, on one mesh and
// between meshes in turn. RESHARD_TEST_SEED=n begins with another million.
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/plan_laws.hpp"
#include "support/random.hpp"

TEST_SUITE("plan/planner") {
    TEST_CASE("a million random plans: partners, coverage, bound and balance") {
        using namespace reshard;
        for (std::uint64_t seed : test::seeds(1'000'000)) {
            test::Limits limits;
            limits.max_ranks = 8;
            limits.max_elements = 60;
            limits.max_extent = 20;
            limits.partial = seed % 3 == 0;
            limits.mostly_cyclic = seed % 5 == 0;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            bool const across = seed % 2 == 0;
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(across ? random.mesh() : mesh, shape);
            INFO(test::reproduction(seed, from, to));
            test::check_laws(across ? plan_across(from, to) : plan(from, to), true);
        }
    }
}
