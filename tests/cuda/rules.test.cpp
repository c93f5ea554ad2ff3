// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/rules.hpp>

#include "cuda/support/emulated.hpp"

#include <reshard/mch/routing.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

using namespace reshard;
using namespace reshard::test;

namespace {

/// The rule's partition on the host's kernels, and its kernel bodies.
template <class Rule>
void check_same(Rule const& rule, Index entries, int ranks, std::vector<Index> const& column) {
    Partition host(entries, ranks);
    host.count(rule);
    std::vector<PartitionColumn> const columns{{reinterpret_cast<std::byte const*>(column.data()), 8}};
    Bytes expected(static_cast<std::size_t>(host.lay_out(columns)));
    host.scatter(rule, columns, expected);
    WordColumns words;
    words.data.push_back(column.data());
    HostBlocks shuffled{ThreadOrder::shuffled};
    EmulatedPartition memory(entries, ranks, 8 * detail::block_threads);
    CHECK((emulate_tiles<8>(shuffled, memory, rule, words) == expected));
    EmulatedPartition sorted(entries, ranks, 1);
    CHECK((emulate_sort(shuffled, sorted, rule, words) == expected));
    CHECK(memory.faults.out_of_range == sorted.faults.out_of_range);
    CHECK(memory.faults.first == sorted.faults.first);
}

}  // namespace

TEST_CASE("byte columns: one more than a partition takes is refused") {
    ByteColumns columns;
    std::byte const value{};
    for (int c = 0; c != max_device_columns; ++c) columns.add(&value, 1);
    CHECK_THROWS_WITH_AS(columns.add(&value, 1), doctest::Contains("more than 16 columns. Fix: several partitions"),
                         ShapeError);
    CHECK(columns.count() == max_device_columns);
}

TEST_CASE("rules: owners of slots agree with the router of a table, and refuse slots it does not have") {
    for (std::uint64_t seed : seeds(30)) {
        Random random(seed);
        CAPTURE(seed);
        Index const ranks = random.between(1, 40);
        Index const size = random.pick(std::vector<Index>{1, 10, ranks, 1000, 378801});
        SlotRouter const router(mch_slots(DynamicMesh(Indices{ranks}), size));
        auto const even = EvenSlots::of(size, ranks);
        std::vector<Index> offsets;
        MchTable table;
        table.slots = mch_slots(DynamicMesh(Indices{ranks}), size);
        offsets = table.offsets();
        SlotsAtOffsets const cut(offsets.data(), static_cast<int>(ranks));
        for (Index slot : {Index{-1}, INT64_MIN, size, INT64_MAX}) {
            CHECK(even(slot) == out_of_range);
            CHECK(cut(slot) == out_of_range);
        }
        for (int i = 0; i < 200; ++i) {
            Index const slot = i < 2 ? i * (size - 1) : random.between(0, size - 1);
            CHECK(even(slot) == router(slot));
            CHECK(cut(slot) == router(slot));
        }
    }
}

TEST_CASE("rules: a table for which a tile has no room is refused; one that is read where it lies may be longer") {
    std::vector<Index> offsets(301);
    for (std::size_t r = 0; r != offsets.size(); ++r) offsets[r] = 10 * static_cast<Index>(r);
    auto const by_slot = [&](int owners) {
        return BySlot<SlotsAtOffsets>{nullptr, SlotsAtOffsets(offsets.data(), owners)};
    };
    detail::check_rule_table("tests", by_slot(256));
    detail::check_rule_table("tests", ByList{});
    CHECK_THROWS_WITH_AS(detail::check_rule_table("tests", by_slot(257)),
                         doctest::Contains("tests: the table of the rule has 258 numbers. Fix: at most 257, or "),
                         ShapeError);
    // Answers beyond the destinations are counted, wherever the table lies.
    std::vector<Index> const slots{0, 2569, 2999};
    WordColumns words;
    words.data.push_back(slots.data());
    EmulatedPartition sorted(3, 257, 1);
    HostBlocks blocks;
    auto rule = by_slot(300);
    rule.slots = slots.data();
    CHECK(emulate_sort(blocks, sorted, rule, words).size() == 16);
    CHECK(sorted.faults.out_of_range == 1);
    CHECK(sorted.faults.first == 2);
}

