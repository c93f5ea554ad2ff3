// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/{save,consolidate}.hpp when the power goes: whatever of its writes, names and syncs the
// disk has kept, the folder holds the save before or the new one, whole, and the next save tidies up.
#include <reshard/checkpoint/save.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/detail/folder_note.hpp>

#include "../support/random.hpp"
#include "power_support.hpp"
#include "save_versions.hpp"

namespace {
using namespace reshard;
using namespace checkpoint_test;

/// All tensors of a checkpoint of whole files, one after the other.
std::vector<std::byte> all_of(Checkpoint const& checkpoint) {
    std::vector<std::byte> bytes;
    for (CheckpointTensor const& tensor : checkpoint.tensors()) {
        std::size_t const before = bytes.size();
        bytes.resize(before + static_cast<std::size_t>(tensor.bytes()));
        checkpoint.read(tensor, std::span(bytes).subspan(before));
    }
    return bytes;
}

/// The model of the disk knows what files hold, and no numbers of them: notes get those of the files that are there.
void renumber(TempFolder const& disk) {
    for (std::string const& leaf : disk.leaves()) {
        auto noted = leaf.ends_with(".lock") ? reshard::detail::files_of_note(read_text(disk / leaf))
                                             : std::vector<reshard::detail::NotedFile>();
        if (noted.empty()) continue;
        for (auto& file : noted)
            if (auto const stamp = reshard::detail::noted_stamp_at(disk / file.leaf)) file.stamp = *stamp;
        write_text(disk / leaf, reshard::detail::note_of(noted));
    }
}
}  // namespace

TEST_SUITE("checkpoint/save power") {
    TEST_CASE("a power cut at any call, whatever had not been synced: the save before or the new one") {
        for (int const before : {0, 1}) {
            CAPTURE(before);
            TempFolder const folder;
            if (before != 0) save_model(folder.path(), before);
            PowerCuts const cuts(folder.path(), [&] { save_model(folder.path(), 2); });
            CHECK(cuts.calls() > 20);
            TempFolder const disk;
            bool seen[3] = {};
            int states = 0;
            cuts.for_each_state([&](DiskState const& state, bool returned) {
                put(disk, state);
                int const version = version_of(disk);
                REQUIRE((version == 2 || (version == before && !returned)));  // what has returned is durable
                seen[version] = true;
                if (++states % 40 == 0) check_next_save(disk, 3);
            });
            CHECK(states > 30);
            CHECK(seen[before]);
            CHECK(seen[2]);
        }
    }

    TEST_CASE("a power cut while a checkpoint is consolidated: nothing that opens, or all of it") {
        TempFolder const saved;
        save_model(saved.path(), 1);
        for (int const way : {0, 1, 2, 3}) {
            CAPTURE(way);
            TempFolder const out;
            ConsolidateOptions rewrite;
            rewrite.max_file_bytes = way % 2 == 0 ? Index{1} << 30 : Index{600};  // one file, and several with an index
            rewrite.manifest = way / 2 != 0;
            PowerCuts const cuts(out.path(), [&] {
                run_on_threads(2,
                               [&](ThreadCommunicator& comm) { consolidate(saved.path(), out.path(), comm, rewrite); });
            });
            std::vector<std::byte> const right = all_of(Checkpoint::open(out.path()));
            TempFolder const disk;
            int whole = 0;
            int states = 0;
            cuts.for_each_state([&](DiskState const& state, bool returned) {
                put(disk, state);
                renumber(disk);
                bool same = false;
                Caught const error = caught([&] { same = all_of(Checkpoint::open(disk.path())) == right; });
                REQUIRE((same || (!returned && contains(error.message, "Fix: "))));
                whole += same ? 1 : 0;
                ++states;
                REQUIRE((!returned || state.contains("reshard.manifest.json") == rewrite.manifest));
                if (returned) {  // whatever the cut has brought back, nobody takes it for left over
                    check_io("it is not empty", [&] { consolidate(saved.path(), disk.path(), rewrite); });
                    REQUIRE(all_of(Checkpoint::open(disk.path())) == right);
                }
                if (same) return;
                consolidate(saved.path(), disk.path(), rewrite);  // what the cut has left makes room
                REQUIRE(all_of(Checkpoint::open(disk.path())) == right);
            });
            CHECK(whole > 0);
            CHECK(states > whole);
        }
    }

    TEST_CASE("the model of the disk finds a save that is not synced") {
        TempFolder const folder;
        SaveOptions fast = options(2);
        fast.durable = false;
        PowerCuts const cuts(folder.path(), [&] {
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 2);
                save(folder.path(), mine.list(), comm, fast);
            });
        });
        int broken = 0;
        cuts.for_each_state([&](DiskState const& state, bool returned) {
            auto const manifest = state.find(std::string(manifest_name));
            bool const whole = manifest != state.end() && manifest->second.size() > 100 && state.size() >= 4;
            broken += returned && !whole ? 1 : 0;
        });
        CHECK(broken > 0);
    }
}
