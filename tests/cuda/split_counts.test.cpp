// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/split_counts.hpp>

#include "cuda/support/host_block.hpp"
#include "support/mch_kernels.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

using namespace reshard;
using namespace reshard::test;

TEST_CASE("split counts: host and kernel body agree with a count one by one, for few ranks and many") {
    for (std::uint64_t seed : seeds(40)) {
        Random random(seed);
        Index const entries = random.pick(std::vector<Index>{0, 1, 2047, 2048, 2049, random.between(0, 20000)});
        Index const world = random.pick(std::vector<Index>{1, 2, 8, 255, 256, 257, 2055, 3000, 4111, 4112, 9000});
        auto const given = random_partition(random, entries, world, {}, Skew::even);
        ByList const rule{given.destinations.data()};
        std::vector<Index> expected(static_cast<std::size_t>(world), 0);
        SplitFaults wrong;
        for (Index i = 0; i < entries; ++i) {
            Index const to = given.destinations[static_cast<std::size_t>(i)];
            if (to >= 0 && to < world) {
                ++expected[static_cast<std::size_t>(to)];
            } else if (to != not_sent) {
                if (wrong.out_of_range++ == 0) wrong.first = static_cast<unsigned long long>(i);
            }
        }
        CAPTURE(seed);
        CAPTURE(entries);
        CAPTURE(world);
        std::vector<Index> counts(expected.size(), -1);
        auto const faults = split_counts(entries, rule, counts);
        CHECK((counts == expected));
        CHECK(faults.out_of_range == wrong.out_of_range);
        CHECK(faults.first == wrong.first);

        for (ThreadOrder order : {ThreadOrder::up, ThreadOrder::shuffled}) {
            std::vector<unsigned long long> sums(expected.size(), 0);
            SplitFaults found;
            detail::SplitPlan const plan{entries, static_cast<int>(world), sums.data(), &found};
            Index const grid = random.between(1, 4);
            for (Index b = 0; b < grid; ++b) {
                HostBlock<detail::CountState> block(order);
                detail::SplitShared shared;
                std::memset(&shared, 0xa5, sizeof(shared));
                detail::split_tiles(block, shared, plan, rule, b, grid);
            }
            CHECK((std::vector<Index>(sums.begin(), sums.end()) == expected));
            CHECK(found.out_of_range == wrong.out_of_range);
            CHECK(found.first == wrong.first);
        }
    }
}

TEST_CASE("split counts: bad input is named with its remedy") {
    std::vector<Index> none;
    std::vector<Index> one(1);
    ByList const rule{nullptr};
    CHECK_THROWS_WITH_AS(split_counts(5, rule, none),
                         "reshard::split_counts: 5 entries for 0 destinations. Fix: give 0 or more entries and 1 to "
                         "1048576 destinations.",
                         ShapeError);
    CHECK_THROWS_AS(split_counts(-1, rule, one), ShapeError);
}
