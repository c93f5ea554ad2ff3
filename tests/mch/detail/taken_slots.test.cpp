// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/detail/taken_slots.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

using namespace reshard;

namespace {

using reshard::detail::MchTakenSlots;

/// Free ones, and the last slot behind them.
std::vector<Index> free_slots(MchTakenSlots const& taken) {
    Scratch const list = taken.list_free();
    return {list.words().begin(), list.words().end()};
}

}  // namespace

TEST_CASE("taken slots: free ones come in ascending order, from the first slot on, and behind them the last") {
    MchTakenSlots made({100, 105});
    CHECK(made.take(103));
    CHECK(made.take(100));
    CHECK(made.taken() == 2);
    CHECK(free_slots(made) == std::vector<Index>{101, 102, 104, 104});
}

TEST_CASE("taken slots: a slot is taken once") {
    MchTakenSlots made({10, 20});
    for (Index slot : {10, 19}) {
        CHECK(made.take(slot));
        CHECK(!made.take(slot));
    }
    CHECK(made.taken() == 2);
}

TEST_CASE("taken slots: what is not meant marks nothing, whatever number it is") {
    for (Index count : {1, 63, 64, 65, 100, 1000}) {
        MchTakenSlots made({7, 7 + count});
        for (Index slot : {INT64_MIN, Index{-1}, Index{0}, Index{7}, 7 + count - 1, 7 + count, Index{INT64_MAX}}) {
            made.take_if(slot, 0);
        }
        CHECK(made.taken() == 0);
        made.take_if(7, 1);
        made.take_if(7 + count - 1, 1);
        made.take_if(7, 1);
        CHECK(made.taken() == (count == 1 ? 1 : 2));
        CHECK(!made.take(7));
        CHECK(!made.take(7 + count - 1));
    }
}

TEST_CASE("taken slots: an empty range has none") { CHECK(MchTakenSlots({7, 7}).taken() == 0); }

TEST_CASE("taken slots: equals a set for random slots") {
    for (std::uint64_t seed : test::seeds(100)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const first = random.between(0, 1000);
        Index const count = random.between(1, 400);
        Index const marks = random.between(0, 300);
        std::set<Index> taken;
        MchTakenSlots made({first, first + count});
        for (Index mark = 0; mark < marks; ++mark) {
            Index const slot = random.between(first, first + count - 1);
            CHECK(made.take(slot) == taken.insert(slot).second);
        }
        CHECK(made.taken() == static_cast<Index>(taken.size()));
        std::vector<Index> open;
        for (Index slot = first; slot < first + count; ++slot)
            if (taken.count(slot) == 0) open.push_back(slot);
        open.push_back(first + count - 1);
        CHECK(free_slots(made) == open);
    }
}
