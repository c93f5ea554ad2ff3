// SPDX-License-Identifier: Apache-2.0
// include/reshard/mch/checkpoint_save.hpp when a process dies at every call, or the power goes: dense weights and
// tables are of one step, whenever it does. What else may happen to a save: tests/checkpoint/save.faults.test.cpp, and
// readers that it overtakes.
#include <reshard/mch/checkpoint_save.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/file.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/comm/policy.hpp>
#include <reshard/mch/redistribute.hpp>

#include <checkpoint/power_support.hpp>
#include <mch/support/saved.hpp>
#include <support/random.hpp>

#include "../support/thrown.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using namespace checkpoint_test;

/// A world whose iteration says which step it is, and dense weights that do.
World world_of(Id step) {
    World world = trained(3, 30, 2, Policy::lfu);
    for (Module& module : world.ranks) module.iteration[0] = step;
    return world;
}
void save_step(std::string const& folder, Id step) {
    World world = world_of(step);
    MchTable const table = table_of(world);
    auto const d = distribution(Mesh{2}, Shape{8}, "S0");
    run_on_threads(2, [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        Rows rows(world.ranks[r]);
        std::vector<Index> weights(4, step);
        std::vector<LocalTensor> const dense{{"w", d, TensorView<Index>(weights.data(), Shape{4})}};
        std::vector<MchTableToSave> const tables{{table, state_of(world.ranks[r]), rows.views()}};
        save(folder, dense, tables, comm);
    });
}
/// The step that the folder holds whole; 0 when it holds none.
Index step_in(TempFolder const& folder) {
    if (!std::filesystem::exists(folder / "reshard.manifest.json")) return 0;
    MchCheckpoint files = MchCheckpoint::open(folder.path());
    World whole = fresh_like(world_of(1), 1);
    Index const step = files.load("user", table_of(whole), 0, state_of(whole.ranks[0])).iteration;
    std::vector<Index> weights(8);
    std::vector<LocalTensor> const wanted{
        {"w", distribution(Mesh{1}, Shape{8}, "R"), TensorView<Index>(weights.data(), Shape{8})}};
    load(Checkpoint::open(folder.path()), wanted, 0);
    for (Index const weight : weights) REQUIRE(weight == step);
    return step;
}

/// Threads that say when they agree.
class Agreeing : public PolicyBase<Agreeing, ThreadCommunicator> {
public:
    using PolicyBase::split;
    Agreeing(ThreadCommunicator inner, std::function<void(int)> const& before)
        : PolicyBase(std::move(inner)), before_(&before) {}
    transport::Verdict agree(transport::Verdict mine) {
        (*before_)(rank());
        return PolicyBase::agree(std::move(mine));
    }
    [[nodiscard]] Agreeing split(int colour, int key) { return {inner_.split(colour, key), *before_}; }

private:
    std::function<void(int)> const* before_;
};

/// A folder that two ranks open together while steps are committed between the first and the second.
class Overtaken {
public:
    Overtaken() { save_step(folder.path(), newest); }
    /// So many steps, one each time the ranks look; -1: always. What each rank threw.
    template <class Body>
    std::vector<test::Thrown> by(int saves, Body const& body) {
        std::atomic<bool> has_opened{false};  // rank 0, which agrees when it has
        std::function<void(int)> const before_agree = [&](int rank) {
            if (rank == 0) has_opened = true;
            if (rank == 1) counted = saves != 0;
        };
        before_open = [&](std::string_view path) {
            if (!counted || !path.ends_with("manifest.json")) return;
            while (!has_opened) std::this_thread::yield();
            has_opened = false;
            counted = false;
            --saves;
            save_step(folder.path(), ++newest);
        };
        auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& threads) {
            Agreeing comm(threads.split(0, threads.rank()), before_agree);
            counted = comm.rank() == 1 && saves != 0;
            body(comm);
        });
        before_open = {};
        return thrown;
    }

    TempFolder const folder;
    Id newest = 1;
};

}  // namespace

