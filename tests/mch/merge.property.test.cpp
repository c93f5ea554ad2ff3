// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/merge.hpp>

#include "support/mch_kernels.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;
using namespace reshard::test;

#define IMPLEMENTATIONS HostInOrder, HostWorkers

TEST_CASE_TEMPLATE("merge: equals a stable sort for random runs, keys, widths, drops and parts", Implementation,
                   IMPLEMENTATIONS) {
    for (std::uint64_t seed : seeds(150)) {
        Random random(seed);
        Index const runs = random.pick(std::vector<Index>{0, 1, 2, 2, 3, 4, 5, 8, 13, 64, 100});
        Index const longest = random.pick(std::vector<Index>{1, 10, 300}) / (runs > 20 ? 5 : 1) + 1;
        Index const range = random.pick(std::vector<Index>{0, 0, 3, 1000});
        std::vector<Index> widths;
        for (Index c = random.between(0, 3); c > 0; --c) {
            widths.push_back(random.pick(std::vector<Index>{1, 2, 4, 8, 16, 3, 12}));
        }
        auto given = random_merge(random, runs, longest, widths, range);
        Index entries = 0;
        for (auto const& run : given.runs) entries += static_cast<Index>(run.size());
        if (entries > 0 && random.chance(40)) {
            for (Index d = random.between(1, smaller<Index>(entries, 20)); d > 0; --d) {
                given.drops.push_back(random.between(0, entries - 1));
            }
        }
        auto const expected = merge_oracle(given);
        for (int parts : {1, static_cast<int>(random.between(2, 8))}) {
            given.parts = parts;
            CAPTURE(seed);
            CAPTURE(runs);
            CAPTURE(entries);
            CAPTURE(range);
            CAPTURE(parts);
            CHECK((Implementation::merge(given) == expected));
        }
    }
}

TEST_CASE("merge: 1024 runs, bit-equal for 1 to 8 parts") {
    Random random(seeds(1).front());
    for (Index range : {0, 40}) {
        auto given = random_merge(random, 1024, 12, {8}, range);
        auto const expected = merge_oracle(given);
        for (int parts = 1; parts <= 8; ++parts) {
            CAPTURE(range);
            CAPTURE(parts);
            given.parts = parts;
            CHECK((HostInOrder::merge(given) == expected));
        }
    }
}
