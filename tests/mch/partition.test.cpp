// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/partition.hpp>

#include "support/mch_kernels.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

using namespace reshard;
using namespace reshard::test;

namespace {

/// A column of words.
Bytes words(std::vector<std::int64_t> const& values) {
    Bytes bytes(values.size() * 8);
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::vector<std::int64_t> as_words(Bytes const& bytes) {
    std::vector<std::int64_t> values(bytes.size() / 8);
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

constexpr auto all_to_zero = [](Index) { return 0; };

}  // namespace

TEST_CASE("partition: a block per destination, its columns one after the other, entries in their order") {
    PartitionCase given;
    given.entries = 6;
    given.world = 3;
    given.widths = {8, 8};
    given.columns = {words({10, 11, 12, 13, 14, 15}), words({20, 21, 22, 23, 24, 25})};
    given.destinations = {2, 0, -1, 2, 0, 2};
    for (int parts = 1; parts <= 8; ++parts) {
        CAPTURE(parts);
        given.parts = parts;
        auto const result = HostKernels::partition(given);
        CHECK(result.counts == std::vector<Index>{2, 0, 3});
        CHECK(result.begins == std::vector<Index>{0, 2, 2, 5});
        CHECK(result.blocks == std::vector<Index>{0, 32, 32, 80});
        CHECK(as_words(result.packed) == std::vector<std::int64_t>{11, 14, 21, 24, 10, 13, 15, 20, 23, 25});
        CHECK(result.guards_intact);
    }
}

TEST_CASE("partition: columns that are not words are padded with zeros to 16 bytes") {
    PartitionCase given;
    given.entries = 3;
    given.world = 2;
    given.widths = {4, 8, 1};
    given.columns = {Bytes(12, std::byte{4}), Bytes(24, std::byte{8}), Bytes(3, std::byte{1})};
    given.destinations = {1, 1, 0};
    given.parts = 2;
    auto const result = HostKernels::partition(given);
    CHECK(result.blocks == std::vector<Index>{0, 40, 88});
    Bytes expected;
    for (std::size_t rows : {1U, 2U}) {
        for (std::size_t width : {4U, 8U, 1U}) {
            expected.insert(expected.end(), rows * width, static_cast<std::byte>(width));
            if (width != 8) expected.insert(expected.end(), 16 - rows * width, std::byte{0});
        }
    }
    CHECK(result.packed == expected);
    CHECK(result == partition_oracle(given));
}

TEST_CASE("partition: nothing to move is legal: no entries, all dropped, no columns") {
    for (Index entries : {0, 5}) {
        PartitionCase given;
        given.entries = entries;
        given.world = 4;
        given.parts = 8;
        given.widths = {8, 3};
        given.columns = {Bytes(static_cast<std::size_t>(8 * entries)), Bytes(static_cast<std::size_t>(3 * entries))};
        given.destinations.assign(static_cast<std::size_t>(entries), 4);
        auto const result = HostKernels::partition(given);
        CHECK(result == partition_oracle(given));
        CHECK(result.packed.empty());
        given.widths.clear();
        given.columns.clear();
        given.destinations.assign(static_cast<std::size_t>(entries), 1);
        CHECK(HostKernels::partition(given) == partition_oracle(given));
    }
}

TEST_CASE("partition: blocks large enough to be written past the caches") {
    Random random(11);
    // 4 columns of words for 40 ranks: tiles; 9 MiB: streamed. The odd address keeps whole lines from being aligned.
    for (int shift : {0, 8, 4}) {
        if (fewer_seeds() && shift != 4) continue;
        auto given = random_partition(random, 300'001, 40, {8, 8, 8, 8}, Skew::even);
        given.parts = 3;
        given.shift = shift;
        REQUIRE(given.entries * 32 > detail::streaming_partition_bytes);
        auto const result = HostKernels::partition(given);
        CHECK((result == partition_oracle(given)));
    }
}

TEST_CASE("partition: what is kept and what is dropped adds up") {
    Partition partition(10, 3);
    CHECK(partition.counts().empty());
    CHECK(partition.kept() == 0);
    CHECK(partition.dropped() == 0);
    partition.count([](Index entry) { return entry < 4 ? -1 : 2; });
    CHECK(partition.kept() == 6);
    CHECK(partition.dropped() == 4);
}

TEST_CASE("partition: a scatter can be repeated, and a count") {
    Random random(3);
    auto const given = random_partition(random, 2000, 50, {8, 4}, Skew::even);
    auto const rule = [&](Index entry) { return given.destinations[static_cast<std::size_t>(entry)]; };
    std::vector<PartitionColumn> const columns{{given.columns[0].data(), 8}, {given.columns[1].data(), 4}};
    Partition partition(given.entries, given.world, 2);
    for (int round = 0; round < 2; ++round) {
        partition.count(rule);
        Bytes once(static_cast<std::size_t>(partition.lay_out(columns)));
        Bytes twice(once.size());
        partition.scatter(rule, columns, once);
        partition.scatter(rule, columns, twice);
        CHECK((once == twice));
        CHECK((once == partition_oracle(given).packed));
    }
}

TEST_CASE("partition: bad input is named with its remedy") {
    CHECK_THROWS_WITH_AS(Partition(-1, 2),
                         "reshard::Partition: -1 entries for 2 destinations. Fix: give 0 or more entries and 1 to "
                         "65535 destinations.",
                         ShapeError);
    CHECK_THROWS_AS(Partition(1, 0), ShapeError);
    CHECK_THROWS_AS(Partition(1, 65536), ShapeError);
    CHECK_THROWS_WITH_AS(Partition(1, 1, 0),
                         "reshard::Partition: 0 parts. Fix: give 1 to 65536, such as one per thread.", ShapeError);
    Partition partition(10, 2);
    std::vector<std::int64_t> column(10);
    auto const* const data = reinterpret_cast<std::byte const*>(column.data());
    std::vector<PartitionColumn> columns{{data, 8}};
    Bytes packed(80, std::byte{9});
    CHECK_THROWS_WITH_AS(partition.scatter(all_to_zero, columns, packed),
                         "reshard::Partition::lay_out: nothing is counted yet. Fix: call count() first.",
                         TransitionError);
    partition.count(all_to_zero);
    CHECK_THROWS_WITH_AS(partition.scatter(all_to_zero, columns, std::span(packed).first(79)),
                         "reshard::Partition::scatter: the packed blocks have 80 bytes, the buffer 79. Fix: allocate "
                         "lay_out(columns) bytes.",
                         BufferError);
    columns[0].data = nullptr;
    CHECK_THROWS_AS(partition.scatter(all_to_zero, columns, packed), BufferError);
    columns[0] = {data, 0};
    CHECK_THROWS_AS(partition.lay_out(columns), ShapeError);
    columns[0] = {data, INT64_MAX / 4};
    CHECK_THROWS_AS(partition.lay_out(columns), ShapeError);
    CHECK((packed == Bytes(80, std::byte{9})));
}

TEST_CASE("partition: sizes beyond 32 bits are counted, not wrapped") {
    Index const widths[] = {8, 8, 4};
    CHECK(packed_block_bytes(Index{1} << 40, widths) == (Index{20} << 40));
    CHECK_THROWS_AS(static_cast<void>(packed_block_bytes(Index{1} << 60, widths)), ShapeError);
    CHECK_THROWS_AS(static_cast<void>(packed_block_bytes(-1, widths)), ShapeError);
}

TEST_CASE("partition: what a rule skips is dropped, and the rest comes as if it had been asked for everything") {
    struct Rule {
        Index const* to;
        [[nodiscard]] Index operator()(Index entry) const noexcept { return to[entry]; }
    };
    struct SkippingRule : Rule {
        [[nodiscard]] Index skip(Index entry, Index end) const noexcept {
            while (entry < end && to[entry] < 0) ++entry;
            return entry;
        }
    };
    std::vector<Index> destinations;
    std::vector<Index> words;
    std::vector<std::int16_t> others;
    for (Index i = 0; i < 20000; ++i) {
        destinations.push_back(i / 700 % 3 == 0 || i % 5 == 0 ? -1 : i % 7);
        words.push_back(i);
        others.push_back(static_cast<std::int16_t>(i));
    }
    PartitionColumn const columns[] = {{reinterpret_cast<std::byte const*>(words.data()), 8},
                                       {reinterpret_cast<std::byte const*>(others.data()), 2}};
    auto const packed = [&](auto const& rule, int parts, std::size_t used) {
        Partition partition(static_cast<Index>(destinations.size()), 7, parts);
        partition.count(rule);
        std::span const list(columns, used);
        Bytes result(static_cast<std::size_t>(partition.lay_out(list)));
        partition.scatter(rule, list, result);
        return result;
    };
    for (std::size_t used : {1U, 2U}) {  // entry by entry, and by tiles
        Bytes const expected = packed(Rule{destinations.data()}, 1, used);
        CHECK(!expected.empty());
        for (int parts : {1, 2, 7}) CHECK(packed(SkippingRule{{destinations.data()}}, parts, used) == expected);
    }
}
