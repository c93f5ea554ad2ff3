// SPDX-License-Identifier: Apache-2.0
// That it writes what the merge would, tests/mch/redistribute.property.test.cpp shows; here, when it is used.
#include <reshard/mch/detail/succession.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

using namespace reshard;

namespace {

using reshard::detail::MchDestination;
using reshard::detail::MchOwnEntries;
using reshard::detail::MchSuccession;

/// Rank 1 of 2, of a table of 16 slots: it has slots 8 to 15. Ids 30, 32 and 34 stay on it, 31 and 33 leave.
struct RankOne {
    std::vector<Index> ids{30, 31, 32, 33, 34, INT64_MAX, INT64_MAX, INT64_MAX};
    std::vector<Index> slots{9, 1, 8, 2, 11, 10, 12, 15};
    std::vector<Index> counts{1, 2, 3, 4, 5, INT64_MAX, 7, -7};
    std::vector<Index> access{5, 9, 5, -1, 0, 9, 9, 9};
    std::vector<MchDestination> parts{1, 0, 1, 0, 1, 0xffff, 0xffff, 0xffff};
    std::vector<Index> arrived{40, 41, /* slots */ 3, 15, /* counts */ 8, 9, /* accesses */ 2, 5};
    std::vector<MchRowMove> moves;

    RankOne() {
        own.parts = parts.data();
        own.part = 1;
        own.count = 3;
        own.runs = {{0, 5, 3}};
    }
    RankOne(RankOne const&) = delete;
    RankOne& operator=(RankOne const&) = delete;
    ~RankOne() = default;

    [[nodiscard]] bool arrange(bool may_move = true, Index iteration = 5) {
        MchShard shard;
        shard.entries = 8;
        shard.offset = 8;
        shard.ids = ids.data();
        shard.slots = slots.data();
        shard.metadata = {reinterpret_cast<std::byte*>(counts.data()), reinterpret_cast<std::byte*>(access.data())};
        succession.emplace(table, shard, &own);
        if (!arrived.empty()) {
            succession->add(reinterpret_cast<std::byte const*>(arrived.data()), static_cast<Index>(arrived.size()) / 4);
        }
        return succession->arrange(may_move, iteration, moves);
    }

    MchTable table = mch_table("t", Mesh{2}, 16, MchEviction::distance_lfu);
    MchOwnEntries own;
    std::optional<MchSuccession> succession;
};

}  // namespace

TEST_CASE("succession: what stays is moved where it lies, what comes follows, and metadata of others do not matter") {
    for (int parts : {1, 2, 3, 8}) {
        RankOne shard;
        REQUIRE(shard.arrange());
        CHECK(shard.succession->kept() == 5);
        CHECK(shard.ids[1] == 31);  // nothing is written yet
        shard.succession->commit(parts);
        Index const none = INT64_MAX;
        CHECK(shard.ids == std::vector<Index>{30, 32, 34, 40, 41, none, none, none});
        CHECK(shard.slots == std::vector<Index>{9, 8, 11, 10, 12, 13, 14, 15});
        CHECK(shard.counts == std::vector<Index>{1, 3, 5, 8, 9, 0, 0, 0});
        CHECK(shard.access == std::vector<Index>{5, 5, 0, 2, 5, 0, 0, 0});
        CHECK(shard.moves == std::vector<MchRowMove>{{3, 10}, {15, 12}});
    }
}

TEST_CASE("succession: what comes first pushes what stays up") {
    RankOne shard;
    shard.arrived = {-7, 3, 8, 14, 1, 1, 1, 1};
    shard.slots = {9, 1, 13, 2, 11, 10, 12, 15};
    REQUIRE(shard.arrange(false));
    shard.succession->commit(1);
    CHECK(shard.ids == std::vector<Index>{-7, 3, 30, 32, 34, INT64_MAX, INT64_MAX, INT64_MAX});
    CHECK(shard.slots == std::vector<Index>{8, 14, 9, 13, 11, 10, 12, 15});
    CHECK(shard.moves.empty());
}

TEST_CASE("succession: whatever is out of the ordinary is left to the merge, and nothing is written") {
    auto const is_left = [](char const* what, auto const& change, bool may_move = true, Index iteration = 5) {
        CAPTURE(std::string(what));
        RankOne shard;
        change(shard);
        RankOne untouched;
        change(untouched);
        CHECK(!shard.arrange(may_move, iteration));
        CHECK(shard.ids == untouched.ids);
        CHECK(shard.slots == untouched.slots);
        CHECK(shard.counts == untouched.counts);
        CHECK(shard.access == untouched.access);
        CHECK(shard.moves.empty());
    };
    is_left("ids that lie among those that stay", [](RankOne& s) { s.arrived[0] = 33; });
    is_left("an id that is there already", [](RankOne& s) { s.arrived[0] = 34; });
    is_left("an id that comes twice", [](RankOne& s) { s.arrived[1] = 40; });
    is_left("ids in no runs", [](RankOne& s) { s.own.in_runs = false; });
    is_left("runs in another order than their ids", [](RankOne& s) {
        s.ids = {50, 51, 32, 33, 34, INT64_MAX, INT64_MAX, INT64_MAX};
        s.own.runs = {{0, 1, 1}, {2, 5, 2}};
    });
    is_left("more ids than there is room for", [](RankOne& s) {
        s.arrived.clear();
        for (Index c = 0; c < 4; ++c)
            for (Index i = 0; i < 5; ++i) s.arrived.push_back(c == 0 ? 40 + i : c == 1 ? 1 : 5);
    });
    is_left("a count below 0 that stays", [](RankOne& s) { s.counts[2] = -1; });
    is_left("a count below 0 that comes", [](RankOne& s) { s.arrived[4] = INT64_MIN; });
    is_left("a count that none surpasses, and stays", [](RankOne& s) { s.counts[4] = INT64_MAX; });
    is_left("a count that none surpasses, and comes", [](RankOne& s) { s.arrived[5] = INT64_MAX; });
    is_left("an access after the iteration that stays", [](RankOne& s) { s.access[0] = 6; });
    is_left("an access before all iterations that stays", [](RankOne& s) { s.access[0] = INT64_MIN; });
    is_left("an access after the iteration that comes", [](RankOne& s) { s.arrived[6] = INT64_MAX; });
    is_left("an access before all iterations that comes", [](RankOne& s) { s.arrived[6] = -1; });
    is_left(
        "an iteration below 0", [](RankOne&) {}, true, -1);
    is_left("a slot that two hold that stay", [](RankOne& s) { s.slots[2] = 9; });
    is_left("a slot that two hold, one of which comes", [](RankOne& s) { s.arrived[2] = 11; });
    is_left("the slot of misses, held twice", [](RankOne& s) { s.arrived[2] = 15; });
    is_left(
        "a slot of another shard, where slots stay", [](RankOne&) {}, false);
}
