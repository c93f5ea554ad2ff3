// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/old_tables.hpp: tables of older releases in a folder that a save of today replaces,
// or remove_checkpoint() removes, also when a process dies at every call, or the power goes.
#include <reshard/checkpoint/old_tables.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/remove_checkpoint.hpp>

#include <checkpoint/power_support.hpp>
#include <mch/support/saved_old.hpp>
#include <support/random.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using namespace checkpoint_test;

/// A folder of tables as an older release saved them, of save 0000000000000abc.
struct Folder {
    explicit Folder(Id ranks = 4) : world(trained(3, 90, ranks, Policy::lfu)) { save_old(path(), world); }
    [[nodiscard]] std::string path() const { return temporary.path(); }
    [[nodiscard]] std::string index() const { return temporary / "mch.index.json"; }
    [[nodiscard]] Caught load() const { return load_error(path(), world, 2); }

    TempFolder temporary;
    World world;
};

void save_dense(std::string const& folder) {
    std::vector<float> weights(8);
    run_on_threads(2, [&](ThreadCommunicator& comm) {
        auto const d = distribution(Mesh{2}, Shape{8}, "S0");
        std::vector<LocalTensor> const dense{{"w", d, TensorView<float>(weights.data() + 4 * comm.rank(), Shape{4})}};
        SaveOptions options;
        options.small_bytes = 0;
        save(folder, dense, comm, options);
    });
}

/// A save of dense tensors and tables, or of the first alone.
void save_today(std::string const& folder, World& world, bool tables) {
    if (!tables) return save_dense(folder);
    save_world(folder, world);
}
/// The save that tables are loaded of; "none" where the folder holds no table, or nothing.
std::string tables_in(Folder const& folder) {
    if (!std::filesystem::exists(folder.index()) && !std::filesystem::exists(folder.temporary / manifest_name))
        return "none";
    MchCheckpoint files = MchCheckpoint::open(folder.path());
    if (files.names().empty()) return "none";
    World whole = fresh_like(folder.world, 1);
    files.load("user", table_of(whole), 0, state_of(whole.ranks[0]));  // all of it is there
    return files.save_id();
}
constexpr char const* old_save = "0000000000000abc";

}  // namespace

