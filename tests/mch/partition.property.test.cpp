// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/partition.hpp>

#include "support/mch_kernels.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;
using namespace reshard::test;

TEST_CASE("partition: equals the oracle for random worlds, widths, skews and parts") {
    std::vector<Index> const worlds{1, 2, 3, 4, 7, 8, 24, 25, 64, 255, 256, 1024};
    std::vector<Index> const widths{1, 2, 3, 4, 7, 8, 8, 8, 12, 16, 24};
    std::vector<Skew> const skews{Skew::even, Skew::to_one, Skew::few, Skew::blocks, Skew::none_kept};
    for (std::uint64_t seed : seeds(150)) {
        Random random(seed);
        Index const entries = random.pick(std::vector<Index>{0, 1, 2, 3, 5, 64, 1000, random.between(0, 3000)});
        Index const world = random.pick(worlds);
        std::vector<Index> columns(static_cast<std::size_t>(random.between(1, 10)), 8);
        if (random.chance(60)) {
            for (Index& width : columns) width = random.pick(widths);
        }
        auto given = random_partition(random, entries, world, columns, random.pick(skews));
        auto const expected = partition_oracle(given);
        for (int parts : {1, static_cast<int>(random.between(2, 8))}) {
            given.parts = parts;
            CAPTURE(seed);
            CAPTURE(entries);
            CAPTURE(world);
            CAPTURE(columns.size());
            CAPTURE(parts);
            CHECK((HostKernels::partition(given) == expected));
        }
    }
}

TEST_CASE("partition: bit-equal for 1 to 8 parts, and across tiles") {
    for (std::uint64_t seed : seeds(4)) {
        Random random(seed);
        for (Index world : {2, 30}) {
            Index const entries = 3 * detail::tile_entries + random.between(0, 5000);
            auto given = random_partition(random, entries, world, {8, 8, 8, 8}, Skew::even);
            auto const expected = partition_oracle(given);
            for (int parts = 1; parts <= 8; ++parts) {
                if (fewer_seeds() && parts != 1 && parts != 3 && parts != 8) continue;
                CAPTURE(seed);
                CAPTURE(world);
                CAPTURE(entries);
                CAPTURE(parts);
                given.parts = parts;
                CHECK((HostKernels::partition(given) == expected));
            }
        }
    }
}