TEST_SUITE("mch/checkpoint_save faults") {
    TEST_CASE("a process that ends at any call leaves weights and tables of one step, and the next save tidies up") {
        for (Index const before : {0, 1}) {
            bool seen[3] = {};
            // Where fewer cases are tried, every third call is: beginning at another one each time.
            long const every = reshard::test::fewer_seeds() ? 3 : 1;
            long calls = every == 1 ? 0 : before;
            for (bool done = false; !done; calls += every) {
                CAPTURE(calls);
                TempFolder const folder;
                if (before != 0) save_step(folder.path(), before);
                done = !dies_at(calls, [&] { save_step(folder.path(), 2); });
                Index const step = step_in(folder);
                REQUIRE((step == before || step == 2));
                seen[step] = true;
                save_step(folder.path(), 3);
                CHECK(step_in(folder) == 3);
                CHECK(folder.leaves().size() == 3);
            }
            CHECK(calls > 20);
            CHECK(seen[before]);
            CHECK(seen[2]);
        }
    }

    TEST_CASE("a power cut at any call, whatever had not been synced: weights and tables of one step") {
        int const every = reshard::test::fewer_seeds() ? 7 : 1;
        for (Index const before : {0, 1}) {
            CAPTURE(before);
            TempFolder const folder;
            if (before != 0) save_step(folder.path(), before);
            PowerCuts const cuts(folder.path(), [&] { save_step(folder.path(), 2); });
            CHECK(cuts.calls() > 10);
            TempFolder const disk;
            bool seen[3] = {};
            int states = 0;
            cuts.for_each_state([&](DiskState const& state, bool returned) {
                if (states++ % every != 0 && !returned) return;
                put(disk, state);
                Index const step = step_in(disk);
                REQUIRE((step == 2 || (step == before && !returned)));  // what has returned is durable
                seen[step] = true;
                if (states % 40 != 1) return;
                save_step(disk.path(), 3);
                CHECK(step_in(disk) == 3);
                CHECK(disk.leaves().size() == 3);
            });
            CHECK(states > 30);
            CHECK(seen[before]);
            CHECK(seen[2]);
        }
    }

    TEST_CASE("who has opened a save that another one replaces is told, and opens the folder again") {
        TempFolder const folder;
        save_step(folder.path(), 1);
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        save_step(folder.path(), 2);
        World whole = fresh_like(world_of(1), 1);
        World const fresh = whole;
        check_io("a save into this folder has overtaken this reader",
                 [&] { static_cast<void>(files.load("user", table_of(whole), 0, state_of(whole.ranks[0]))); });
        CHECK(whole.ranks[0].raw == fresh.ranks[0].raw);
        CHECK(step_in(folder) == 2);
    }
    TEST_CASE("ranks that open a folder together have one save, whatever is committed between the first and the last") {
        for (int const saves : {0, 1, reshard::detail::most_overtakings - 1}) {
            CAPTURE(saves);
            Overtaken run;
            std::string ids[2];
            Index steps[2] = {};
            auto const thrown = run.by(saves, [&](Agreeing& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                MchCheckpoint files = MchCheckpoint::open(run.folder.path(), comm);
                World current = fresh_like(world_of(1), 2);
                ids[r] = files.save_id();
                steps[r] = files.load("user", table_of(current), comm.rank(), state_of(current.ranks[r])).iteration;
            });
            CHECK(thrown == std::vector<test::Thrown>(2));
            CHECK(run.newest == 1 + saves);
            CHECK(steps[0] == run.newest);
            CHECK(steps[1] == run.newest);
            CHECK(ids[0] == ids[1]);
            CHECK(ids[0].size() == 16);
        }
    }

    TEST_CASE("ranks that see different saves each time they look are told which") {
        Overtaken run;
        auto const thrown =
            run.by(-1, [&](Agreeing& comm) { static_cast<void>(MchCheckpoint::open(run.folder.path(), comm)); });
        test::check_same(thrown, ErrorCode::mismatch, {"rank 1 of 2: sees save ", ", but rank 0 sees save "});
        CHECK(run.newest == 1 + reshard::detail::most_overtakings);
    }

    TEST_CASE("tables beside what was loaded of a save that another one has replaced are refused, naming both") {
        TempFolder const folder;
        save_step(folder.path(), 1);
        std::string const first = MchCheckpoint::open(folder.path()).save_id();
        CHECK(MchCheckpoint::open(folder.path(), first).save_id() == first);
        save_step(folder.path(), 2);
        std::string const second = MchCheckpoint::open(folder.path()).save_id();
        std::vector<std::string> const parts{"holds save " + second + ", not save " + first + ","};
        // By one rank, and where one of two has read something else by itself.
        auto thrown = test::thrown_by(
            1, [&](ThreadCommunicator&) { static_cast<void>(MchCheckpoint::open(folder.path(), first)); });
        test::check_same(thrown, ErrorCode::mismatch, parts);
        thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            CHECK(MchCheckpoint::open(folder.path(), comm, second).save_id() == second);
            auto const& wanted = comm.rank() == 1 ? first : second;
            static_cast<void>(MchCheckpoint::open(folder.path(), comm, wanted));
        });
        test::check_same(thrown, ErrorCode::mismatch, parts);
        // And one does not see the folder.
        thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            static_cast<void>(MchCheckpoint::open(comm.rank() == 1 ? folder / "none" : folder.path(), comm));
        });
        test::check_same(thrown, ErrorCode::io, {"rank 1 of 2: "});
    }

    TEST_CASE("ranks that opened a folder by themselves and have shards of two saves are refused, naming both") {
        TempFolder const folder;
        save_step(folder.path(), 1);
        std::vector<World> worlds(2, fresh_like(world_of(1), 2));
        std::vector<std::string> ids;
        std::vector<MchTable> saved;
        for (std::size_t r = 0; r < 2; ++r) {
            MchCheckpoint files = MchCheckpoint::open(folder.path());
            saved.push_back(
                files.load("user", table_of(worlds[r]), static_cast<Id>(r), state_of(worlds[r].ranks[r])).saved);
            ids.push_back(files.save_id());
            save_step(folder.path(), 2);
        }
        CHECK(saved[0] == saved[1]);  // as tables they are: no other call asks
        CHECK(digest(saved[0]) == digest(saved[1]));
        auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            static_cast<void>(redistribute(saved[r], table_of(worlds[r]), state_of(worlds[r].ranks[r]), comm));
        });
        test::check_same(thrown, ErrorCode::mismatch, {"of save " + ids[0], "of save " + ids[1]});
        CHECK(saved[0].on(saved[0].slots).save.empty());
    }
}
