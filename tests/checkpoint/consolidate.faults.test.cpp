// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/consolidate.hpp when a process dies at any call to the system, or the system refuses any:
// nobody takes what is there by then for a checkpoint unless it is all there, and the next try finishes. The calls come
// here by way of faults_calls.hpp.
#include <reshard/checkpoint/consolidate.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/comm/self.hpp>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "../support/random.hpp"
#include "../support/thrown.hpp"
#include "consolidate_support.hpp"
#include "faults_support.hpp"

using namespace reshard;
using namespace checkpoint_test;

namespace {

std::vector<Saved> model() {
    std::vector<Saved> list;
    for (char const* const name : {"a", "b", "c"}) {
        Saved saved{{name, DType::f32, Shape{8, 6}}, 1, {}};
        saved.parts = {{0, 0, Box{{0, 4}, {0, 6}}}, {0, 1, Box{{4, 8}, {0, 6}}}};
        list.push_back(saved);
    }
    return list;
}

struct Way {
    char const* name;
    std::function<RewriteReport(std::string const&, std::string const&)> run;
};
RewriteReport with_map(std::string const& from, std::string const& to, std::vector<char const*> const& files) {
    ConsolidateOptions options;
    for (std::size_t i = 0; i < files.size(); ++i) {
        options.weight_map.emplace_back(std::string(1, static_cast<char>('a' + i)), files[i]);
    }
    return consolidate(from, to, options);
}
RewriteReport with_manifest(std::string const& from, std::string const& to, Index most) {
    ConsolidateOptions options;
    options.max_file_bytes = most;
    options.manifest = true;
    return consolidate(from, to, options);
}
std::vector<Way> ways() {
    return {
        {"two named files",
         [](auto const& from, auto const& to) {
             return with_map(from, to, {"a.safetensors", "b.safetensors", "b.safetensors"});
         }},
        {"one named file",
         [](auto const& from, auto const& to) {
             return with_map(from, to, {"all.safetensors", "all.safetensors", "all.safetensors"});
         }},
        {"names of PyTorch's shards",
         [](auto const& from, auto const& to) {
             return with_map(from, to,
                             {"shard-00001-model-00001-of-00001.safetensors",
                              "shard-00002-model-00001-of-00001.safetensors", "model.safetensors"});
         }},
        {"files by size",
         [](auto const& from, auto const& to) {
             ConsolidateOptions options;
             options.max_file_bytes = 200;
             return consolidate(from, to, options);
         }},
        {"one file", [](auto const& from, auto const& to) { return consolidate(from, to); }},
        {"one file and a manifest", [](auto const& from, auto const& to) { return with_manifest(from, to, 0); }},
        {"files by size and a manifest", [](auto const& from, auto const& to) { return with_manifest(from, to, 200); }},
        {"not durable",
         [](auto const& from, auto const& to) {
             ConsolidateOptions options;
             options.max_file_bytes = 200;
             options.durable = false;
             return consolidate(from, to, options);
         }},
        {"shards", [](auto const& from, auto const& to) { return shard_checkpoint(from, to, placed_as("(2):(S0)")); }}};
}

/// Where fewer cases are tried, a process ends at every third call: at the others in the next ways.
long first_call() {
    static long turn = 0;
    return test::fewer_seeds() ? turn++ % 3 : 0;
}
long call_step() { return test::fewer_seeds() ? 3 : 1; }

/// Names that readers look for.
std::set<std::string> published(std::string const& folder) {
    std::set<std::string> leaves;
    if (!std::filesystem::exists(folder)) return leaves;
    for (auto const& entry : std::filesystem::directory_iterator(folder)) {
        std::string const leaf = entry.path().filename();
        if (leaf.front() != '.' && entry.is_regular_file()) leaves.insert(leaf);
    }
    return leaves;
}

/// Whether every reader takes the folder for a checkpoint; what they take has all of every tensor. Never only some.
bool is_accepted(std::string const& folder, std::vector<Saved> const& list) {
    SelfCommunicator alone;
    bool const opens = caught([&] { static_cast<void>(Checkpoint::open(folder)); }).code == ErrorCode::none;
    bool const verifies = caught([&] { verify_checkpoint(folder, alone); }).code == ErrorCode::none;
    CHECK(opens == verifies);
    if (opens) CHECK(damage(folder, list) == "");
    // Readers of Hugging Face's tools follow the index, and take any *.safetensors where there is none. Parts of a save
    // have names that they do not take for a model.
    auto const leaves = published(folder);
    bool const has_index = leaves.count("model.safetensors.index.json") != 0;
    for (std::string const& leaf : leaves) {
        if (!leaf.ends_with(".safetensors") || leaf.find(".tmp.") != std::string::npos) continue;
        CHECK_MESSAGE((opens || has_index || reshard::detail::is_shard_file(leaf)), leaf);
    }
    return opens;
}

}  // namespace

