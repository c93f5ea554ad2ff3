// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/table.hpp.
#include <reshard/mch/table.hpp>

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

namespace {
using namespace reshard;

DynamicMesh ranks(Index count) { return Mesh{count}; }
MchTable sample() { return mch_table("user", ranks(4), 10, MchEviction::lfu); }
MchTable bucketed(Index slots, Index parts, Index buckets) {
    MchTable table = mch_table("item", ranks(parts), slots, MchEviction::none);
    table.layout = MchLayout::buckets;
    table.buckets = buckets;
    table.metadata = {{"metadata", 4, 0xff}};
    return table;
}
std::vector<Index> sizes(MchTable const& table) {
    std::vector<Index> result;
    for (Index p = 0; p < table.parts(); ++p) result.push_back(table.part_range(p).size());
    return result;
}
template <class Change>
void check_refused(ErrorCode code, char const* what, Change const& change) {
    MchTable table = sample();
    change(table);
    CAPTURE(what);
    try {
        check_table(table);
        FAIL("accepted");
    } catch (Error const& error) {
        CHECK(error.code() == code);
        CHECK(error.message().find("table 'user'") != std::string::npos);
        CHECK_MESSAGE(error.message().find(what) != std::string::npos, error.message());
        CHECK(error.message().find("Fix: ") != std::string::npos);
    }
}

TEST_CASE("the chunk rule is TorchRec's row-wise rule, short and empty shards included") {
    CHECK(sizes(sample()) == std::vector<Index>{3, 3, 3, 1});
    CHECK(sizes(mch_table("", ranks(8), 10, MchEviction::lfu)) == std::vector<Index>{2, 2, 2, 2, 2, 0, 0, 0});
    // alibaba/TorchEasyRec issue 360: the boundary of 2 ranks is none of the boundaries of 4.
    CHECK(mch_table("", ranks(4), 378801, MchEviction::lfu).offsets() ==
          std::vector<Index>{0, 94701, 189402, 284103, 378801});
    CHECK(mch_table("", ranks(2), 378801, MchEviction::lfu).offsets() == std::vector<Index>{0, 189401, 378801});
    CHECK(mch_table("", ranks(8), 10, MchEviction::lfu).offsets() == std::vector<Index>{0, 2, 4, 6, 8, 10, 10, 10, 10});
}

TEST_CASE("a shard belongs to a rank of the mesh, whatever the ranks are called") {
    MchTable table = sample();
    table.slots = mch_slots(Mesh{3}.on({0, {5, 2, 7}}), IndexList{0, 1, 4, 9});
    CHECK(table.range(5) == Interval{0, 1});
    CHECK(table.range(2) == Interval{1, 4});
    CHECK(table.range(7) == Interval{4, 9});
    CHECK(table.range(0) == Interval{9, 9});
    CHECK(table.offsets() == std::vector<Index>{0, 1, 4, 9});
    table.slots = mch_slots(ranks(5), IndexList{0, 0, 4, 4, 9, 9});  // empty parts, the first one included
    CHECK(table.offsets() == std::vector<Index>{0, 0, 4, 4, 9, 9});
    CHECK(table.range(0) == Interval{0, 0});
    CHECK(table.range(2) == Interval{4, 4});
    CHECK(table.range(4) == Interval{9, 9});
    CHECK_THROWS_AS(static_cast<void>(mch_slots(ranks(2), IndexList{0, 5, 4})), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(mch_slots(ranks(2), IndexList{})), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(mch_slots(ranks(2), IndexList{0, 5})), PlacementError);
}

TEST_CASE("on other ranks a sorted table has one bucket per rank, a bucketed one keeps its buckets") {
    CHECK(sample().on(mch_slots(ranks(2), 10)) == mch_table("user", ranks(2), 10, MchEviction::lfu));
    MchTable const table = bucketed(24, 4, 12);
    CHECK(table.on(mch_slots(ranks(2), 24)).buckets == 12);
}

TEST_CASE("policies name the columns they score by") {
    CHECK(columns_of(MchEviction::none).empty());
    CHECK(columns_of(MchEviction::lfu) == std::vector<MchColumn>{{"counts"}});
    CHECK(columns_of(MchEviction::lru) == std::vector<MchColumn>{{"last_access_iter"}});
    CHECK(columns_of(MchEviction::distance_lfu) == std::vector<MchColumn>{{"counts"}, {"last_access_iter"}});
}

TEST_CASE("a table prints what it is") {
    CHECK(to_string(sample()) ==
          "'user' of 10 slots (4):(S0) sorted LFU, hash size 9223372036854775807, buckets 4, "
          "columns counts:8");
    MchTable table = bucketed(24, 4, 12);
    table.hash_function = "murmur";
    table.hash_size = 100;
    CHECK(to_string(table) ==
          "'item' of 24 slots (4):(S0) buckets no eviction, hash size 100 by murmur, buckets 12, "
          "columns metadata:4=255");
    table.metadata.clear();
    CHECK(to_string(table).find("columns") == std::string::npos);
}

TEST_CASE("the exponent counts where it changes who is evicted: always by DistanceLFU, by LRU where one is 0") {
    auto const differ = [](MchEviction eviction, double was, double is) {
        MchTable saved = mch_table("user", Mesh{2}, 10, eviction);
        MchTable current = saved;
        saved.decay_exponent = was;
        current.decay_exponent = is;
        try {
            check_same_content(saved, current);
        } catch (MismatchError const& error) {
            CHECK(error.message().find("the decay exponent differs") != std::string::npos);
            return true;
        }
        return false;
    };
    CHECK(differ(MchEviction::lru, 1, 0));
    CHECK(differ(MchEviction::lru, 0, 2));
    CHECK(!differ(MchEviction::lru, 1, 2));
    CHECK(!differ(MchEviction::lru, 0, -0.0));
    CHECK(differ(MchEviction::distance_lfu, 1, 2));
    CHECK(!differ(MchEviction::lfu, 1, 0));
}

TEST_CASE("tables whose decay exponents are 0 and -0 are equal, and so are their digests and texts") {
    MchTable plus = sample();
    MchTable minus = sample();
    plus.decay_exponent = 0.0;
    minus.decay_exponent = -0.0;
    check_table(minus);
    CHECK(plus == minus);
    CHECK(digest(plus) == digest(minus));
    CHECK(to_string(plus) == to_string(minus));
}

TEST_CASE("two tables that differ in anything differ in their digest") {
    std::vector<MchTable> tables(1, sample());
    auto const add = [&](auto const& change) {
        tables.push_back(sample());
        change(tables.back());
    };
    add([](MchTable& t) { t.name = "users"; });
    add([](MchTable& t) { t.slots = mch_table("", ranks(4), 11, MchEviction::lfu).slots; });
    add([](MchTable& t) { t.slots = mch_table("", ranks(2), 10, MchEviction::lfu).slots; });
    add([](MchTable& t) { t.slots = distribution(Mesh{4}, Shape{10}, Shard<0, Balanced>{}); });
    add([](MchTable& t) { t.hash_size = 7; });
    add([](MchTable& t) { t.buckets = 8; });
    add([](MchTable& t) { t.hash_function = "murmur"; });
    add([](MchTable& t) { t.eviction = MchEviction::none; });
    add([](MchTable& t) { t.layout = MchLayout::buckets; });
    add([](MchTable& t) { t.metadata.clear(); });
    add([](MchTable& t) { t.metadata[0].name = "count"; });
    add([](MchTable& t) { t.metadata[0].bytes = 4; });
    add([](MchTable& t) { t.metadata[0].empty = 1; });
    for (std::size_t i = 0; i < tables.size(); ++i) {
        for (std::size_t j = 0; j < tables.size(); ++j) {
            CAPTURE(i);
            CAPTURE(j);
            CHECK((tables[i] == tables[j]) == (i == j));
            CHECK((digest(tables[i]) == digest(tables[j])) == (i == j));
        }
    }
}

TEST_CASE("tables that make no sense are refused by name") {
    CHECK_NOTHROW(check_table(sample()));
    CHECK_NOTHROW(check_table(MchTable{}));
    CHECK_NOTHROW(check_table(bucketed(24, 4, 12)));
    CHECK_NOTHROW(check_table(mch_table("empty", ranks(3), 0, MchEviction::lru)));
    auto const slots = [](DynamicDistribution const& d) { return [d](MchTable& t) { t.slots = d; }; };
    check_refused(ErrorCode::shape, "shape [2,5]", slots(distribution(Mesh{4}, Shape{2, 5}, Shard<0>{})));
    check_refused(ErrorCode::placement, "(2,2):(S0,R)",
                  slots(distribution(Mesh{2, 2}, Shape{10}, Shard<0>{}, Replicate{})));
    check_refused(ErrorCode::placement, "(4):(R)", slots(distribution(Mesh{4}, Shape{10}, Replicate{})));
    check_refused(ErrorCode::placement, "(4):(P+)", slots(distribution(Mesh{4}, Shape{10}, Partial<>{})));
    check_refused(ErrorCode::placement, "interleave",
                  slots(distribution(Mesh{4}, Shape{10}, Shard<0, BlockCyclic>{{2}})));
    check_refused(ErrorCode::mismatch,
                  "hash size 0. Fix: give TorchRec's input_hash_size (the default of its MCH module "
                  "is 9223372036854775807).",
                  [](MchTable& t) { t.hash_size = 0; });
    MchTable plain = bucketed(24, 4, 12);
    plain.hash_size = 0;
    CHECK_NOTHROW(check_table(plain));
    check_refused(ErrorCode::mismatch,
                  "hash size -1. Fix: give TorchRec's input_hash_size (the default of its HashZCH "
                  "module is 0).",
                  [&](MchTable& t) {
                      t = plain;
                      t.name = "user";
                      t.hash_size = -1;
                  });
    check_refused(ErrorCode::mismatch, "0 buckets", [](MchTable& t) { t.buckets = 0; });
    check_refused(ErrorCode::mismatch, "6 buckets cannot be shared by 4 ranks", [](MchTable& t) { t.buckets = 6; });
    check_refused(ErrorCode::mismatch, "0 bytes an entry", [](MchTable& t) { t.metadata[0].bytes = 0; });
    check_refused(ErrorCode::mismatch, "two columns are called 'counts'",
                  [](MchTable& t) { t.metadata.push_back({"counts"}); });
    check_refused(ErrorCode::mismatch, "LRU needs a column 'last_access_iter'",
                  [](MchTable& t) { t.eviction = MchEviction::lru; });
    check_refused(ErrorCode::mismatch, "'counts' has 4 bytes", [](MchTable& t) { t.metadata[0].bytes = 4; });
    check_refused(ErrorCode::mismatch, "10 slots cannot be cut into 4 equal buckets",
                  [](MchTable& t) { t.layout = MchLayout::buckets; });
    check_refused(ErrorCode::mismatch, "part 1 begins at slot 3, inside a bucket of 2 slots", [](MchTable& t) {
        t.layout = MchLayout::buckets;
        t.buckets = 5;
    });
}

TEST_CASE("a state saved under another configuration is refused with both values") {
    auto const refusal = [](MchTable const& saved, MchTable const& current) -> std::string {
        try {
            check_same_content(saved, current);
        } catch (MismatchError const& error) {
            return error.message();
        }
        return "";
    };
    MchTable const saved = sample();
    MchTable current = mch_table("renamed", ranks(3), 10, MchEviction::lfu);
    CHECK(refusal(saved, current).empty());  // names, ranks and the buckets that follow them
    CHECK(refusal(mch_table("", ranks(4), 12, MchEviction::lfu), current) ==
          "reshard::mch: table 'renamed': the number of slots differs: saved 12, current 10. Fix: configure the size "
          "the table was saved with, or load it with load_redistributed() and MchLoadOptions::resize.");
    MchTable buckets = mch_table("item", ranks(2), 8, MchEviction::none);
    buckets.layout = MchLayout::buckets;
    buckets.buckets = 2;
    MchTable larger_buckets = buckets;
    larger_buckets.slots = mch_slots(ranks(2), 16);
    CHECK(refusal(buckets, larger_buckets).find("resize") == std::string::npos);
    current.hash_size = 5;
    CHECK(refusal(saved, current).find("saved 9223372036854775807, current 5") != std::string::npos);
    current = saved;
    current.hash_function = "murmur";
    CHECK(refusal(saved, current).find("saved '', current 'murmur'") != std::string::npos);
    CHECK(refusal(saved, mch_table("user", ranks(4), 10, MchEviction::lru)).find("saved LFU, current LRU") !=
          std::string::npos);
    current = saved;
    current.metadata.push_back({"hour", 4});
    CHECK(refusal(saved, current).find("column 'hour' differs: saved none, current 4 bytes") != std::string::npos);
    CHECK(refusal(current, saved).find("column 'hour' differs: saved 4 bytes, current none") != std::string::npos);
    CHECK(refusal(bucketed(24, 4, 12), bucketed(24, 4, 24)).find("buckets differs: saved 12, current 24") !=
          std::string::npos);
    CHECK(refusal(bucketed(10, 2, 2), current).find("layout differs: saved buckets, current sorted") !=
          std::string::npos);
}

TEST_CASE("an id that looks like an empty place is refused") {
    std::array<Index, 3> ids{INT64_MIN, -1, INT64_MAX};
    CHECK_NOTHROW(check_ids(sample(), ids.data(), 2));
    CHECK_THROWS_WITH_AS(check_ids(sample(), ids.data(), 3),
                         "reshard::mch: table 'user': id 9223372036854775807 at position 2 is what an empty place "
                         "holds. Fix: map it to another id first.",
                         MismatchError);
    CHECK_THROWS_AS(check_ids(bucketed(24, 4, 12), ids.data(), 3), MismatchError);
}

}  // namespace

TEST_CASE("segments are where parts begin, then the size, then -1") {
    MchTable const table = mch_table("user", Mesh{4}, 10, MchEviction::lfu);
    std::vector<Index> segments;
    for (Index i = 0; i < 7; ++i) segments.push_back(table.segment(i));
    CHECK(segments == std::vector<Index>{0, 3, 6, 9, 10, -1, -1});
}
