// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/remove_checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/detail/folder_lock.hpp>

#include <string>
#include <vector>

#include "faults_support.hpp"
#include "power_support.hpp"
#include "save_versions.hpp"

namespace {
using namespace reshard;
using namespace checkpoint_test;

constexpr char const* lock_leaf = ".reshard.manifest.json.lock";
constexpr char const* temporary = ".shard-00001-of-00003.0123456789abcdef.safetensors.tmp.17.0";
constexpr char const* unnamed = "shard-00001-of-00003.0123456789abcdef.safetensors";

}  // namespace

TEST_SUITE("checkpoint/remove") {
    TEST_CASE("all that saves have left goes, and the folder; what others have put there stays, and so does that") {
        for (bool const is_saved : {true, false}) {  // or a first save died
            for (bool const is_shared : {false, true}) {
                TempFolder const folder;
                std::string const step = folder / "step";
                if (is_saved) save_model(step, 1);
                std::filesystem::create_directory(step);
                Index const saved = static_cast<Index>(is_saved ? named_leaves(step).size() : 0);
                for (char const* const leaf : {temporary, unnamed, lock_leaf}) write_text(step + "/" + leaf, "");
                std::vector<std::string> const others{".shard.tmp.1.0", "notes.txt",
                                                      "shard-00001-of-00003.safetensors"};
                for (std::string const& leaf : others)
                    if (is_shared) write_text(step + "/" + leaf, "");
                CHECK(remove_checkpoint(step) == saved + 2);
                CHECK(std::filesystem::exists(step) == is_shared);
                if (is_shared) {
                    for (std::string const& leaf : others) CHECK(std::filesystem::remove(step + "/" + leaf));
                    CHECK(std::filesystem::is_empty(step));
                }
                CHECK(remove_checkpoint(step) == 0);
                CHECK_FALSE(std::filesystem::exists(step));
            }
        }
    }

    TEST_CASE("a save under way, and files that no save makes, are refused, and nothing goes") {
        TempFolder const folder;
        std::string const step = folder / "step";
        save_model(step, 1);
        auto const before = named_leaves(step);
        {
            detail::FolderLock const saving(step, lock_leaf);
            check_io(errors::concat("another save into this folder is under way: it holds ", lock_leaf, " (process "),
                     [&] { remove_checkpoint(step); });
        }
        CHECK(named_leaves(step) == before);
        ConsolidateOptions options;
        options.manifest = true;
        consolidate(step, folder / "whole", options);
        check_io("it names 'model.safetensors', which is no file of a save. Fix: remove the manifest yourself",
                 [&] { remove_checkpoint(folder / "whole"); });
        CHECK(std::filesystem::exists(folder / "whole/reshard.manifest.json"));
        CHECK_FALSE(std::filesystem::exists(folder / "whole/.reshard.manifest.json.lock"));
        write_text(step + "/reshard.manifest.json", R"({"format": "reshard-checkpoint", "version": 99})");
        CHECK_THROWS_AS(remove_checkpoint(step), FormatError);
        for (std::string const& leaf : before) CHECK(std::filesystem::exists(step + "/" + leaf));
        write_text(step + "/reshard.manifest.json", "{");  // names nothing
        CHECK(remove_checkpoint(step) == static_cast<Index>(before.size()));
    }

    TEST_CASE("a process that ends at any call leaves the checkpoint whole or none, and the next one ends the work") {
        long calls = 0;
        for (bool done = false; !done; ++calls) {
            CAPTURE(calls);
            TempFolder const folder;
            save_model(folder.path(), 1);
            done = !dies_at(calls, [&] { remove_checkpoint(folder.path()); });
            if (std::filesystem::exists(folder.path())) static_cast<void>(version_of(folder));
            remove_checkpoint(folder.path());
            CHECK_FALSE(std::filesystem::exists(folder.path()));
        }
        CHECK(calls > 6);
    }

    TEST_CASE("whatever a power cut undoes, a manifest that is there names files that are") {
        TempFolder const folder;
        save_model(folder.path(), 1);
        write_text(folder / "notes.txt", "keeps the folder");
        PowerCuts const cuts(folder.path(), [&] { remove_checkpoint(folder.path()); });
        CHECK(cuts.calls() > 4);
        TempFolder const disk;
        int whole = 0;
        int none = 0;
        cuts.for_each_state([&](DiskState const& state, bool) {
            put(disk, state);
            ++(version_of(disk) == 1 ? whole : none);
        });
        CHECK(whole > 0);
        CHECK(none > 0);
    }

    TEST_CASE("what the file system refuses is named, and the manifest is the first to go") {
        TempFolder const folder;
        save_model(folder.path(), 1);
        auto const remove = [&] {
            check_io("safetensors: cannot remove it: Permission denied", [&] { remove_checkpoint(folder.path()); });
        };
        while_one_fails("unlink", EACCES, remove, 1);
        CHECK_FALSE(std::filesystem::exists(folder / manifest_name));
        write_text(folder / "file", "");
        CHECK_THROWS_AS(remove_checkpoint(folder / "file"), IoError);
    }
}
