// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/slot_bitmap.hpp>
#include <reshard/mch/workers.hpp>

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
    CHECK(made.bitmap.mark(std::vector<Index>{103, 100}).none());
    CHECK(made.bitmap.taken() == 2);
    CHECK(free_slots(made.bitmap) == std::vector<Index>{101, 102, 104});
    CHECK(made.bitmap.is_taken(103));
    CHECK(!made.bitmap.is_taken(104));
    std::vector<Index> two(2);
    CHECK(made.bitmap.free_slots(two) == 2);
    CHECK(two == std::vector<Index>{101, 102});
}

TEST_CASE("slot bitmap: slots taken twice and out of range are counted, then named") {
    Marked made(10, 10);
    std::vector<Index> const slots{10, 9, 19, 10, 20, INT64_MIN, INT64_MAX, 19, 10};
    SlotFaults const faults = made.bitmap.mark(slots);
    CHECK(faults.out_of_range == 4);
    CHECK(faults.duplicates == 3);
    std::vector<Index> duplicates;
    std::vector<Index> outside;
    made.bitmap.for_each_fault(slots, [&](Index position, Index slot, bool duplicate) {
        CHECK(slots[static_cast<std::size_t>(position)] == slot);
        (duplicate ? duplicates : outside).push_back(position);
    });
    CHECK(duplicates == std::vector<Index>{3, 7, 8});
    CHECK(outside == std::vector<Index>{1, 4, 5, 6});
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
        CHECK(made.bitmap.is_taken(7));
        CHECK(made.bitmap.is_taken(7 + count - 1));
    }
}

TEST_CASE("slot bitmap: an empty range has no slots, and bad ranges are errors") {
    Marked made(7, 0);
    CHECK(made.bitmap.mark(std::vector<Index>{7}).out_of_range == 1);
    CHECK(free_slots(made.bitmap).empty());
    CHECK_THROWS_AS(SlotBitmap(-1, 4), ShapeError);
    CHECK_THROWS_AS(SlotBitmap(0, -4), ShapeError);
    CHECK_THROWS_AS(SlotBitmap(INT64_MAX, 4), ShapeError);
    SlotBitmap bitmap(0, 64);
    std::vector<std::byte> too_short(static_cast<std::size_t>(bitmap.workspace_bytes() - 1));
    CHECK_THROWS_AS(bitmap.clear(too_short), BufferError);
}

TEST_CASE("slot bitmap: equals a set for random slots, marked by several threads") {
    Workers workers(4);
    for (std::uint64_t seed : test::seeds(100)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const first = random.between(0, 1000);
        Index const count = random.between(0, 400);
        std::vector<Index> slots(static_cast<std::size_t>(random.between(0, 300)));
        std::set<Index> taken;
        SlotFaults expected;
        for (Index& slot : slots) {
            slot = first + random.between(-3, count + 3);
            bool const inside = slot >= first && slot < first + count;
            if (!inside) ++expected.out_of_range;
            if (inside && !taken.insert(slot).second) ++expected.duplicates;
        }
        Marked made(first, count);
        SlotFaults const faults = made.bitmap.mark(slots, 4, workers);
        CHECK(faults.out_of_range == expected.out_of_range);
        CHECK(faults.duplicates == expected.duplicates);
        CHECK(made.bitmap.taken() == static_cast<Index>(taken.size()));
        std::vector<Index> open;
        for (Index slot = first; slot < first + count; ++slot)
            if (taken.count(slot) == 0) open.push_back(slot);
        CHECK(free_slots(made.bitmap) == open);
    }
}
