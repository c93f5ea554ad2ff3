// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/leaving_rule.hpp: a wrong hash size is refused before it evicts half of a table,
// and the sizes that fit are said.
#include <reshard/mch/detail/leaving_rule.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/mch/row_moves.hpp>

#include <mch/support/saved.hpp>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::TempFolder;
namespace torchrec = reshard::test::torchrec;

/// What ranks say that carry a world of one hash size as if it had another.
std::vector<std::string> carried(World const& saved, Id count, Index hash_size, MchOptions const& options = {}) {
    World loaded = loaded_by_position(saved, count);
    auto const before = buffers(loaded);
    MchTable from = table_of(saved);
    MchTable to = table_of(loaded);
    from.hash_size = to.hash_size = hash_size;
    std::vector<std::string> errors(loaded.ranks.size());
    run_on_threads(static_cast<int>(count), [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        MchState const state = state_of(loaded.ranks[r]);
        errors[r] =
            checkpoint_test::caught([&] { static_cast<void>(redistribute(from, to, state, comm, options)); }).message;
    });
    for (std::string const& error : errors) CHECK(error == errors[0]);
    if (!errors[0].empty()) CHECK(buffers(loaded) == before);
    return errors;
}
/// Whether a text names a range of hash sizes with that one in it.
bool fits(std::string const& text, Index hash_size) {
    long long least = 0;
    long long most = -1;
    if (auto const at = text.find("up to "); at != std::string::npos) {
        if (std::sscanf(text.c_str() + at, "up to %lld", &most) == 1 && hash_size <= most) return true;
    }
    auto const at = text.find("from ", text.find("hash sizes"));
    if (at == std::string::npos || std::sscanf(text.c_str() + at, "from %lld to %lld", &least, &most) != 2)
        return false;
    return least <= hash_size && hash_size <= most;
}

}  // namespace

