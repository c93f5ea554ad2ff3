// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/split.hpp>

#include "support/oracle.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

using namespace reshard;

namespace {

constexpr SplitRule chunk{};
constexpr SplitRule balanced{SplitKind::balanced, 0, {}};
constexpr SplitRule cyclic(Index block) { return {SplitKind::cyclic, block, {}}; }
constexpr SplitRule strided(Index pieces) { return {SplitKind::strided, pieces, {}}; }
constexpr SplitRule positions(IndexList list) { return {SplitKind::boundaries, 0, list}; }

constexpr bool sizes_are(SplitRule const& rule, Index extent, std::initializer_list<Index> sizes) {
    Index i = 0;
    for (Index size : sizes) {
        if (detail::part(rule, extent, static_cast<Index>(sizes.size()), i++).size() != size) return false;
    }
    return true;
}

// Examples of torch.chunk and torch.tensor_split.
static_assert(sizes_are(chunk, 5, {2, 2, 1, 0}));
static_assert(sizes_are(chunk, 10, {2, 2, 2, 2, 2, 0, 0, 0}), "five pieces of two, then three empty ones");
static_assert(sizes_are(chunk, 224, {12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 8, 0}));
static_assert(sizes_are(chunk, 3, {1, 1, 1, 0}), "as many rows as all ranks but one: the last starts at the end");
static_assert(sizes_are(chunk, 0, {0, 0}) && sizes_are(chunk, 7, {7}) && sizes_are(chunk, 8, {2, 2, 2, 2}));
static_assert(sizes_are(balanced, 20, {4, 4, 3, 3, 3, 3}) && sizes_are(balanced, 5, {2, 1, 1, 1}));
static_assert(sizes_are(balanced, 2, {1, 1, 0, 0}) && sizes_are(balanced, 0, {0, 0, 0}));
static_assert(sizes_are(positions({0, 0, 4, 4, 9}), 9, {0, 4, 0, 5}));

constexpr int empty_parts(SplitRule const& rule, Index extent, Index parts) {
    int count = 0;
    for (Index i = 0; i < parts; ++i) count += detail::part(rule, extent, parts, i).empty() ? 1 : 0;
    return count;
}
static_assert(empty_parts(chunk, 65, 64) == 31 && empty_parts(balanced, 65, 64) == 0);

// An empty part begins at the end of the extent, never at somebody else's offset.
static_assert(detail::part(chunk, 5, 4, 3) == Interval{5, 5} && detail::part(balanced, 2, 4, 3) == Interval{2, 2});
static_assert(detail::part(chunk, 3, 4, 3) == Interval{3, 3});

constexpr IndexSet blocks(Interval span, Index block, Index parts, Index i) {
    return IndexSet(span, cyclic(block), parts, i);
}

// No overflow at the end of the index space: in a constant expression it would not compile.
constexpr Index huge = std::numeric_limits<Index>::max();
static_assert(detail::part(chunk, huge, 2, 1) == Interval{huge / 2 + 1, huge});
static_assert(detail::part(chunk, huge, 1'000'003, 1'000'002).end == huge);
static_assert(detail::part(balanced, huge, 2, 0).end == huge / 2 + 1 && detail::part(balanced, huge, 2, 1).end == huge);
static_assert(detail::part_of(chunk, huge, 2, huge - 1) == 1 && detail::part_of(balanced, huge, 2, huge - 1) == 1);
static_assert(detail::part_of(balanced, huge, 1, huge - 1) == 0);
static_assert(blocks({0, 10}, huge, 4, 0).size() == 10 && blocks({0, 10}, huge, 4, 3).size() == 0,
              "a block longer than everything: the first part gets all");
static_assert(blocks({0, huge}, 1, 2, 0).size() == huge / 2 + 1 && blocks({0, huge}, 1, 2, 1).size() == huge / 2);

static_assert(intersect(Interval{0, 5}, Interval{3, 9}) == Interval{3, 5});
static_assert(intersect(Interval{0, 3}, Interval{3, 9}).empty() &&
              intersect(Interval{0, 2}, Interval{7, 9}).size() == 0);
static_assert(Interval{2, 4}.contains(2) && !Interval{2, 4}.contains(4) && Interval{4, 4}.empty());

// Block-cyclic: 11 elements in blocks of 2 over 3 parts, part 1 holds 2,3 and 8,9.
constexpr IndexSet dealt = blocks({0, 11}, 2, 3, 1);
static_assert(dealt.segments() == 2 && dealt.segment(0) == Interval{2, 4} && dealt.segment(1) == Interval{8, 10});
static_assert(dealt.size() == 4 && dealt.contains(9) && !dealt.contains(10) && !dealt.contains(11));
static_assert(blocks({0, 11}, 2, 3, 2).segment(1) == Interval{10, 11}, "the last block is clipped");
static_assert(blocks({0, 4}, 2, 3, 2).segments() == 0 && blocks({0, 4}, 2, 3, 2).size() == 0);
static_assert(blocks({0, 12}, 2, 3, 1).is_interval() == false && blocks({0, 6}, 2, 3, 1) == IndexSet({2, 4}) &&
                  blocks({3, 9}, 2, 1, 0) == IndexSet({3, 9}),
              "what is one interval is an interval");

// Strided: 11 elements in 3 pieces of 4, 4, 3; of the last one part 1 of 2 has the last element alone.
constexpr IndexSet second({0, 11}, strided(3), 2, 1);
static_assert(second.segments() == 3 && second.segment(0) == Interval{2, 4} && second.segment(2) == Interval{10, 11});
static_assert(second.size() == 5 && second.local_index(10) == 4 && second.local_index(7) == 3);
static_assert(second.segment_from(4) == Interval{6, 8} && second.segment_from(8) == Interval{10, 11});
static_assert(IndexSet({0, 21}, strided(4), 2, 1).regular_end() == 18 && blocks({0, 11}, 2, 3, 2).regular_end() == 11);
static_assert(IndexSet({0, 7}, strided(2), 3, 2) == IndexSet({6, 7}), "of the whole piece it has nothing");
static_assert(detail::part_of(strided(2), 7, 3, 6) == 2 && detail::part_of(strided(2), 7, 3, 3) == 1);
static_assert(IndexSet({0, 5}, strided(9), 2, 0) == IndexSet({0, 5}) && IndexSet({0, 5}, strided(9), 2, 1).size() == 0);
static_assert(IndexSet({0, huge}, strided(2), 2, 1).size() == huge / 2);
static_assert(!dealt.is_interval() && IndexSet({3, 4}).is_interval() && IndexSet({4, 4}).segments() == 0);

static_assert(Boundaries{0, 3, 9}.rule(9, 2) == positions({0, 3, 9}));
static_assert(Chunk{}.rule(9, 2) == chunk && Balanced{}.rule(9, 2) == balanced &&
              BlockCyclic{4}.rule(9, 2) == cyclic(4));
static_assert(!SplitRuleType<int> && !SplitRuleType<SplitRule>);

/// A rule of one's own: everything on part 0.
struct FirstTakesAll {
    [[maybe_unused]] static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index extent, Index parts) const {
        Index list[IndexList::inline_capacity]{};
        for (Index i = 1; i <= parts; ++i) list[i] = extent;
        return {SplitKind::boundaries, 0, IndexList(list, parts + 1)};
    }
};
static_assert(SplitRuleType<FirstTakesAll>);
static_assert(sizes_are(FirstTakesAll{}.rule(7, 3), 7, {7, 0, 0}));

