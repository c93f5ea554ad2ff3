// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/detail/own_entries.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace reshard;
using namespace reshard::test;

namespace {

using reshard::detail::ascend_with_one_sign;
using reshard::detail::MchDestination;
using reshard::detail::MchOwnEntries;
using reshard::detail::MchOwnRun;

/// A shard of which some entries stay, cut into runs, with room for others between those.
struct Case {
    std::vector<MchDestination> parts;
    MchOwnEntries own;
    std::vector<Index> to;  ///< of every position that stays, else -1
};

template <class Random>
Case random_case(Random& random, Index entries) {
    Case made;
    made.own.part = 3;
    Index const kind = random.between(0, 3);  // few stay, half, nearly all, or whole runs
    bool staying = false;
    for (Index i = 0; i < entries; ++i) {
        if (kind != 3 || random.between(0, 9) == 0)
            staying = random.between(0, 9) < (kind == 0 ? 1 : kind == 2 ? 9 : 5);
        made.parts.push_back(staying ? MchDestination{3} : static_cast<MchDestination>(random.between(0, 2)));
    }
    made.own.parts = made.parts.data();
    for (Index begin = 0; begin < entries;) {
        Index const stop = std::min(entries, begin + random.between(1, 20));
        MchOwnRun one;
        for (Index i = begin; i < stop; ++i) {
            if (made.own.stays(i) == 0) continue;
            if (one.count++ == 0) one.begin = i;
            one.end = i + 1;
        }
        if (one.count != 0) made.own.runs.push_back(one);
        made.own.count += one.count;
        begin = stop;
    }
    made.to.assign(static_cast<std::size_t>(entries), -1);
    Index others = entries - made.own.count;
    Index place = 0;
    for (MchOwnRun& one : made.own.runs) {
        Index const before = random.between(0, 3) == 0 ? random.between(0, others) : 0;
        others -= before;
        place += before;
        made.own.place(one, place);
        for (Index i = one.begin; i < one.end; ++i) {
            if (made.own.stays(i) != 0) made.to[static_cast<std::size_t>(i)] = place++;
        }
    }
    return made;
}

}  // namespace

TEST_CASE("own entries: what stays reaches its place, up, down or both, whatever lies around it") {
    std::uint64_t const seed = 20260611;
    CAPTURE(seed);
    Random random(seed);
    for (int round = 0; round < tries(3000); ++round) {
        CAPTURE(round);
        Index const entries = random.between(1, 120);
        Case const made = random_case(random, entries);
        for (Index width : {1, 2, 3, 4, 8, 16, 24}) {
            std::vector<std::byte> column(static_cast<std::size_t>(entries * width));
            for (std::byte& one : column) one = static_cast<std::byte>(random.between(0, 255));
            std::vector<std::byte> moved[5] = {column, column, column, column, column};
            made.own.move(moved[0].data(), width);
            if (width == 8) {
                std::byte* const words[] = {moved[1].data(), moved[2].data(), moved[3].data(), moved[4].data()};
                auto const count = static_cast<std::size_t>(random.between(1, 4));
                made.own.move_words({words, count});
                for (std::size_t c = count; c < 4; ++c) moved[c + 1] = moved[0];
            }
            bool right = true;
            for (Index i = 0; i < entries; ++i) {
                Index const to = made.to[static_cast<std::size_t>(i)];
                for (int copy = 0; copy < (width == 8 ? 5 : 1) && to >= 0; ++copy) {
                    right = right && std::equal(column.begin() + i * width, column.begin() + (i + 1) * width,
                                                moved[copy].begin() + to * width);
                }
            }
            CHECK(right);
        }
    }
}

TEST_CASE("own entries: ids that repeat, descend or change their sign are noticed, the largest and smallest too") {
    auto const ascend = [](std::vector<Index> const& ids) {
        return ascend_with_one_sign(ids.data(), static_cast<Index>(ids.size()));
    };
    CHECK(ascend({}));
    CHECK(ascend({INT64_MIN}));
    CHECK(ascend({0, 1, INT64_MAX - 1, INT64_MAX}));
    CHECK(ascend({INT64_MIN, INT64_MIN + 1, -2, -1}));
    CHECK(!ascend({0, 0}));
    CHECK(!ascend({1, 0}));
    CHECK(!ascend({-1, -1}));
    CHECK(!ascend({-1, INT64_MIN}));
    CHECK(!ascend({INT64_MAX, INT64_MAX}));
    CHECK(!ascend({INT64_MAX, 0}));
    CHECK(!ascend({-1, 0}));
    CHECK(!ascend({0, -1}));
    CHECK(!ascend({INT64_MIN, INT64_MAX}));
    CHECK(!ascend({1, 2, 3, 3, 4}));
}
