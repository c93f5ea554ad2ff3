// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/detail/tile.hpp>

#include "cuda/support/emulated.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;
using namespace reshard::test;

TEST_CASE_TEMPLATE("device partition: its kernel bodies equal the oracle, in any order of threads", Implementation,
                   EmulatedKernels<8, ThreadOrder::up>, EmulatedKernels<8, ThreadOrder::down>,
                   EmulatedKernels<8, ThreadOrder::shuffled>, EmulatedKernels<16, ThreadOrder::shuffled>,
                   EmulatedKernels<0, ThreadOrder::up>) {
    std::vector<Index> const worlds{1, 2, 3, 4, 7, 8, 24, 25, 31, 32, 33, 64, 255, 256};
    std::vector<Index> const widths{1, 2, 3, 4, 7, 8, 8, 8, 12, 16, 24};
    std::vector<Skew> const skews{Skew::even, Skew::to_one, Skew::few, Skew::blocks, Skew::none_kept};
    for (std::uint64_t seed : seeds(60)) {
        Random random(seed);
        Index const entries =
            random.pick(std::vector<Index>{0, 1, 2, 31, 32, 33, 256, 2047, 2048, 2049, 4096, random.between(0, 9000)});
        Index const world = random.pick(worlds);
        std::vector<Index> columns(static_cast<std::size_t>(random.between(1, 6)), 8);
        if (random.chance(60)) {
            for (Index& width : columns) width = random.pick(widths);
        }
        auto const given = random_partition(random, entries, world, columns, random.pick(skews));
        CAPTURE(seed);
        CAPTURE(entries);
        CAPTURE(world);
        CAPTURE(columns.size());
        CHECK((Implementation::partition(given) == partition_oracle(given)));
    }
}

TEST_CASE("device partition: sorted entries serve more than 256 destinations") {
    for (std::uint64_t seed : seeds(10)) {
        Random random(seed);
        auto const given = random_partition(random, random.between(0, 5000), random.pick(std::vector<Index>{257, 1024}),
                                            {8, 4}, Skew::even);
        CAPTURE(seed);
        CHECK((EmulatedKernels<0, ThreadOrder::up>::partition(given) == partition_oracle(given)));
    }
}
