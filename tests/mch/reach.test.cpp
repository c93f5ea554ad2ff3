// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/reach.hpp.
#include <reshard/mch/reach.hpp>

#include <doctest/doctest.h>

#include <mch/support/state.hpp>
#include <support/fake_cuda.hpp>
#include <support/random.hpp>

#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace {
using namespace reshard;
namespace sim = test::torchrec;

Reach reach_of(sim::World& world) {
    MchTable const table = sim::table_of(world);
    Reach all;
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
        all = all + reach(table, sim::state_of(world.ranks[r]), static_cast<Index>(r));
    }
    return all;
}
double percent(Reach const& reach) {
    return 100.0 * static_cast<double>(reach.live - reach.unreachable) / static_cast<double>(reach.live);
}

TEST_CASE("a shard in device memory is refused, not read") {
    test::FakeCuda const cuda;
    if (!cuda.works()) return;
    sim::World world = sim::trained(7, 60, 2, sim::Policy::lfu, sim::Kind::low, 1.0);
    cuda.claim(world.ranks[1].raw.data(), 8);
    CHECK_THROWS_WITH_AS(static_cast<void>(reach(sim::table_of(world), sim::state_of(world.ranks[1]), 1)),
                         doctest::Contains("a buffer lies in device memory. Fix: "), BufferError);
}

TEST_CASE("a state that has trained for 64 eviction intervals is reachable, id by id") {
    for (sim::Policy policy : {sim::Policy::lfu, sim::Policy::lru, sim::Policy::distance_lfu}) {
        for (sim::Kind kind : {sim::Kind::low, sim::Kind::hash63, sim::Kind::any}) {
            sim::World world = sim::trained(7, 600, 3, policy, kind, 2.0);
            CHECK(reach_of(world).unreachable == 0);
            auto const live = world.live();
            CHECK(reach_of(world).live == static_cast<Index>(live.size()));
            for (auto const& [id, slot] : live) CHECK(world.look_up(id) == slot);
            CHECK(world.look_up(sim::no_id) == -1);
            // Full, but for the miss row; small ids all go to rank 0.
            CHECK(live.size() == (kind == sim::Kind::low ? 199U : 597U));
        }
    }
}

