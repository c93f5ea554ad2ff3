// SPDX-License-Identifier: Apache-2.0
// include/reshard/mch/checkpoint_save.hpp when the system fails: a process that dies at every call, calls that say that
// they failed and were done, and readers that saves overtake. The calls come here by way of faults_calls.hpp.
#include <reshard/mch/checkpoint_save.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/file.hpp>

#include <checkpoint/faults_calls.hpp>
#include <mch/support/saved.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using namespace checkpoint_test;

/// A world whose iteration says which save it is.
World version_of(Id version) {
    World world = trained(3, 30, 2, Policy::lfu);
    for (Module& module : world.ranks) module.iteration[0] = version;
    return world;
}
void save_version(std::string const& folder, Id version) {
    World world = version_of(version);
    save_world(folder, world);
}
/// The save that the folder holds whole; 0 when it holds none.
Index version_in(TempFolder const& folder) {
    if (!std::filesystem::exists(folder / "mch.index.json")) return 0;
    MchCheckpoint files = MchCheckpoint::open(folder.path());
    World whole = fresh_like(version_of(1), 1);
    return files.load("user", table_of(whole), 0, state_of(whole.ranks[0])).iteration;
}
/// Whatever happened before: the next save succeeds, and nothing stays that it does not name.
void check_next_save(TempFolder const& folder, Index version) {
    save_version(folder.path(), version);
    CHECK(version_in(folder) == version);
    CHECK(folder.leaves().size() == 3);
}

}  // namespace

TEST_SUITE("mch/checkpoint_save faults") {
    TEST_CASE("a process that ends at any call leaves the save before, or the new one, and the next save tidies up") {
        for (Index const before : {0, 1}) {
            bool seen[3] = {};
            long calls = 0;
            for (bool done = false; !done; ++calls) {
                CAPTURE(calls);
                TempFolder const folder;
                if (before != 0) save_version(folder.path(), before);
                done = !dies_at(calls, [&] { save_version(folder.path(), 2); });
                Index const version = version_in(folder);
                REQUIRE((version == before || version == 2));
                seen[version] = true;
                check_next_save(folder, 3);
            }
            CHECK(calls > 20);
            CHECK(seen[before]);
            CHECK(seen[2]);
        }
    }

    TEST_CASE(
        "a rename that reports an error, done or not: the folder holds a whole save, and the next one tidies up") {
        for (bool const done_anyway : {false, true}) {
            for (long call = 0; call < 2; ++call) {  // of rank 0: its file, the index
                CAPTURE(done_anyway);
                CAPTURE(call);
                TempFolder const folder;
                save_version(folder.path(), 1);
                Faults plan;
                plan.at = call;
                plan.error = EIO;
                plan.only = "rename";
                plan.done_anyway = done_anyway;
                faults = &plan;
                World next = version_of(2);
                auto const errors =
                    save_world(folder.path(), next, [](int rank, MchSaving&, std::string&) { counted = rank == 0; });
                faults = nullptr;
                for (std::string const& error : errors) {
                    CHECK(contains(error, "rank 0 of 2: IoError: "));
                    CHECK(contains(error, "cannot rename"));
                    CHECK(contains(error, "see which save the folder opens as") == (call == 1));
                }
                CHECK(version_in(folder) == (call == 1 && done_anyway ? 2 : 1));
                check_next_save(folder, 3);
            }
        }
    }

    TEST_CASE("readers that saves overtake read a newer save, whole, or say what has happened") {
        TempFolder const folder;
        Index version = 1;
        save_version(folder.path(), version);
        long times = 0;  // how many saves take place, each when a reader has read the index
        before_close = [&](int file) {
            if (!counted || times == 0) return;
            std::string const path = std::filesystem::read_symlink(concat("/proc/self/fd/", file));
            if (!path.ends_with("/mch.index.json")) return;
            --times;
            counted = false;
            save_version(folder.path(), ++version);
            counted = true;
        };
        auto const overtaken = [&](long saves, auto const& body) {
            times = saves;
            counted = true;
            body();
            counted = false;
        };
        for (long const saves : {1, 3}) {
            overtaken(saves, [&] {
                Index const read = version_in(folder);
                CHECK(read == version);
            });
            CHECK(times == 0);
        }
        Index const before = version;
        overtaken(-1, [&] {
            check_io("it names files that are missing", [&] { static_cast<void>(MchCheckpoint::open(folder.path())); });
        });
        CHECK(version == before + detail::most_overtakings);
        before_close = {};

        // Files are opened when they are needed: who has opened an older save is told, and opens the folder again.
        MchCheckpoint files = MchCheckpoint::open(folder.path());
        save_version(folder.path(), ++version);
        World whole = fresh_like(version_of(1), 1);
        World const fresh = whole;
        check_io("a save into this folder has overtaken this reader",
                 [&] { static_cast<void>(files.load("user", table_of(whole), 0, state_of(whole.ranks[0]))); });
        CHECK(whole.ranks[0].raw == fresh.ranks[0].raw);
        CHECK(version_in(folder) == version);
    }
}
