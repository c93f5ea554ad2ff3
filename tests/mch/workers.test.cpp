// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/workers.hpp>

#include "support/allocations.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;

TEST_CASE("workers: every part runs once, whatever the number of threads") {
    for (int threads : {1, 2, 5}) {
        Workers workers(threads);
        CHECK(workers.threads() == threads);
        for (int parts : {0, 1, 3, 5, 40}) {
            std::vector<int> calls(static_cast<std::size_t>(parts), 0);
            for (int round = 0; round < 20; ++round) {
                workers(parts, [&](int part) { ++calls[static_cast<std::size_t>(part)]; });
            }
            CAPTURE(threads);
            CHECK(calls == std::vector<int>(static_cast<std::size_t>(parts), 20));
        }
    }
}

TEST_CASE("workers: a round allocates nothing") {
    Workers workers(3);
    int sum[3] = {};
    CHECK(test::allocations_in([&] { workers(3, [&](int part) { sum[part] = part; }); }) == 0);
    CHECK(sum[2] == 2);
}

TEST_CASE("workers: no threads is an error") {
    CHECK_THROWS_WITH_AS(Workers(0), "reshard::Workers: 0 threads. Fix: give at least 1, the calling thread.",
                         MeshError);
}