TEST_CASE("rows that stay on the owner of their slot are mostly out of reach on other ranks") {
    struct Case {
        sim::Id from;
        sim::Id to;
        double percent;
    };
    std::map<sim::Id, sim::World> saved;
    for (Case const& one : {Case{1, 2, 50.0}, Case{2, 4, 50.0}, Case{1, 8, 12.5}, Case{6, 4, 250.0 / 3},
                            Case{4, 3, 700.0 / 9}, Case{4, 2, 100.0}}) {
        CAPTURE(one.from);
        CAPTURE(one.to);
        auto const found =
            saved.try_emplace(one.from, sim::trained(1, test::tries(24'000), one.from, sim::Policy::lfu)).first;
        sim::World const& before = found->second;
        sim::World after = before.by_slot_owner(one.to);
        Reach const now = reach_of(after);
        CHECK(now.live == static_cast<Index>(before.live().size()));
        CHECK(std::abs(percent(now) - one.percent) < (test::fewer_seeds() ? 3.0 : 1.0));

        // The same, asked of the saved state: whether the owner of the slot is who looks the id up.
        Router const router(sim::table_of(after));
        Index reachable = 0;
        for (auto const& [id, slot] : before.live()) {
            reachable += router.part_of_id(id) == router.part_of_slot(slot) ? 1 : 0;
        }
        CHECK(reachable == now.live - now.unreachable);
        // And of the look-up that shares no code with the library.
        Index hits = 0;
        for (auto const& [id, slot] : before.live()) hits += after.look_up(id) == slot ? 1 : 0;
        CHECK(hits == reachable);
    }
}

TEST_CASE("within one eviction interval slots follow ids, which hides the loss") {
    sim::World before(24'000, 1, sim::Policy::lfu);
    std::mt19937_64 random(1);
    sim::Ids batch(22'800);
    for (sim::Id& id : batch) id = sim::random_id(random, sim::Kind::hash63);
    before.train(batch);
    before.evict();
    sim::World halves = before.by_slot_owner(2);
    CHECK(std::abs(percent(reach_of(halves)) - 97.0) < 1.0);
    sim::World eighths = before.by_slot_owner(8);
    CHECK(std::abs(percent(reach_of(eighths)) - 82.0) < 1.0);
}

TEST_CASE("negative ids are dealt out by remainder, so that even halving the ranks loses some") {
    sim::World const before = sim::trained(3, 4'000, 4, sim::Policy::lfu, sim::Kind::any);
    sim::World after = before.by_slot_owner(2);
    double const share = percent(reach_of(after));
    CHECK(share > 70.0);
    CHECK(share < 80.0);
}

TEST_CASE("positions may be kept when every boundary is a saved one, which no divisibility says") {
    auto const table = [](Index slots, Index ranks) { return mch_table("user", Mesh{ranks}, slots, MchEviction::lfu); };
    CHECK(position_ok(table(12, 4), table(12, 2)));
    CHECK(position_ok(table(12, 4), table(12, 4)));
    CHECK_FALSE(position_ok(table(12, 2), table(12, 4)));
    CHECK_FALSE(position_ok(table(378801, 4), table(378801, 2)));
    CHECK(position_ok(table(10, 8), table(10, 5)));  // trailing shards are empty
    MchTable cut = table(10, 3);
    cut.slots = mch_slots(Mesh{3}, IndexList{0, 4, 6, 10});
    CHECK(position_ok(cut, table(10, 1)));
    CHECK_FALSE(position_ok(cut, table(10, 2)));
    CHECK_THROWS_AS(static_cast<void>(position_ok(table(10, 2), table(12, 2))), MismatchError);

    // Every pair, against sets.
    int unsafe = 0;
    int pairs = 0;
    for (Index slots : {5, 10, 12, 100, 1000, 378801}) {
        for (Index saved = 1; saved <= 16; ++saved) {
            for (Index current = 1; current <= 16; ++current) {
                std::vector<Index> const a = table(slots, saved).offsets();
                std::vector<Index> const b = table(slots, current).offsets();
                std::set<Index> const has(a.begin(), a.end());
                bool inside = true;
                for (Index offset : b) inside = inside && has.count(offset) == 1;
                CAPTURE(slots);
                CAPTURE(saved);
                CAPTURE(current);
                CHECK(position_ok(table(slots, saved), table(slots, current)) == inside);
                if (saved % current != 0) continue;
                ++pairs;
                unsafe += inside ? 0 : 1;
            }
        }
    }
    CHECK(unsafe > pairs / 10);
}

TEST_CASE("a bucketed table is reachable however its buckets are cut") {
    for (sim::Kind kind : {sim::Kind::low, sim::Kind::hash63, sim::Kind::any}) {
        sim::BucketWorld world(96, 12, {0, 24, 48, 72, 96}, kind == sim::Kind::low ? 50'000 : INT64_MAX);
        std::mt19937_64 random(5);
        sim::Ids ids;
        for (std::int32_t hour = 0; hour < 80; ++hour) {
            ids.push_back(sim::random_id(random, kind));
            world.admit(ids.back(), hour);
        }
        for (sim::Ids const& cut : {sim::Ids{0, 24, 48, 72, 96}, sim::Ids{0, 32, 64, 96}, sim::Ids{0, 96},
                                    sim::Ids{0, 8, 8, 80, 96}, sim::Ids{0, 88, 96}}) {
            sim::BucketWorld other = world.cut_at(cut);
            MchTable const table = sim::table_of(other);
            CHECK(position_ok(table, sim::table_of(world)) == (cut.size() == 5 && cut[1] == 24));
            Reach all;
            for (std::size_t r = 0; r + 1 < cut.size(); ++r) {
                all = all + reach(table, sim::state_of(other, r), static_cast<Index>(r));
            }
            CHECK(all.unreachable == 0);
            CHECK(all.live > 50);
            Index hits = 0;
            for (sim::Id id : std::set<sim::Id>(ids.begin(), ids.end())) {
                CHECK(other.look_up(id) == world.look_up(id));
                hits += other.look_up(id) >= 0 ? 1 : 0;
            }
            CHECK(hits == all.live);
        }
    }
}

TEST_CASE("an id of a hash table is out of reach in another bucket than its own, also on the rank that looks it up") {
    for (sim::Id hash_size : {sim::Id{0}, sim::Id{12}, INT64_MAX}) {
        sim::BucketWorld world(12, 4, {0, 6, 6, 12}, hash_size);
        std::mt19937_64 random(3);
        Index live = 0;
        Index lost = 0;
        for (sim::Id slot = 0; slot < 12; ++slot) {
            if (slot % 3 == 2) continue;
            sim::Id const id = sim::random_id(random, sim::Kind::any);
            world.identities[slot < 6 ? 0U : 2U][static_cast<std::size_t>(slot % 6)] = id;
            ++live;
            lost += world.bucket_of(id) != slot / 3 ? 1 : 0;
        }
        REQUIRE(lost > 0);
        Reach all;
        for (std::size_t r = 0; r < 3; ++r)
            all = all + reach(sim::table_of(world), sim::state_of(world, r), static_cast<Index>(r));
        CHECK(all == Reach{live, lost});
    }
    sim::BucketWorld world(12, 4, {0, 12}, 0);
    world.identities[0] = {1, -1, -1, 8, 5, -1, -1, -1, -1, 3, -1, -1};  // by remainder: 5 and 3 are where they belong
    CHECK(reach(sim::table_of(world), sim::state_of(world, 0), 0) == Reach{4, 2});
}

TEST_CASE("an id counts as out of reach when another part looks it up, wherever the ranks are") {
    MchTable table = mch_table("user", Mesh{2}.on({0, {7, 3}}), 8, MchEviction::none);
    table.hash_size = 100;
    sim::Ids ids{-1, 10, 60, sim::no_id};  // 2^64 - 1 is odd: part 1
    sim::Ids slots{0, 1, 2, 3};
    sim::Ids segments{0, 4, 8};
    sim::Ids iteration{0};
    MchState state;
    state.ids = sim::view_of(ids);
    state.slots = sim::view_of(slots);
    state.segments = sim::view_of(segments);
    state.iteration = sim::view_of(iteration);
    CHECK(reach(table, state, 7) == Reach{3, 2});
    CHECK(reach(table, state, 3) == Reach{3, 1});
    CHECK_FALSE(reach_ok(table, state, 3));
    CHECK(reach(table, MchState{}, 5) == Reach{0, 0});
    CHECK(reach_ok(table, MchState{}, 5));
    CHECK_THROWS_AS(static_cast<void>(reach(table, MchState{}, 3)), BufferError);
}

}  // namespace
