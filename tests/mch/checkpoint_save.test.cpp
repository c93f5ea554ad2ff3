// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/checkpoint_save.hpp: tables and dense tensors are one save, there as a whole or not at
// all, whichever rank is wrong.
#include <reshard/mch/checkpoint_save.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/comm/self.hpp>

#include <mch/support/saved.hpp>

#include <support/far_memory.hpp>

#include "support/thrown.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::TempFolder;
namespace torchrec = reshard::test::torchrec;

/// What is live in a folder: iteration and ids of its table 'user', read by one rank.
std::pair<Index, Ids> content(std::string const& folder) {
    MchCheckpoint files = MchCheckpoint::open(folder);
    World whole(files.table("user").size(), 1, Policy::lfu);
    Rows rows(whole.ranks[0]);
    rows.clear();
    files.load("user", table_of(whole), 0, state_of(whole.ranks[0]), rows.views());
    CHECK(rows == Rows(whole.ranks[0]));
    return {whole.ranks[0].iteration[0], whole.ranks[0].raw};
}

/// Four ranks that fail must leave this folder as it is.
class SavedBefore {
public:
    SavedBefore() : before_(trained(3, 90, 4, Policy::lfu)), next_(trained(4, 90, 4, Policy::lfu)) {
        save_world(folder.path(), before_);
        checkpoint_test::write_text(folder / "notes.txt", "of somebody else");
        leaves_ = folder.leaves();
        content_ = content(folder.path());
    }
    template <class Spoil>
    void refuses(std::vector<std::string> const& parts, Spoil const& spoil, SaveOptions const& options = {}) {
        auto const errors = save_world(folder.path(), next_, spoil, options);
        CAPTURE(errors[0]);
        for (std::string const& error : errors) CHECK(error == errors[0]);
        CHECK(contains(errors[0], "Fix: "));
        for (std::string const& part : parts) {
            CAPTURE(part);
            CHECK(contains(errors[0], part));
        }
        is_unchanged();
    }
    void is_unchanged() const {
        CHECK(folder.leaves() == leaves_);
        CHECK(content(folder.path()) == content_);
    }
    [[nodiscard]] World& next() { return next_; }

    TempFolder folder;

private:
    World before_;
    World next_;
    std::vector<std::string> leaves_;
    std::pair<Index, Ids> content_;
};

}  // namespace

