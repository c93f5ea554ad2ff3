// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/slot_bitmap.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

using namespace reshard;

namespace {

std::vector<Index> free_slots(SlotBitmap const& bitmap) {
    std::vector<Index> list(static_cast<std::size_t>(bitmap.free()));
    CHECK(bitmap.free_slots(list) == bitmap.free());
    return list;
}

}  // namespace

TEST_CASE("slot bitmap: free slots come in ascending order, from the first slot on") {
    SlotBitmap made(100, 5);
    CHECK(made.take(103));
    CHECK(made.take(100));
    CHECK(made.taken() == 2);
    CHECK(free_slots(made) == std::vector<Index>{101, 102, 104});
    std::vector<Index> two(2);
    CHECK(made.free_slots(two) == 2);
    CHECK(two == std::vector<Index>{101, 102});
}

TEST_CASE("slot bitmap: a slot is taken once, and slots outside are told apart") {
    SlotBitmap made(10, 10);
    for (Index slot : {INT64_MIN, Index{0}, Index{9}, Index{20}, INT64_MAX}) CHECK(!made.contains(slot));
    for (Index slot : {10, 19}) {
        CHECK(made.contains(slot));
        CHECK(made.take(slot));
        CHECK(!made.take(slot));
    }
    CHECK(made.taken() == 2);
}

TEST_CASE("slot bitmap: what is not meant marks nothing, whatever number it is") {
    for (Index count : {1, 63, 64, 65, 100, 1000}) {
        SlotBitmap made(7, count);
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

TEST_CASE("slot bitmap: an empty range has no slots, and bad ranges are errors") {
    SlotBitmap made(7, 0);
    CHECK(!made.contains(7));
    CHECK(free_slots(made).empty());
    CHECK_THROWS_AS(SlotBitmap(-1, 4), ShapeError);
    CHECK_THROWS_AS(SlotBitmap(0, -4), ShapeError);
    CHECK_THROWS_AS(SlotBitmap(INT64_MAX, 4), ShapeError);
}

TEST_CASE("slot bitmap: equals a set for random slots") {
    for (std::uint64_t seed : test::seeds(100)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const first = random.between(0, 1000);
        Index const count = random.between(0, 400);
        Index const marks = random.between(0, 300);
        std::set<Index> taken;
        SlotBitmap made(first, count);
        for (Index mark = 0; mark < marks; ++mark) {
            Index const slot = first + random.between(-3, count + 3);
            bool const inside = slot >= first && slot < first + count;
            CHECK(made.contains(slot) == inside);
            if (inside) CHECK(made.take(slot) == taken.insert(slot).second);
        }
        CHECK(made.taken() == static_cast<Index>(taken.size()));
        std::vector<Index> open;
        for (Index slot = first; slot < first + count; ++slot)
            if (taken.count(slot) == 0) open.push_back(slot);
        CHECK(free_slots(made) == open);
    }
}