TEST_SUITE("mch/leaving_rule") {
    TEST_CASE("a wrong hash size is refused with the first id, on all ranks, and the sizes that would fit") {
        World const whole = trained(5, 300, 2, Policy::lfu, torchrec::Kind::hash63, 0.8);
        World const hashed = trained(6, 300, 3, Policy::lru, torchrec::Kind::low, 0.3, 16, 100'000);
        struct Case {
            World const& world;
            Index wrong;
        };
        for (Case const& one : {Case{whole, 1000}, Case{whole, INT64_MAX / 3}, Case{hashed, INT64_MAX},
                                Case{hashed, 50'000}, Case{hashed, 1}}) {
            CAPTURE(one.wrong);
            for (Id count : {1, 2, 4}) {
                CAPTURE(count);
                std::string const error = carried(one.world, count, one.wrong)[0];
                CAPTURE(error);
                CHECK(contains(error, "table 'user': position "));
                CHECK(contains(error, errors::concat("but with hash size ", one.wrong, " it was looked up on rank ")));
                CHECK(contains(error, "Fix: give the hash size and the hash function that the table was trained with"));
                CHECK(fits(error, one.world.hash_size));
                CHECK(carried(one.world, count, one.world.hash_size)[0].empty());
            }
        }
    }

    TEST_CASE("what does not follow the routes is not refused, nor what is said to have strays") {
        World const saved = trained(5, 300, 2, Policy::lfu, torchrec::Kind::hash63, 0.8);
        CHECK(carried(saved, 4, 7, {.mode = MchMode::slot_owner, .drop_unreachable = false})[0].empty());
        CHECK(contains(carried(saved, 4, 7, {.mode = MchMode::slot_owner})[0], "it was looked up on rank"));
        CHECK(carried(saved, 4, 7, {.accept_strays = true})[0].empty());
        CHECK(carried(trained(5, 300, 1, Policy::lfu), 4, 7)[0].empty());  // one rank had all ids
    }

    TEST_CASE("ranks that read for themselves refuse it too, and know the bounds of all ids") {
        World saved = trained(5, 300, 3, Policy::lfu, torchrec::Kind::hash63, 0.8);
        TempFolder const folder;
        MchTable table = table_of(saved);
        table.hash_size = 5000;
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            save(folder.path(), MchTableToSave{table, state_of(saved.ranks[static_cast<std::size_t>(comm.rank())])},
                 comm);
        });
        World loaded = fresh_like(saved, 2);
        auto const before = buffers(loaded);
        MchTable current = table_of(loaded);
        current.hash_size = 5000;
        auto const load = [&](MchOptions const& options) {
            return checkpoint_test::caught([&] {
                       static_cast<void>(
                           MchCheckpoint::open(folder.path())
                               .load_redistributed("user", current, 0, state_of(loaded.ranks[0]), {}, options));
                   })
                .message;
        };
        std::string const error = load({});
        CAPTURE(error);
        CHECK(contains(error, "of the bounds of all saved ids, hash sizes from "));
        CHECK(fits(error, INT64_MAX));
        CHECK_FALSE(fits(error, INT64_MAX / 2));
        CHECK(buffers(loaded) == before);
        CHECK(load({.accept_strays = true}).empty());
    }

    TEST_CASE("law: the sizes that are said to fit hold the one that the ids were looked up by") {
        std::mt19937_64 random(11);
        auto const below = [&](std::uint64_t end) { return static_cast<Index>(random() % end); };
        int found = 0;
        for (int round = 0; round < 500; ++round) {
            CAPTURE(round);
            MchTable table = mch_table("t", Mesh{static_cast<int>(2 + below(5))}, 100, MchEviction::lfu);
            table.buckets *= 1 + below(3);
            table.hash_size = 1 + below(round % 2 == 0 ? 5000 : std::uint64_t{INT64_MAX});
            Router const router(table);
            detail::MchHashSizes sizes(table);
            bool const beyond = round % 3 == 0;  // all ids are dealt out; else all are counted off, but negative ones
            for (int i = 0; i < 50; ++i) {
                Index id = below(static_cast<std::uint64_t>(table.hash_size));
                if (beyond) id = INT64_MAX - below(1000);
                if (i % 10 == 0) id = -1 - below(1000);
                sizes.add(id, router.part_of_id(id));
            }
            if (beyond && table.hash_size > INT64_MAX / 2) continue;
            CAPTURE(sizes.text());
            CHECK(fits(sizes.text(), table.hash_size));
            ++found;
        }
        CHECK(found > 300);
        {
            MchTable const table = mch_table("t", Mesh{2}, 100, MchEviction::lfu);
            detail::MchHashSizes sizes(table);
            sizes.add(10, 1);
            sizes.add(11, 0);
            sizes.add(13, 0);
            CHECK(contains(sizes.text(), "no hash size was found"));
        }
    }

    TEST_CASE("rows that were saved are given, or said to be left; moves have rows to move") {
        World saved = trained(5, 90, 2, Policy::lfu);
        TempFolder const folder;
        save_world(folder.path(), saved);
        World loaded = fresh_like(saved, 3);
        MchTable const table = table_of(loaded);
        Rows rows(loaded.ranks[0]);
        auto const load = [&](std::vector<MchRows> const& given, MchLoadOptions const& options) {
            return checkpoint_test::caught([&] {
                       static_cast<void>(
                           MchCheckpoint::open(folder.path())
                               .load_redistributed("user", table, 0, state_of(loaded.ranks[0]), given, {}, options));
                   })
                .message;
        };
        auto const before = buffers(loaded);
        std::vector<MchRows> const weights{rows.views()[0]};
        std::string const error = load(weights, {});
        CHECK(contains(error, "table 'user': on rank 0: rows 'momentum' were saved with 'user' and are not given"));
        CHECK(contains(error, "Fix: give them, or name them in MchLoadOptions::leave_rows."));
        CHECK(contains(load({}, {.leave_rows = {"momentum"}}), "rows 'weights' were saved"));
        CHECK(contains(load(rows.views(), {.leave_rows = {"typo"}}),
                       "rows 'typo' are to be left, but 'user' was saved without them. Fix: leave them out"));
        CHECK(buffers(loaded) == before);
        CHECK(load(weights, {.leave_rows = {"momentum"}}).empty());
        CHECK(load({}, {.leave_rows = {"momentum", "weights"}}).empty());

        SelfCommunicator self;
        MchTable const alone = mch_table("t", Mesh{1}, 10, MchEviction::lfu);
        std::vector<MchRowMove> const moves{{1, 2}};
        CHECK(contains(checkpoint_test::caught([&] {
                           apply_row_moves(moves, alone, std::span<DynamicView const>(), self);
                       }).message,
                       "1 moves and no rows to move. Fix: "));
        apply_row_moves({}, alone, std::span<DynamicView const>(), self);
    }
}
