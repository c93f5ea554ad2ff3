// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/segments.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <limits>
#include <vector>

using namespace reshard;

namespace {

constexpr Index huge = std::numeric_limits<Index>::max();

constexpr IndexSet blocks(Interval span, Index block, Index parts, Index i) {
    return IndexSet(span, SplitRule{SplitKind::cyclic, block, {}}, parts, i);
}

/// The families, as a list.
std::vector<detail::Segments> shared(IndexSet const& a, IndexSet const& b) {
    std::vector<detail::Segments> list;
    detail::for_each_shared(a, b, [&](detail::Segments const& segments) { list.push_back(segments); });
    return list;
}

/// All elements of a family, one by one.
void list_elements(detail::Segments const& segments, std::vector<Index>& elements) {
    for (Index i = 0; i < segments.outer.count; ++i)
        for (Index j = 0; j < segments.inner.count; ++j)
            for (Index k = 0; k < segments.first.size(); ++k) {
                elements.push_back(segments.first.begin + i * segments.outer.pitch + j * segments.inner.pitch + k);
            }
}

/// An interval, or a block-cyclic or strided set, somewhere in [0, 120).
IndexSet random_set(test::Random& random) {
    Index const begin = random.between(0, 40);
    Interval const span{begin, begin + random.between(0, 80)};
    if (random.chance(25)) return IndexSet(span);
    Index const parts = random.between(1, random.chance(10) ? 90 : 5);
    SplitKind const kind = random.chance(50) ? SplitKind::strided : SplitKind::cyclic;
    SplitRule const rule{kind, random.between(1, random.chance(20) ? 90 : 9), {}};
    return IndexSet(span, rule, parts, random.between(0, parts - 1));
}

static_assert(detail::shared_size(IndexSet({0, 10}), IndexSet({5, 20})) == 5);
static_assert(detail::shared_size(blocks({0, 4096}, 64, 2, 0), blocks({0, 4096}, 256, 2, 1)) == 1024);
static_assert(detail::shared_size(blocks({0, huge}, 1, 2, 0), blocks({0, huge}, 3, 2, 1)) == huge / 6);
static_assert(detail::shared_size(blocks({0, huge}, huge / 2, 2, 0), blocks({0, huge}, huge / 2 - 1, 2, 1)) == 1,
              "the common period does not fit 64 bits");
static_assert(detail::shared_size(blocks({5, huge}, huge, 3, 0), blocks({0, huge}, huge, 3, 1)) == 0);
static_assert(blocks({5, huge}, huge, 3, 0).segment(0) == Interval{5, huge}, "no overflow");

}  // namespace

TEST_SUITE("algebra/segments") {
    TEST_CASE("two intervals share an interval") {
        CHECK(shared(IndexSet({0, 10}), IndexSet({5, 20})) == std::vector{detail::Segments{{5, 10}}});
        CHECK(shared(IndexSet({0, 5}), IndexSet({5, 20})).empty());
        CHECK(shared(IndexSet(), IndexSet({0, 9})).empty());
    }

    TEST_CASE("blocks of 64 and of 256 on two parts share pairs of 64") {
        auto const both = shared(blocks({0, 4096}, 64, 2, 1), blocks({0, 4096}, 256, 2, 0));
        CHECK(both == std::vector{detail::Segments{{64, 128}, {512, 8}, {128, 2}}});
        CHECK(both[0].size() == 1024);
        CHECK(both[0].levels() == 2);
    }

    TEST_CASE("an interval cuts the first and the last block") {
        // Blocks of 10 at 0, 20, 40, 60, 80 within [0, 100).
        auto const both = shared(blocks({0, 100}, 10, 2, 0), IndexSet({5, 65}));
        CHECK(both == std::vector{detail::Segments{{5, 10}}, detail::Segments{{60, 65}},
                                  detail::Segments{{20, 30}, {20, 2}, {}}});
        CHECK(shared(blocks({0, 100}, 10, 2, 0), IndexSet({20, 70})) ==
              std::vector{detail::Segments{{20, 30}, {20, 3}, {}}});
    }

    TEST_CASE("a last piece that is cut at other places is a family of its own") {
        SplitRule const four{SplitKind::strided, 4, {}};  // pieces of 6, 6, 6, 3; halves of 3, of the last 2 and 1
        auto const both = shared(IndexSet({0, 21}, four, 2, 1), IndexSet({0, 21}));
        CHECK(both == std::vector{detail::Segments{{3, 6}, {6, 3}, {}}, detail::Segments{{20, 21}}});
    }

    TEST_CASE("the number of families does not grow with the extent") {
        for (Index extent : {4096, 40960, 409600, 1 << 30}) {
            CHECK(shared(blocks({0, extent}, 64, 2, 0), blocks({0, extent}, 256, 2, 1)).size() == 1);
            CHECK(shared(blocks({0, extent + 77}, 64, 2, 0), blocks({0, extent + 77}, 256, 2, 1)).size() <= 3);
            CHECK(shared(blocks({0, extent}, 7, 2, 0), blocks({0, extent}, 5, 3, 1)).size() <= 15);
        }
    }

    TEST_CASE("random sets: every shared element once, the same families from both sides, within their blocks") {
        for (std::uint64_t seed : test::seeds(20000)) {
            test::Random random(seed);
            IndexSet const a = random_set(random);
            IndexSet const b = random_set(random);
            CAPTURE(seed);
            auto const both = shared(a, b);
            REQUIRE(both == shared(b, a));
            std::vector<Index> found;
            for (detail::Segments const& segments : both) {
                list_elements(segments, found);
                REQUIRE(segments.first.size() > 0);
                REQUIRE((segments.outer.count == 1) == (segments.outer.pitch == 0));
                // Regular in the memory of both sides, too.
                for (IndexSet const& set : {a, b}) {
                    Index const origin = set.local_index(segments.first.begin);
                    Index const across = set.local_index(segments.first.begin + segments.outer.pitch) - origin;
                    Index const along = set.local_index(segments.first.begin + segments.inner.pitch) - origin;
                    for (Index i = 0; i < segments.outer.count; ++i)
                        for (Index j = 0; j < segments.inner.count; ++j)
                            for (Index k = 0; k < segments.first.size(); ++k) {
                                Index const position =
                                    segments.first.begin + i * segments.outer.pitch + j * segments.inner.pitch + k;
                                REQUIRE(set.local_index(position) == origin + i * across + j * along + k);
                            }
                }
            }
            std::sort(found.begin(), found.end());
            std::vector<Index> wanted;
            for (Index i = 0; i < 130; ++i)
                if (a.contains(i) && b.contains(i)) wanted.push_back(i);
            REQUIRE(found == wanted);
        }
    }
}