/// Every law of one cut, against the definition.
void check_cut(SplitRule const& rule, Index extent, Index parts) {
    CAPTURE(static_cast<int>(rule.kind));
    CAPTURE(rule.block);
    CAPTURE(extent);
    CAPTURE(parts);
    constexpr Index start = 100;
    oracle::Elements all;
    for (Index i = 0; i < extent; ++i) all.push_back(start + i);
    std::vector<oracle::Elements> const pieces = oracle::cut(all, rule, parts);
    Index total = 0;
    for (Index p = 0; p < parts; ++p) {
        oracle::Elements const& piece = pieces[oracle::at(p)];
        IndexSet set;
        if (interleaves(rule.kind)) {
            set = IndexSet(Interval{start, start + extent}, rule, parts, p);
        } else {
            Interval const cut = detail::part(rule, extent, parts, p);
            if (p + 1 < parts) CHECK(detail::part(rule, extent, parts, p + 1).begin == cut.end);
            set = IndexSet(Interval{start + cut.begin, start + cut.end});
        }
        REQUIRE(set.size() == static_cast<Index>(piece.size()));
        total += set.size();
        oracle::Elements listed;
        Index last_end = -1;
        for (Index k = 0; k < set.segments(); ++k) {
            CHECK_FALSE(set.segment(k).empty());
            CHECK(set.segment(k).begin >= last_end);
            last_end = set.segment(k).end;
            for (Index i = set.segment(k).begin; i < set.segment(k).end; ++i) listed.push_back(i);
        }
        CHECK(listed == piece);
        if (rule.kind != SplitKind::strided) {
            CHECK(set.is_interval() == (parts == 1 || rule.kind != SplitKind::cyclic || extent <= rule.block * parts));
        } else if (parts == 1 || rule.block == 1) {
            CHECK(set.is_interval());
        }
        Index before = 0;
        for (Index i = start - 2; i < start + extent + 2; ++i) {
            bool const held = std::find(piece.begin(), piece.end(), i) != piece.end();
            REQUIRE(set.contains(i) == held);
            REQUIRE(set.local_index(i) == before);
            if (held) REQUIRE(set.global_index(before) == i);
            before += held ? 1 : 0;
            Interval const from = set.segment_from(i);  // the first segment that ends behind i
            Index first = 0;
            while (first < set.segments() && set.segment(first).end <= i) ++first;
            bool const none = first == set.segments();
            REQUIRE(from.size() == (none ? 0 : set.segment(first).size()));
            if (!none) REQUIRE(from.begin == set.segment(first).begin);
            if (held) REQUIRE(detail::part_of(rule, extent, parts, i - start) == p);
        }
    }
    CHECK(total == extent);
}

}  // namespace

