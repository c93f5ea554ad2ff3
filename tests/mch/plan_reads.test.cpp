// SPDX-License-Identifier: Apache-2.0
// Mirrors plan_reads() of include/reshard/mch/reach.hpp: against every id of simulated worlds, asked one by one.
#include <reshard/mch/reach.hpp>

#include <doctest/doctest.h>

#include <mch/support/state.hpp>

#include <algorithm>
#include <set>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
namespace torchrec = reshard::test::torchrec;

std::vector<MchIdBounds> bounds_of(World& world) {
    std::vector<MchIdBounds> list;
    MchTable const table = table_of(world);
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
        list.push_back(id_bounds(table, shard_of(table, state_of(world.ranks[r]), static_cast<Index>(r))));
    }
    return list;
}
/// Ids from 0 on, counted off in blocks: as many shards, one id at each end of the block.
std::vector<MchIdBounds> bounds_of(Index parts, Index hash_size) {
    Index const block = detail::ceil_div(hash_size, parts);
    std::vector<MchIdBounds> list;
    for (Index p = 0; p < parts; ++p)
        list.push_back({2, p * block, detail::smaller(hash_size - p * block, block) - 1 + p * block, 0});
    return list;
}
std::set<Index> parts(std::vector<MchRead> const& reads) {
    std::set<Index> list;
    for (MchRead const& read : reads) list.insert(read.part);
    return list;
}

/// Saved shards with at least one entry for that rank of `current`.
std::set<Index> needed(World const& saved, World const& current, std::size_t rank, MchMode mode) {
    std::set<Index> list;
    for (std::size_t part = 0; part < saved.ranks.size(); ++part) {
        Module const& module = saved.ranks[part];
        for (std::size_t i = 0; i < module.raw.size(); ++i) {
            if (module.raw[i] == no_id) continue;
            Module const& mine = current.ranks[rank];
            bool const owns = mine.o <= module.mapping[i] && module.mapping[i] < mine.o + mine.z;
            bool const looks = current.rank_of(module.raw[i]) == rank;
            if (mode == MchMode::route ? looks : owns) list.insert(static_cast<Index>(part));
        }
    }
    return list;
}

}  // namespace