TEST_SUITE("checkpoint/consolidate faults") {
    TEST_CASE("a process that ends at any call leaves all of it or nothing that is read, and the next try finishes") {
        int number = 0;
        for (Way const& way : ways()) {
            ++number;
            for (bool const beside : {false, true}) {  // PyTorch keeps the shards in a sub-folder of where files go
                long const first = first_call();
                if (test::fewer_seeds() && beside != (number % 2 == 0)) continue;  // each way in one of both
                CAPTURE(way.name);
                CAPTURE(beside);
                bool accepted = false;
                bool partial = false;
                bool told = false;
                bool died = true;
                for (long call = first; died; call += call_step()) {
                    CAPTURE(call);
                    TempFolder const folder;
                    std::string const out = beside ? folder.path() : folder / "out";
                    std::filesystem::create_directory(folder / "in");
                    write_sharded(folder / "in", model(), 2, Described::by_manifest);
                    died = dies_at(call, [&] { way.run(folder / "in", out); });
                    auto const left = published(out);
                    bool const whole = is_accepted(out, model());
                    accepted = accepted || whole;
                    partial = partial || (!whole && !left.empty());
                    if (!died) {
                        CHECK(whole);
                        bool const summed = left.count("reshard.manifest.json") != 0;
                        CHECK(summed == (contains(way.name, "manifest") || std::string_view(way.name) == "shards"));
                        break;
                    }
                    // A manifest comes last: until it is there full files are not all that was to be.
                    bool const lacks_manifest =
                        contains(way.name, "manifest") && left.count("reshard.manifest.json") == 0;
                    Caught const again = caught([&] {
                        RewriteReport const report = way.run(folder / "in", out);
                        CHECK(std::set<std::string>(report.left_over.begin(), report.left_over.end()) == left);
                        told = told || !report.left_over.empty();
                    });
                    if (whole && !lacks_manifest) {  // it was over, though it had not said so
                        CHECK(contains(again.message, "it is not empty"));
                        CHECK(published(out) == left);
                    } else {
                        CHECK_MESSAGE(again.code == ErrorCode::none, again.message);
                    }
                    CHECK(is_accepted(out, model()));
                    for (auto const& entry : std::filesystem::directory_iterator(out)) {
                        CHECK(entry.path().filename().string().front() != '.');
                    }
                }
                CHECK(accepted);
                CHECK(told == (std::string_view(way.name) != "one file"));  // which is not there, or all there is
                CHECK(partial == !std::string_view(way.name).starts_with("one file"));
            }
        }
    }

    TEST_CASE("a call that the system refuses, done or not, leaves nothing, or all of it") {
        for (Way const& way : ways()) {
            for (bool const done_anyway : {false, true}) {
                CAPTURE(way.name);
                CAPTURE(done_anyway);
                long failures = 0;
                bool refused = true;
                for (long call = done_anyway ? 0 : first_call(); refused; call += done_anyway ? 1 : call_step()) {
                    CAPTURE(call);
                    TempFolder const folder;
                    std::filesystem::create_directory(folder / "in");
                    write_sharded(folder / "in", model(), 2, Described::by_manifest);
                    Faults plan;
                    plan.at = call;
                    plan.error = EIO;
                    plan.all_threads = true;
                    plan.only = done_anyway ? "rename" : "";
                    plan.done_anyway = done_anyway;
                    faults = &plan;
                    Caught const error = caught([&] { way.run(folder / "in", folder / "out"); });
                    faults = nullptr;
                    CAPTURE(plan.failed);
                    CAPTURE(error.message);
                    refused = !plan.failed.empty();
                    bool const whole = is_accepted(folder / "out", model());
                    CHECK((whole || error.code == ErrorCode::io));
                    if (whole) continue;
                    ++failures;
                    // Only an unlink that the system refuses leaves what it was to remove.
                    if (plan.failed != "unlink") CHECK_FALSE(std::filesystem::exists(folder / "out"));
                    if (plan.failed == "unlink") continue;
                    way.run(folder / "in", folder / "out");
                    CHECK(is_accepted(folder / "out", model()));
                }
                CHECK(failures > 0);
            }
        }
    }

    TEST_CASE("where a run died, another one may fail or die as well, at any call: a third one finishes") {
        for (std::size_t const number : {std::size_t{0}, ways().size() - 1}) {
            Way const way = ways()[number];
            CAPTURE(way.name);
            TempFolder const dead;  // of a run that died at the last call at which it leaves some files and not all
            std::filesystem::create_directory(dead / "in");
            write_sharded(dead / "in", model(), 2, Described::by_manifest);
            Faults count;
            count.all_threads = true;
            faults = &count;
            CHECK(caught([&] { way.run(dead / "in", dead / "out"); }).code == ErrorCode::none);
            faults = nullptr;
            bool found = false;
            for (long call = count.calls; !found && call-- > 0;) {
                std::filesystem::remove_all(dead / "out");
                REQUIRE(dies_at(call, [&] { way.run(dead / "in", dead / "out"); }));
                found = !published(dead / "out").empty() && !is_accepted(dead / "out", model());
            }
            REQUIRE(found);
            for (bool const dies : {false, true}) {
                CAPTURE(dies);
                bool more = true;
                for (long call = first_call(); more; call += call_step()) {
                    CAPTURE(call);
                    TempFolder const folder;
                    using Options = std::filesystem::copy_options;
                    // The very files, as the note has them, but the locks: these are written to in place.
                    std::filesystem::copy(dead.path(), folder.path(), Options::recursive | Options::create_hard_links);
                    std::string const out = folder / "out";
                    for (auto const& entry : std::filesystem::directory_iterator(dead / "out")) {
                        if (entry.path().extension() != ".lock") continue;
                        std::string const lock = out + "/" + entry.path().filename().string();
                        std::filesystem::remove(lock);
                        std::filesystem::copy_file(entry.path(), lock);
                    }
                    Faults plan;
                    if (dies) {
                        more = dies_at(call, [&] { way.run(folder / "in", out); });
                    } else {
                        plan.at = call;
                        plan.error = EIO;
                        plan.all_threads = true;
                        faults = &plan;
                        static_cast<void>(caught([&] { way.run(folder / "in", out); }));
                        faults = nullptr;
                        more = !plan.failed.empty();
                    }
                    CAPTURE(plan.failed);
                    if (is_accepted(out, model())) continue;
                    Caught const third = caught([&] { way.run(folder / "in", out); });
                    CHECK_MESSAGE(third.code == ErrorCode::none, third.message);
                    CHECK(is_accepted(out, model()));
                    for (auto const& entry : std::filesystem::directory_iterator(out)) {
                        CHECK(entry.path().filename().string().front() != '.');
                    }
                }
            }
        }
    }

    TEST_CASE("what a dead run has noted is nothing to who comes after a save into that folder") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        write_sharded(folder / "in", model(), 2, Described::by_manifest);
        SelfCommunicator alone;
        std::vector<std::byte> memory(40);
        LocalTensor tensor{"w", distribution<Replicate>(Mesh{1}, Shape{40}),
                           DynamicView(memory.data(), DType::u8, Shape{40})};
        auto const save_to = [&](std::string const& to) { save(to, std::span(&tensor, 1), alone); };
        auto const shard = [&] {
            return caught([&] { shard_checkpoint(folder / "in", folder / "out", placed_as("(2):(S0)")); });
        };
        for (char const* const lock : {"out/.reshard.manifest.json.lock", "out/.model.safetensors.index.json.lock"}) {
            CAPTURE(lock);
            long kept = 0;
            bool died = true;
            for (long call = 0; died; ++call) {  // a save that dies leaves the lock to who comes next
                CAPTURE(call);
                std::filesystem::remove_all(folder / "out");
                std::filesystem::create_directory(folder / "out");
                write_text(folder / "out/model.safetensors", "full");
                write_text(folder / "out/.all.safetensors.tmp.7.0", "half of it");
                write_text(folder / "out/.own.safetensors.tmp.7.0", "of somebody who is at work");
                write_text(folder / lock,
                           note_of_files({{"model.safetensors", folder / "out/model.safetensors"},
                                          {"all.safetensors", folder / "out/.all.safetensors.tmp.7.0"}}));
                died = dies_at(call, [&] { save_to(folder / "out"); });
                bool const is_there = std::filesystem::exists(folder / "out/reshard.manifest.json");
                if (!died) {
                    CHECK(is_there);
                    CHECK(!std::filesystem::exists(folder / lock));
                    bool const of_files = contains(lock, "index");  // of a run that wrote full files
                    CHECK(std::filesystem::exists(folder / "out/.all.safetensors.tmp.7.0") != of_files);
                    CHECK(std::filesystem::exists(folder / "out/.own.safetensors.tmp.7.0"));
                    std::filesystem::remove(folder / "out/.all.safetensors.tmp.7.0");
                }
                if (!is_there) continue;
                ++kept;
                CHECK(contains(shard().message, "it is not empty"));
                CHECK(read_text(folder / "out/model.safetensors") == "full");
                CHECK(Checkpoint::open(folder / "out/reshard.manifest.json").tensors().size() == 1);
            }
            CHECK(kept > 1);
        }
    }

    TEST_CASE("a file that some rank cannot close is not there") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        write_sharded(folder / "in", model(), 2, Described::by_manifest);
        ConsolidateOptions options;
        options.durable = false;
        long refused = 0;
        for (long call = 0;; ++call) {
            Faults plan;
            plan.at = call;
            plan.error = EDQUOT;
            plan.only = "close";
            faults = &plan;
            auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
                counted = comm.rank() == 1;
                consolidate(folder / "in", folder / "out", comm, options);
            });
            faults = nullptr;
            std::filesystem::remove_all(folder / "out");
            if (plan.failed.empty()) break;
            if (thrown[0].code == ErrorCode::none) continue;  // it was read from
            ++refused;
            test::check_same(thrown, ErrorCode::io, {"rank 1 of 2: IoError: ", "cannot close it, bytes may be lost"});
        }
        CHECK(refused == 1);
    }

    TEST_CASE("a folder with half of the files says what has happened, and what to do") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        write_sharded(folder / "in", model(), 2, Described::by_manifest);
        Way const way = ways().front();
        bool seen = false;
        for (long call = 0; dies_at(call, [&] { way.run(folder / "in", folder / "out"); }); ++call) {
            auto const leaves = published(folder / "out");
            if (leaves.count("a.safetensors") != 0 && leaves.count("b.safetensors") == 0) {
                seen = true;
                check_io("1 of the 2 files it names are missing: 'b.safetensors'",
                         [&] { static_cast<void>(Checkpoint::open(folder / "out")); });
                check_io(
                    "Fix: a consolidation into this folder is under way, or was killed: wait for it, or run it again.",
                    [&] { static_cast<void>(Checkpoint::open(folder / "out")); });
                write_text(folder / "out/.x.tmp", "");  // nobody else's file is touched
                check_io("it is not empty: there is '.x.tmp'", [&] { way.run(folder / "in", folder / "out"); });
            }
            std::filesystem::remove_all(folder / "out");
        }
        CHECK(seen);
    }

    TEST_CASE("a note that names files of others removes nothing") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        std::filesystem::create_directory(folder / "out");
        write_sharded(folder / "in", model(), 2, Described::by_manifest);
        write_text(folder / "victim.safetensors", "12345");
        write_text(folder / "out/config.json", "12345");
        write_text(folder / "out/kept.safetensors", "12345");
        std::string const note = note_of_files({{"../victim.safetensors", folder / "victim.safetensors"},
                                                {"config.json", folder / "out/config.json"},
                                                {"kept.safetensors", folder / "out/kept.safetensors"},
                                                {"", folder / "out/kept.safetensors"},
                                                {"more.safetensors", folder / "out/kept.safetensors"}});
        write_text(folder / "out/kept.safetensors", "123456");
        write_text(folder / "out/.model.safetensors.index.json.lock", note + "5 1 1 1 torn.safetensors");
        check_io("it is not empty", [&] { consolidate(folder / "in", folder / "out"); });
        CHECK(read_text(folder / "victim.safetensors") == "12345");
        CHECK(published(folder / "out") == std::set<std::string>{"config.json", "kept.safetensors"});

        std::filesystem::remove_all(folder / "out");
        std::filesystem::create_directory(folder / "out");
        write_text(folder / "out/.reshard.nonce.notes", "of somebody else");
        write_text(folder / "out/.reshard.nonce.0123456789abcdef", "");
        check_io("it is not empty: there is '.reshard.nonce.notes'",
                 [&] { consolidate(folder / "in", folder / "out"); });
        CHECK(read_text(folder / "out/.reshard.nonce.notes") == "of somebody else");
    }

    TEST_CASE(
        "several files of one writer: a process that ends at any call leaves all of them or nothing that is read") {
        std::vector<TensorSpec> const specs = {{"a", DType::u8, Shape{64}}, {"b", DType::u8, Shape{64}}};
        std::set<std::set<std::string>> seen;
        bool died = true;
        for (long call = 0; died; ++call) {
            TempFolder const folder;
            died = dies_at(call, [&] {
                write_checkpoint(
                    folder / "out", specs,
                    [](CheckpointTensor const&, Index, std::span<std::byte> out) {
                        std::fill(out.begin(), out.end(), std::byte{7});
                    },
                    64);
            });
            auto const leaves = published(folder / "out");
            seen.insert(leaves);
            if (!leaves.empty()) CHECK(leaves.count("model.safetensors.index.json") != 0);
            bool const opens =
                caught([&] { static_cast<void>(Checkpoint::open(folder / "out")); }).code == ErrorCode::none;
            CHECK(opens == (leaves.size() == 3));
        }
        CHECK(seen.size() == 4);  // nothing, the index, one file more, all
    }
}