TEST_SUITE("mch/checkpoint_save") {
    TEST_CASE("dense tensors and tables are one save: one manifest, files of the one before go, all of it verifies") {
        SavedBefore before;
        World next = trained(5, 90, 3, Policy::lfu);
        MchTable const table = table_of(next);
        auto const d = distribution(Mesh{3}, Shape{3, 4}, "S0");
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            Rows rows(next.ranks[r]);
            std::vector<float> weights(4, static_cast<float>(comm.rank()));
            std::vector<LocalTensor> const dense{{"w", d, TensorView<float>(weights.data(), Shape{1, 4})}};
            std::vector<MchTableToSave> const tables{{table, state_of(next.ranks[r]), rows.views()}};
            SaveReport const report = save(before.folder.path(), dense, tables, comm, {.metadata = {{"step", "7"}}});
            CHECK(report.save_id == MchCheckpoint::open(before.folder.path()).save_id());
            CHECK(report.tensors == 6);  // w; ids, slots, counts; weights, momentum
            VerifyReport const verdict = verify_checkpoint(before.folder.path(), comm);
            CHECK(verdict.extents == 18);
            CHECK(verdict.extents_without_checksum == 0);
        });
        CHECK(before.folder.leaves().size() == 5);  // three files, the manifest, and notes.txt
        CHECK(content(before.folder.path()).second == loaded_by_position(next, 1).ranks[0].raw);
        Checkpoint const whole = Checkpoint::open(before.folder.path());
        CHECK(whole.manifest().metadata.size() == 2);
        std::vector<float> weights(12);
        std::vector<float> rows(180);
        std::vector<LocalTensor> const wanted{
            {"w", distribution(Mesh{1}, Shape{3, 4}, "R"), TensorView<float>(weights.data(), Shape{3, 4})},
            {"user.rows.weights", distribution(Mesh{1}, Shape{90, 2}, "R"),
             TensorView<float>(rows.data(), Shape{90, 2})}};
        load(whole, wanted, 0);
        for (std::size_t i = 0; i < 12; ++i) CHECK(weights[i] == static_cast<float>(i / 4));
        for (Id slot = 0; slot < 90; ++slot) CHECK(rows[2 * static_cast<std::size_t>(slot)] == weight(slot, 0));
    }

    TEST_CASE("start_save: what the tables held then is saved, behind the trainer's back") {
        TempFolder const folder;
        World world = trained(5, 90, 3, Policy::lfu);
        World const then = world;
        MchTable const table = table_of(world);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            Rows rows(world.ranks[r]);
            SaveRequest saving;
            {
                std::vector<MchTableToSave> const tables{{table, state_of(world.ranks[r]), rows.views()}};
                saving = start_save(folder.path(), std::span<LocalTensor const>(), tables, comm);
            }
            rows.clear();
            std::fill(world.ranks[r].raw.begin(), world.ranks[r].raw.end(), no_id);
            world.ranks[r].iteration[0] += 1;
            saving.wait();
        });
        CHECK(content(folder.path()).first == then.ranks[0].iteration[0]);
        CHECK(content(folder.path()).second == loaded_by_position(then, 1).ranks[0].raw);
    }

    TEST_CASE("ids and rows that the communicator's policy holds are refused on all ranks, not read") {
        TempFolder const folder;
        World world = trained(5, 90, 2, Policy::lfu);
        run_on_threads(2, [&](ThreadCommunicator& threads) {
            auto const r = static_cast<std::size_t>(threads.rank());
            test::FarMemory const memory;
            test::OnFarMemory comm(std::move(threads), memory);
            Rows rows(world.ranks[r]);
            MchTableToSave const near{table_of(world), state_of(world.ranks[r]), rows.views()};
            MchTableToSave far = near;
            auto const refused = [&] {
                CHECK_THROWS_WITH_AS(save(folder.path(), far, comm),
                                     doctest::Contains("on rank 1: a buffer lies in device memory. Fix: "),
                                     BufferError);
                far = near;
            };
            auto const put_away = [&](DynamicView& view) {
                if (r == 1) view = DynamicView(memory.far, view.dtype(), view.shape());
            };
            put_away(far.state.ids);
            refused();
            put_away(far.rows[1].view);
            refused();
        });
    }

    TEST_CASE("a save of dense tensors alone takes the place of one with tables") {
        SavedBefore before;
        SelfCommunicator self;
        save(before.folder.path(), std::span<LocalTensor const>(), self);
        CHECK(MchCheckpoint::open(before.folder.path()).names().empty());
    }

    TEST_CASE("a rank whose state, rows or folder is wrong stops all, and the save before is whole") {
        SavedBefore before;
        before.refuses({"rank 2 of 4: ", "table 'user': on rank 2: the column of ids"},
                       [](int rank, MchTableToSave& one, std::string&) {
                           if (rank == 2) one.state.ids = DynamicView();
                       });
        before.refuses({"rank 3 of 4: ", "rows 'momentum' has shape [1]"},
                       [](int rank, MchTableToSave& one, std::string&) {
                           static double number = 0;
                           if (rank == 3) one.rows[1].view = TensorView<double>(&number, Shape{1});
                       });
        before.refuses({"rank 0 of 4: ", "rows 'weights' have no shape"},
                       [](int rank, MchTableToSave& one, std::string&) {
                           if (rank == 0) one.rows[0].view = DynamicView();
                       });
        before.refuses({"rank 1 of 4: IoError: ", "notes.txt/inside/", "Not a directory"},
                       [](int rank, MchTableToSave&, std::string& path) {
                           if (rank == 1) path += "/notes.txt/inside";
                       });
        before.refuses({"rank 1 of 4: ", "never loaded"}, [&](int rank, MchTableToSave& one, std::string&) {
            static Ids zeros(30, 0);
            static Ids others(30, 0);
            if (rank != 1) return;
            auto const z = one.state.ids.extent(0);
            one.state.ids = TensorView<Index>(zeros.data(), Shape{z});
            one.state.slots = TensorView<Index>(others.data(), Shape{z});
        });
    }

    TEST_CASE("what no load would take is not written: the save before it would go for nothing") {
        SavedBefore before;
        Module& module = before.next().ranks[2];
        Module const good = module;
        auto const spoiled = [&](auto const& change, std::string const& fault) {
            module = good;
            change();
            before.refuses({"rank 2 of 4: ", "table 'user': on rank 2: no load would take it: " + fault,
                            "redistribute() before it is saved"},
                           [](int, MchTableToSave&, std::string&) {});
        };
        REQUIRE(module.live() > 3);
        spoiled([&] { std::swap(module.raw[1], module.raw[2]); }, "I1 ids do not ascend: 1, the first at rank 2, pos");
        spoiled([&] { module.raw[1] = module.raw[2]; }, "I1 id repeated: 1");
        spoiled([&] { module.mapping[1] = 0; }, "I2 slot of another shard: 1, the first at rank 2, position 1: slot 0");
        spoiled([&] { module.mapping[1] = module.mapping[2]; }, "I2 slot repeated: 1");
        spoiled([&] { module.counts[1] = -1; }, "I4 negative count: 1");
        module = good;
        World lru = trained(3, 90, 2, Policy::lru);
        lru.ranks[1].last[0] = lru.ranks[1].iteration[0] + 1;
        for (std::string const& error :
             save_world(before.folder.path(), lru, [](int, MchTableToSave&, std::string&) {})) {
            CHECK(contains(error, "I4 accessed before iteration 0 or after the current one: 1"));
        }
        before.is_unchanged();
    }

    TEST_CASE("ranks that save different things stop all") {
        SavedBefore before;
        before.refuses({"rank 1 of 4: saves 1 tables: 'item' of 90 slots", "but rank 0 saves 1 tables: 'user'"},
                       [](int rank, MchTableToSave& one, std::string&) {
                           if (rank == 1) one.table.name = "item";
                       });
        before.refuses({"rank 2 of 4: ", "with F32 rows 'weights' [2]", "but rank 0 "},
                       [](int rank, MchTableToSave& one, std::string&) {
                           if (rank == 2) one.rows.pop_back();
                       });
        before.refuses({"rank 3 is at iteration", "Fix: save when all ranks have made the same steps."},
                       [&](int rank, MchTableToSave&, std::string&) {
                           if (rank == 3) before.next().ranks[3].iteration[0] += 1;
                       });
        before.next().ranks[3].iteration[0] -= 1;
        Index below_zero = -5;
        before.refuses({"table 'user': rank 0 is at iteration -5, but they count from 0. Fix: "},
                       [&](int, MchTableToSave& one, std::string&) {
                           one.state.iteration = TensorView<Index>(&below_zero, Shape{1});
                       });
        before.refuses({"on rank 1 column 'counts' has another type or shape than on ranks before it"},
                       [](int rank, MchTableToSave& one, std::string&) {
                           DynamicView& view = one.state.metadata[0].view;
                           if (rank == 1) view = DynamicView(view.data(), DType::i64, Shape{view.extent(0), 1});
                       });
        before.refuses({"SaveOptions: metadata has 'mch.table.user', as that table is saved under"},
                       [](int, MchTableToSave&, std::string&) {}, {.metadata = {{"mch.table.user", "{}"}}});
        before.refuses({"two lists of rows are called 'weights'"},
                       [](int, MchTableToSave& one, std::string&) { one.rows.push_back(one.rows[0]); });
        before.refuses({"the hash function '", "is not UTF-8. Fix: "},
                       [](int, MchTableToSave& one, std::string&) { one.table.hash_function = "\xff"; });
        before.refuses({"the name of the rows '", "is not UTF-8. Fix: "},
                       [](int, MchTableToSave& one, std::string&) { one.rows[0].name = "\xff"; });
        before.refuses({"is not UTF-8. Fix: "},
                       [](int, MchTableToSave& one, std::string&) { one.table.name = "\xff"; });
        before.refuses({"the mesh (5) has rank 4, the communicator only 4 ranks"},
                       [](int, MchTableToSave& one, std::string&) {
                           one = {};
                           one.table = mch_table("user", Mesh{5}, 4, MchEviction::lfu);
                           one.state.metadata = {};
                           one.table.slots = mch_slots(Mesh{5}, IndexList{0, 0, 0, 0, 0, 4});
                       });
    }

    TEST_CASE("of several tables the one that differs is named, and of the options the one") {
        SavedBefore before;
        MchTable const table = table_of(before.next());
        auto const refuses = [&](std::vector<std::string> const& parts, auto const& change) {
            auto const thrown = reshard::test::thrown_by(4, [&](ThreadCommunicator& comm) {
                MchTableToSave const one{table, state_of(before.next().ranks[static_cast<std::size_t>(comm.rank())])};
                std::vector<MchTableToSave> tables{one, one};
                tables[1].table.name = "item";
                SaveOptions options;
                if (comm.rank() == 1) change(tables, options);
                save(before.folder.path(), std::span<LocalTensor const>(), tables, comm, options);
            });
            reshard::test::check_same(thrown, ErrorCode::mismatch, parts);
            before.is_unchanged();
        };
        refuses({"rank 1 of 4: saves 2 tables: 'items' of 90 slots", ", but rank 0 saves 2 tables: 'item' of 90 slots"},
                [](auto& tables, SaveOptions&) { tables[1].table.name = "items"; });
        refuses({"rank 1 of 4: saves 1 tables: 'user' of ", ", but rank 0 saves 2 tables: 'user' of ", ", 'item' of "},
                [](auto& tables, SaveOptions&) { tables.pop_back(); });
        refuses({"rank 1 of 4: saves with durable false, but rank 0 saves with durable true. Fix: "},
                [](auto&, SaveOptions& options) { options.durable = false; });
    }

    TEST_CASE("a rank that is lost before it saves: the others say so, and the save before is whole") {
        SavedBefore before;
        MchTable const table = table_of(before.next());
        std::atomic<int> told{0};
        try {
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                if (comm.rank() == 2) return;
                MchTableToSave const saving{table, state_of(before.next().ranks[r])};
                try {
                    save(before.folder.path(), saving, comm);
                } catch (PeerFailed const&) {
                    ++told;
                    throw;
                }
            });
        } catch (PeerFailed const&) {
        }
        CHECK(told == 3);
        before.is_unchanged();
    }

    TEST_CASE("several tables, ranks without slots, a group of some ranks, buckets, and no tables at all") {
        TempFolder const folder;
        World user = trained(1, 6, 4, Policy::distance_lfu);  // two slots on each of three ranks, none on the fourth
        BucketWorld item(48, 6, {0, 16, 48});
        for (Id id : {7, 19, -5, 4000}) item.admit(id, 3);
        item.admit(INT64_MAX, 12);  // an id like any other here
        MchTable buckets = table_of(item);
        buckets.slots = mch_slots(DynamicMesh(Indices{2}, RankList{0, IndexList{3, 1}}), IndexList{0, 16, 48});
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            std::vector<MchTableToSave> tables(2);
            tables[0] = {table_of(user), r == 3 ? MchState{} : state_of(user.ranks[r])};
            tables[1] = {buckets, r == 3 ? state_of(item, 0) : r == 1 ? state_of(item, 1) : MchState{}};
            save(folder.path(), std::span<MchTableToSave const>(tables), comm);
        });
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        CHECK(files.names() == std::vector<std::string>{"item", "user"});
        CHECK(files.ranks() == 4);
        CHECK(files.table("item") == buckets);
        CHECK(files.iteration("item") == 0);
        CHECK(files.table("user") == table_of(user));
        std::size_t admitted = 0;
        for (MchIdBounds const& bounds : files.ids("item")) admitted += static_cast<std::size_t>(bounds.live);
        CHECK(admitted == 5);
        BucketWorld whole(48, 6, {0, 48});
        MchLoadResult const loaded = files.load("item", table_of(whole), 0, state_of(whole, 0));
        CHECK(loaded.live == 5);
        for (Id id : {Id{7}, Id{19}, Id{-5}, Id{4000}, INT64_MAX}) CHECK(whole.look_up(id) == item.look_up(id));
        CHECK(whole.hours == item.cut_at({0, 48}).hours);

        TempFolder const empty;
        SelfCommunicator self;
        save(empty.path(), std::span<MchTableToSave const>(), self);
        CHECK(MchCheckpoint::open(empty.path()).names().empty());
    }
}