TEST_SUITE("mch/plan_reads") {
    TEST_CASE("law: whoever holds something for a rank is read, by any mode, ids and change of ranks") {
        for (std::uint64_t seed = 1; seed <= 60; ++seed) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            auto const pick = picker(random);
            auto const kind = pick(torchrec::Kind::low, torchrec::Kind::hash63, torchrec::Kind::any);
            Id const hash = pick(INT64_MAX, Id{1000}, Id{100'000}, Id{1} << 40);
            World saved = trained(seed, pick(Id{10}, Id{97}, Id{600}), pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{8}),
                                  Policy::lfu, kind, pick(0.05, 0.5, 1.2), 12, hash);
            World const current(saved.slots, pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{6}, Id{16}), saved.policy, hash);
            MchTable const from = table_of(saved);
            MchTable const to = table_of(current);
            for (std::size_t rank = 0; rank < current.ranks.size(); ++rank) {
                for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
                    auto const r = static_cast<Index>(rank);
                    std::set<Index> const wanted = needed(saved, current, rank, mode);
                    std::set<Index> const known = parts(plan_reads(from, to, r, mode, bounds_of(saved)));
                    CHECK(std::includes(known.begin(), known.end(), wanted.begin(), wanted.end()));
                    for (MchRead const& read : plan_reads(from, to, r, mode, bounds_of(saved))) {
                        CHECK((read.begin == 0 && read.end == from.part_range(read.part).size()));
                    }
                }
            }
        }
    }

    TEST_CASE("route: ids counted off in blocks are read by at most ceil(W / Ws) + 1 ranks, others by all") {
        for (Index from : {1, 2, 3, 4, 7, 64}) {
            for (Index to : {1, 2, 3, 4, 6, 255}) {
                CAPTURE(from);
                CAPTURE(to);
                MchTable const saved = mch_table("user", Mesh{from}, 100'000, MchEviction::lfu);
                MchTable const current = mch_table("user", Mesh{to}, 100'000, MchEviction::lfu);
                std::vector<Index> readers(static_cast<std::size_t>(from));
                std::vector<MchIdBounds> bounds = bounds_of(from, INT64_MAX);
                Index all = 0;
                for (Index rank = 0; rank < to; ++rank) {
                    auto const reads = plan_reads(saved, current, rank, MchMode::route, bounds);
                    CHECK(!reads.empty());
                    for (MchRead const& read : reads) ++readers[static_cast<std::size_t>(read.part)];
                }
                for (MchIdBounds& one : bounds) one.negative = 1;
                for (Index rank = 0; rank < to; ++rank) {
                    all += static_cast<Index>(plan_reads(saved, current, rank, MchMode::route, bounds).size());
                }
                for (Index count : readers) CHECK((1 <= count && count <= (to + from - 1) / from + 1));
                CHECK(all == from * to);
            }
        }
    }

    TEST_CASE("route: ids above the hash size are dealt out to all, and shards without ids are nobody's") {
        MchTable saved = mch_table("user", Mesh{4}, 100, MchEviction::lfu);
        saved.hash_size = 1000;
        auto const count = [&](Index rank, std::vector<MchIdBounds> const& bounds) {
            return plan_reads(saved, saved, rank, MchMode::route, bounds).size();
        };
        CHECK(count(1, bounds_of(4, 1000)) == 1);
        std::vector<MchIdBounds> above = bounds_of(4, 1000);
        for (MchIdBounds& one : above) one.highest = 1000;
        CHECK(count(1, above) == 4);
        CHECK(count(1, std::vector<MchIdBounds>(4)) == 0);
    }

    TEST_CASE("slot_owner: only shards whose slots meet the rank's; empty ones and ranks without slots read nothing") {
        MchTable const saved = mch_table("user", Mesh{4}, 378801, MchEviction::lfu);
        MchTable const two = mch_table("user", Mesh{2}, 378801, MchEviction::lfu);
        MchTable const many = mch_table("user", Mesh{8}, 378801, MchEviction::lfu);
        std::vector<MchIdBounds> bounds = bounds_of(4, INT64_MAX);
        CHECK(plan_reads(saved, two, 0, MchMode::slot_owner, bounds) ==
              std::vector<MchRead>{{0, 0, 94701}, {1, 0, 94701}});
        CHECK(plan_reads(saved, two, 1, MchMode::slot_owner, bounds) ==
              std::vector<MchRead>{{1, 0, 94701}, {2, 0, 94701}, {3, 0, 94698}});
        CHECK(plan_reads(saved, many, 1, MchMode::slot_owner, bounds).size() ==
              2);  // slot 94701, its last, is of shard 1
        CHECK(plan_reads(saved, many, 9, MchMode::slot_owner, bounds).empty());
        bounds.assign(4, {});
        bounds[3].live = 1;
        CHECK(plan_reads(saved, two, 1, MchMode::slot_owner, bounds) == std::vector<MchRead>{{3, 0, 94698}});
    }

    TEST_CASE("bucketed tables: the rank's own slots, where they lie") {
        BucketWorld const item(48, 6, {0, 16, 48});
        BucketWorld const other(48, 6, {0, 8, 24, 48});
        for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
            CHECK(plan_reads(table_of(item), table_of(other), 1, mode, std::vector<MchIdBounds>(2)) ==
                  std::vector<MchRead>{{0, 8, 16}, {1, 0, 8}});
        }
    }

    TEST_CASE("bounds of another table, and tables that are not the same, are refused") {
        MchTable const saved = mch_table("user", Mesh{4}, 100, MchEviction::lfu);
        MchTable const current = mch_table("user", Mesh{2}, 101, MchEviction::lfu);
        std::vector<MchIdBounds> const four = bounds_of(4, INT64_MAX);
        CHECK_THROWS_AS(static_cast<void>(plan_reads(saved, current, 0, MchMode::slot_owner, four)), MismatchError);
        CHECK(plan_reads(saved, current, 0, MchMode::route, four) ==
              plan_reads(saved, saved.on(current.on(mch_slots(Mesh{2}, 100)).slots), 0, MchMode::route,
                         four));  // ids alone
        MchTable other = current;
        other.hash_size = 7;
        CHECK_THROWS_AS(static_cast<void>(plan_reads(saved, other, 0, MchMode::route, four)), MismatchError);
        std::vector<MchIdBounds> const bounds(3);
        CHECK_THROWS_AS(static_cast<void>(plan_reads(saved, saved, 0, MchMode::route, bounds)), MismatchError);
    }
}