TEST_CASE("chunk and balanced cut every small extent as their definitions say") {
    for (Index parts = 1; parts <= 9; ++parts) {
        for (Index extent = 0; extent <= 40; ++extent) {
            check_cut(chunk, extent, parts);
            check_cut(balanced, extent, parts);
        }
    }
}

TEST_CASE("blocks are dealt out in turn for every small extent, number of parts and block size") {
    for (Index parts = 1; parts <= 5; ++parts) {
        for (Index extent = 0; extent <= 24; ++extent) {
            for (Index block : {1, 2, 3, 7, 30}) check_cut(cyclic(block), extent, parts);
            for (Index pieces : {1, 2, 3, 4, 7, 30}) check_cut(strided(pieces), extent, parts);
        }
    }
}

TEST_CASE("boundaries cut where they say, also with empty parts first, in between and last") {
    check_cut(positions({0, 3, 9}), 9, 2);
    check_cut(positions({0, 0, 4, 4, 4, 9, 9}), 9, 6);
    check_cut(positions({0, 0, 0}), 0, 2);
    check_cut(positions({0, 5}), 5, 1);
    std::vector<Index> many{0};
    for (Index i = 0; i < 20; ++i) many.push_back(many.back() + i % 3);
    check_cut(positions(IndexList(many.data(), 21)), many.back(), 20);
}

TEST_CASE("one part holds everything, whatever the rule") {
    check_cut(chunk, 13, 1);
    check_cut(balanced, 13, 1);
    check_cut(cyclic(4), 13, 1);
    check_cut(positions({0, 13}), 13, 1);
}

TEST_CASE("parts come in two lengths: so many as the first, then as the last") {
    for (SplitRule const& rule : {chunk, balanced}) {
        for (Index extent = 1; extent < 40; ++extent) {
            for (Index parts = 1; parts < 12; ++parts) {
                for (Index i = 0; i < parts; ++i) {
                    if (detail::part(rule, extent, parts, i).empty()) break;
                    Index const as_first = detail::parts_as_first(rule, extent, parts, i);
                    for (Index k = 0; k < i; ++k) {
                        Index const like = detail::part(rule, extent, parts, k < as_first ? 0 : parts - 1).size();
                        REQUIRE(detail::part(rule, extent, parts, k).size() == like);
                    }
                }
            }
        }
    }
}

TEST_CASE("an element near 2^63 is found without a sum beyond it") {
    static constexpr SplitRule rule{SplitKind::cyclic, Index{1} << 60, {}};
    constexpr IndexSet set(Interval{0, INT64_MAX}, rule, 2, 1);
    static_assert(set.global_index(set.size() - 1) == INT64_MAX - 1);
    static_assert(set.local_index(INT64_MAX - 1) == set.size() - 1);
}

TEST_CASE("the notation tells kinds of rules apart") {
    for (int a = 1; a < split_count; ++a) {
        for (int b = 0; b < split_count; ++b) {
            std::string_view const first = symbol(static_cast<SplitKind>(a));
            std::string_view const other = symbol(static_cast<SplitKind>(b));
            if (a != b) CHECK(other.substr(0, first.size()) != first);
        }
    }
}