TEST_SUITE("checkpoint/old_tables") {
    TEST_CASE(
        "tables that an older release saved beside a checkpoint of dense tensors; a save of today replaces both") {
        Folder saved;
        std::filesystem::remove_all(saved.path());
        save_dense(saved.path());
        save_old(saved.path(), saved.world);
        CHECK(saved.load().code == ErrorCode::none);
        CHECK(MchCheckpoint::open(saved.path()).save_id() == "0000000000000abc");
        save_dense(saved.path());
        CHECK(saved.temporary.leaves().size() == 3);
        check_error(saved.load(), ErrorCode::mismatch, {"holds no table 'user'"});
    }

    TEST_CASE(
        "tables of an older release beside others of today are refused, naming both, unless these replaced them") {
        Folder saved;
        TempFolder const backup;
        for (std::string const& leaf : saved.temporary.leaves())
            std::filesystem::copy(saved.temporary / leaf, backup / leaf);
        SaveOptions options;
        options.metadata = {{"mch.replaced", "0000000000000abd"}, {"step", "7"}};  // as a load gave it
        save_world(saved.path(), saved.world, options);
        auto const today = MchCheckpoint::open(saved.path()).save_id();
        auto const metadata = Checkpoint::open(saved.path()).manifest().metadata;
        REQUIRE(metadata.size() == 3);
        CHECK(metadata[0] == std::pair<std::string, std::string>("mch.replaced", "0000000000000abc"));
        CHECK(metadata[2].second == "7");
        // The process died before all of them were removed: as few as the index are left.
        for (std::string const& leaf : backup.leaves()) {
            std::filesystem::copy(backup / leaf, saved.temporary / leaf);
            CHECK(MchCheckpoint::open(saved.path()).save_id() == today);
        }
        // The release before has saved after it, or what it had saved stayed when nothing removed it.
        save_old(saved.path(), saved.world, 0xdef);
        check_error(saved.load(), ErrorCode::format,
                    {"mch.index.json: its tables, of save 0000000000000def, lie beside those of save " + today,
                     "Fix: remove this file to have those of the manifest, or the manifest to have these"});
        // What is no such index says nothing.
        for (char const* text : {"{", R"({"format":"other","save":"0000000000000def"})"}) {
            write_text(saved.index(), text);
            CHECK(saved.load().code == ErrorCode::none);
        }
        save_old(saved.path(), saved.world, 0xdef);
        save_world(saved.path(), saved.world);  // whatever was there
        CHECK(saved.load().code == ErrorCode::none);
        CHECK(saved.temporary.leaves().size() == 5);
        // What another program calls so is no file of ours.
        write_text(saved.index(), R"({"format":"other","save":"0000000000000abc"})");
        save_world(saved.path(), saved.world);
        CHECK(std::filesystem::exists(saved.index()));
        CHECK(saved.load().code == ErrorCode::none);
        // Nor does one that cannot be read, and neither goes.
        std::filesystem::remove(saved.index());
        std::filesystem::create_directory(saved.index());
        save_world(saved.path(), saved.world);
        CHECK(saved.load().code == ErrorCode::none);
        CHECK(remove_checkpoint(saved.path()) == 5);
        CHECK(std::filesystem::is_directory(saved.index()));
    }

    TEST_CASE("while an older release saves, or one has died with its lock, a save leaves its files alone") {
        Folder saved;
        std::string const lock = saved.temporary / ".mch.index.json.lock";
        write_text(lock, "");
        save_world(saved.path(), saved.world);
        CHECK(std::filesystem::exists(saved.temporary / detail::mch_file_name(old_save, 0, 4)));
        CHECK(MchCheckpoint::open(saved.path()).save_id() != "0000000000000abc");  // they are replaced all the same
        {
            detail::FolderLock const saving(saved.path(), ".mch.index.json.lock");
            check_error(checkpoint_test::caught([&] { remove_checkpoint(saved.path()); }), ErrorCode::io,
                        {"another save into this folder is under way: it holds .mch.index.json.lock"});
        }
        CHECK(std::filesystem::exists(saved.index()));
        write_text(lock, "");
        CHECK(remove_checkpoint(saved.path()) == 10);
        CHECK_FALSE(std::filesystem::exists(saved.path()));
    }
    TEST_CASE("remove_checkpoint() removes tables of older releases, alone and beside a manifest") {
        for (bool const dense : {false, true}) {
            Folder saved;
            std::filesystem::remove_all(saved.path());
            if (dense) save_dense(saved.path());
            save_old(saved.path(), saved.world);
            CHECK(remove_checkpoint(saved.path()) == (dense ? 8 : 5));
            CHECK_FALSE(std::filesystem::exists(saved.path()));
        }
    }

    TEST_CASE("a process that ends at any call of a save leaves the old tables or the new ones, whole") {
        for (bool const tables : {false, true}) {
            for (bool const beside : {false, true}) {  // dense tensors that the older release saved
                bool seen[2] = {};
                bool between = false;
                long const every = reshard::test::fewer_seeds() ? 3 : 1;
                long calls = 0;
                for (bool done = false; !done; calls += every) {
                    CAPTURE(calls);
                    Folder folder(1);
                    if (beside) {
                        std::filesystem::remove(folder.index());
                        save_dense(folder.path());
                        save_old(folder.path(), folder.world);
                    }
                    auto const before = beside ? manifest_in(folder.path()).save : "";
                    done = !dies_at(calls, [&] { save_today(folder.path(), folder.world, tables); });
                    bool const has_manifest = std::filesystem::exists(folder.temporary / manifest_name);
                    std::string const save = has_manifest ? manifest_in(folder.path()).save : "";
                    bool const is_new = save != before;
                    seen[is_new] = true;
                    std::string const expected = !is_new ? old_save : tables ? save : "none";
                    REQUIRE(tables_in(folder) == expected);
                    between = between || (is_new && std::filesystem::exists(folder.index()));
                    save_today(folder.path(), folder.world, tables);
                    CHECK(folder.temporary.leaves().size() == (tables ? 2 : 3));
                }
                CHECK(calls > 20);
                CHECK(seen[0]);
                CHECK(seen[1]);
                if (every == 1) CHECK(between);
            }
        }
    }

    TEST_CASE("a power cut at any call of a save, whatever had not been synced: the old tables or the new ones") {
        int const every = reshard::test::fewer_seeds() ? 7 : 1;
        for (bool const tables : {false, true}) {
            CAPTURE(tables);
            Folder folder(1);
            PowerCuts const cuts(folder.path(), [&] { save_today(folder.path(), folder.world, tables); });
            Folder disk(1);
            bool seen[2] = {};
            int states = 0;
            cuts.for_each_state([&](DiskState const& state, bool returned) {
                if (states++ % every != 0 && !returned) return;
                put(disk.temporary, state);
                bool const is_new = std::filesystem::exists(disk.temporary / manifest_name);
                seen[is_new] = true;
                REQUIRE((is_new || !returned));
                REQUIRE(tables_in(disk) == (!is_new ? old_save : tables ? manifest_in(disk.path()).save : "none"));
                if (states % 20 != 1) return;
                save_today(disk.path(), disk.world, tables);
                CHECK(disk.temporary.leaves().size() == (tables ? 2 : 3));
            });
            CHECK(states > 30);
            CHECK(seen[0]);
            CHECK(seen[1]);
        }
    }

    TEST_CASE("remove_checkpoint() that ends at any call, or in a power cut, leaves what was there whole, or nothing") {
        auto const is_whole = [](Folder const& folder, bool dense) {
            if (!std::filesystem::exists(folder.path())) return;
            std::string const tables = tables_in(folder);
            CHECK((tables == old_save || tables == "none"));
            bool const has_manifest = std::filesystem::exists(folder.temporary / manifest_name);
            if (has_manifest) static_cast<void>(Checkpoint::open(folder.path()));
            if (dense && !has_manifest) CHECK(tables == "none");
        };
        for (bool const dense : {false, true}) {
            auto const make = [&](Folder& folder) {
                if (!dense) return;
                std::filesystem::remove(folder.index());
                save_dense(folder.path());
                save_old(folder.path(), folder.world);
            };
            long calls = 0;
            for (bool done = false; !done; ++calls) {
                CAPTURE(calls);
                Folder folder(1);
                make(folder);
                done = !dies_at(calls, [&] { remove_checkpoint(folder.path()); });
                is_whole(folder, dense);
                remove_checkpoint(folder.path());
                CHECK_FALSE(std::filesystem::exists(folder.path()));
            }
            CHECK(calls > 4);
            Folder folder(1);
            make(folder);
            write_text(folder.temporary / "notes.txt", "keeps the folder");
            PowerCuts const cuts(folder.path(), [&] { remove_checkpoint(folder.path()); });
            Folder disk(1);
            cuts.for_each_state([&](DiskState const& state, bool) {
                put(disk.temporary, state);
                is_whole(disk, dense);
            });
        }
    }
}