TEST_CASE("rules: partitions by slot and by raw id are those of the host") {
    for (std::uint64_t seed : seeds(12)) {
        Random random(seed);
        CAPTURE(seed);
        int const ranks = static_cast<int>(random.between(1, 12));
        Index const size = random.between(ranks, 5000);
        Index const entries = random.between(0, 5000);
        std::vector<Index> ids;
        std::vector<Index> slots;
        for (Index i = 0; i < entries; ++i) {
            ids.push_back(random.chance(10) ? INT64_MAX : static_cast<Index>(random.engine()()));
            slots.push_back(random.chance(2) ? random.pick(std::vector<Index>{-1, size, INT64_MIN})
                                             : random.between(0, size - 1));
        }
        MchTable table;
        table.slots = mch_slots(DynamicMesh(Indices{ranks}), size);
        table.buckets = ranks;
        auto const offsets = table.offsets();
        check_same(BySlot<EvenSlots>{slots.data(), EvenSlots::of(size, ranks), ids.data()}, entries, ranks, ids);
        check_same(BySlot<SlotsAtOffsets>{slots.data(), SlotsAtOffsets(offsets.data(), ranks), ids.data()}, entries,
                   ranks, slots);
        check_same(BySlot<SlotRouter>{slots.data(), SlotRouter(table.slots), nullptr, INT64_MAX, size}, entries, ranks,
                   ids);
        check_same(ById<Router>{ids.data(), Router(table)}, entries, ranks, slots);
    }
}

TEST_CASE("rules: what is left behind on purpose is no fault, what has no destination is counted and never clamped") {
    std::vector<Index> const answers{0, not_sent, 2, out_of_range, 1, INT64_MAX, 3, 0};
    std::vector<Index> const column{10, 11, 12, 13, 14, 15, 16, 17};
    WordColumns words;
    words.data.push_back(column.data());
    EmulatedPartition memory(8, 3, 8 * detail::block_threads);
    HostBlocks blocks{ThreadOrder::up};
    Bytes const packed = emulate_tiles<8>(blocks, memory, ByList{answers.data()}, words);
    CHECK((memory.counts == DeviceList<Index>{2, 1, 1}));
    CHECK(memory.faults.out_of_range == 3);
    CHECK(memory.faults.first == 3);
    std::vector<Index> sent(4);
    REQUIRE(packed.size() == 32);
    std::memcpy(sent.data(), packed.data(), 32);
    CHECK(sent == std::vector<Index>{10, 17, 14, 12});
}

TEST_CASE("columns: iterators, words and bytes lay out the same blocks as the host does") {
    Random random(5);
    std::vector<Index> a;
    std::vector<std::int32_t> b;
    std::vector<std::uint8_t> c;
    std::vector<Index> to;
    for (int i = 0; i < 3000; ++i) {
        a.push_back(random.between(-9, 9));
        b.push_back(static_cast<std::int32_t>(random.between(-9, 9)));
        c.push_back(static_cast<std::uint8_t>(random.between(0, 255)));
        to.push_back(random.between(-1, 4));
    }
    ByList const rule{to.data()};
    ByteColumns bytes;
    bytes.add(reinterpret_cast<std::byte const*>(a.data()), 8);
    bytes.add(reinterpret_cast<std::byte const*>(b.data()), 4);
    bytes.add(reinterpret_cast<std::byte const*>(c.data()), 1);
    auto const iterators = iterator_columns(a.cbegin(), b.data(), c.data());
    CHECK(iterators.count() == 3);
    CHECK(iterators.width(1) == 4);
    CHECK(iterators.opaque(0));
    CHECK_FALSE(iterators.opaque(2));
    CHECK(iterators.address(2) == c.data());
    EmulatedPartition one(3000, 5, 8 * detail::block_threads);
    EmulatedPartition two(3000, 5, 8 * detail::block_threads);
    HostBlocks down{ThreadOrder::down};
    HostBlocks up{ThreadOrder::up};
    CHECK((emulate_tiles<8>(down, one, rule, iterators) == emulate_tiles<8>(up, two, rule, bytes)));
    for (Index rows : {0, 1, 2, 3, 15, 16, 17}) {
        for (Index width : {1, 3, 4, 8, 12, 16})
            CHECK(device_column_bytes(rows, width) == packed_column_bytes(rows, width));
    }
    CHECK(ByteColumns::piece_of(0, 24) == 8);
    CHECK(ByteColumns::piece_of(4, 24) == 4);
    CHECK(ByteColumns::piece_of(0, 12) == 4);
    CHECK(ByteColumns::piece_of(1, 8) == 1);
}
