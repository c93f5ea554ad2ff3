// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/slot_bitmap.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

using namespace reshard;

namespace {

struct Marked {
    explicit Marked(Index first, Index count) : bitmap(first, count), memory(room(bitmap)) { bitmap.clear(memory); }
    static std::size_t room(SlotBitmap const& map) { return static_cast<std::size_t>(map.workspace_bytes()); }

    SlotBitmap bitmap;
    std::vector<std::byte> memory;
};

std::vector<Index> free_slots(SlotBitmap const& bitmap) {
    std::vector<Index> list(static_cast<std::size_t>(bitmap.free()));
    CHECK(bitmap.free_slots(list) == bitmap.free());
    return list;
}

}  // namespace

TEST_CASE("slot bitmap: free slots come in ascending order, from the first slot on") {
    Marked made(100, 5);
    CHECK(made.bitmap.take(103));
    CHECK(made.bitmap.take(100));
    CHECK(made.bitmap.taken() == 2);
    CHECK(free_slots(made.bitmap) == std::vector<Index>{101, 102, 104});
    std::vector<Index> two(2);
    CHECK(made.bitmap.free_slots(two) == 2);
    CHECK(two == std::vector<Index>{101, 102});
}

TEST_CASE("slot bitmap: a slot is taken once, and slots outside are told apart") {
    Marked made(10, 10);
    for (Index slot : {INT64_MIN, Index{0}, Index{9}, Index{20}, INT64_MAX}) CHECK(!made.bitmap.contains(slot));
    for (Index slot : {10, 19}) {
        CHECK(made.bitmap.contains(slot));
        CHECK(made.bitmap.take(slot));
        CHECK(!made.bitmap.take(slot));
    }
    CHECK(made.bitmap.taken() == 2);
}

TEST_CASE("slot bitmap: what is not meant marks nothing, whatever number it is") {
    for (Index count : {1, 63, 64, 65, 100, 1000}) {
        Marked made(7, count);
        for (Index slot : {INT64_MIN, Index{-1}, Index{0}, Index{7}, 7 + count - 1, 7 + count, Index{INT64_MAX}}) {
            made.bitmap.take_if(slot, 0);
        }
        CHECK(made.bitmap.taken() == 0);
        made.bitmap.take_if(7, 1);
        made.bitmap.take_if(7 + count - 1, 1);
        made.bitmap.take_if(7, 1);
        CHECK(made.bitmap.taken() == (count == 1 ? 1 : 2));
        CHECK(!made.bitmap.take(7));
        CHECK(!made.bitmap.take(7 + count - 1));
    }
}

TEST_CASE("slot bitmap: an empty range has no slots, and bad ranges are errors") {
    Marked made(7, 0);
    CHECK(!made.bitmap.contains(7));
    CHECK(free_slots(made.bitmap).empty());
    CHECK_THROWS_AS(SlotBitmap(-1, 4), ShapeError);
    CHECK_THROWS_AS(SlotBitmap(0, -4), ShapeError);
    CHECK_THROWS_AS(SlotBitmap(INT64_MAX, 4), ShapeError);
    SlotBitmap bitmap(0, 64);
    std::vector<std::byte> too_short(static_cast<std::size_t>(bitmap.workspace_bytes() - 1));
    CHECK_THROWS_AS(bitmap.clear(too_short), BufferError);
}

TEST_CASE("slot bitmap: equals a set for random slots") {
    for (std::uint64_t seed : test::seeds(100)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const first = random.between(0, 1000);
        Index const count = random.between(0, 400);
        Index const marks = random.between(0, 300);
        std::set<Index> taken;
        Marked made(first, count);
        for (Index mark = 0; mark < marks; ++mark) {
            Index const slot = first + random.between(-3, count + 3);
            bool const inside = slot >= first && slot < first + count;
            CHECK(made.bitmap.contains(slot) == inside);
            if (inside) CHECK(made.bitmap.take(slot) == taken.insert(slot).second);
        }
        CHECK(made.bitmap.taken() == static_cast<Index>(taken.size()));
        std::vector<Index> open;
        for (Index slot = first; slot < first + count; ++slot)
            if (taken.count(slot) == 0) open.push_back(slot);
        CHECK(free_slots(made.bitmap) == open);
    }
}
