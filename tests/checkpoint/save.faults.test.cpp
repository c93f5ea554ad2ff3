// SPDX-License-Identifier: Apache-2.0
// include/reshard/checkpoint/save.hpp when the system fails: every call to it in turn, with every error that matters,
// and a process that dies at every call, or is killed at any moment. The calls come here by way of
// faults_calls.hpp.
#include <reshard/checkpoint/save.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/detail/temporary_file.hpp>
#include <reshard/checkpoint/file.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../support/random.hpp"
#include "../support/thrown.hpp"
#include "faults_calls.hpp"
#include "save_versions.hpp"

namespace {
using namespace reshard;
using namespace checkpoint_test;

/// Loads one tensor in one of three ways: its bytes.
std::vector<std::byte> load_one(std::string const& folder, CommunicatorRef comm, int way = 0) {
    std::vector<std::byte> memory(20);
    auto const everywhere = distribution<Replicate>(Mesh{comm.size()}, Shape{20});
    LocalTensor tensor{"cyclic", everywhere, DynamicView(memory.data(), DType::u8, Shape{20})};
    std::span<LocalTensor const> const list(&tensor, 1);
    if (way == 0) load(folder, list, comm, EachRankReadsItsBoxes{});
    if (way == 1) load(folder, list, comm, CooperativeRead{.window_bytes = 4, .cooperation = Cooperation::always});
    if (way == 2) load(folder, list, comm, OneRankReads{});
    return memory;
}
/// Whether those are its bytes of that version.
bool holds(std::vector<std::byte> const& bytes, int const& version) {  // which may change while they are loaded
    TrainedBytes const expected("cyclic", version, 0);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != expected.at(static_cast<Index>(i))) return false;
    return true;
}
/// The folders that are synced meanwhile, by threads that are counted.
template <class Body>
std::vector<std::string> synced_by(Body const& body) {
    std::vector<std::string> folders;
    before_sync = [&](int file) {
        if (counted) folders.push_back(std::filesystem::read_symlink(errors::concat("/proc/self/fd/", file)));
    };
    counted = true;
    body();
    counted = false;
    before_sync = {};
    return folders;
}
/// Where fewer cases are tried, every third call is.
long call_step() { return test::fewer_seeds() ? 3 : 1; }

}  // namespace

TEST_SUITE("checkpoint/save faults") {
    TEST_CASE("a process that ends at any call leaves the save before, or the new one, and the next save tidies up") {
        for (int const before : {0, 1}) {
            bool seen[3] = {};
            long calls = test::fewer_seeds() ? before : 0;
            for (bool done = false; !done; calls += call_step()) {
                CAPTURE(calls);
                TempFolder const folder;
                if (before != 0) save_model(folder.path(), before);
                done = !dies_at(calls, [&] { save_model(folder.path(), 2); });
                int const version = version_of(folder);
                CHECK((version == before || version == 2));
                if (done) CHECK(version == 2);
                seen[version] = true;
                check_next_save(folder, 3 - version % 2);
            }
            CHECK(calls > 30);
            CHECK(seen[before]);
            CHECK(seen[2]);
        }
    }

    TEST_CASE("a call that fails on one rank is the same error on all; the save before is whole, nothing else stays") {
        for (int const rank : {0, 2}) {
            for (int const error : {ENOSPC, EIO, EROFS}) {
                if (test::fewer_seeds() && (rank == 0) == (error == EIO)) continue;  // each of both once at least
                bool succeeded = false;
                for (long call = test::fewer_seeds() && error == EROFS ? 1 : 0; !succeeded || call < 5;
                     call += call_step()) {
                    REQUIRE(call < 200);
                    TempFolder const folder;
                    save_model(folder.path(), 1);
                    Faults plan;
                    plan.at = call;
                    plan.error = error;
                    faults = &plan;
                    auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
                        Trained mine(model(), comm.rank(), 2);
                        counted = comm.rank() == rank;
                        save(folder.path(), mine.list(), comm, options(2));
                    });
                    faults = nullptr;
                    CAPTURE(rank);
                    CAPTURE(call);
                    CAPTURE(plan.failed);
                    CAPTURE(thrown[0].message);
                    int const version = version_of(folder);
                    bool const complete = contains(thrown[0].message, "the new save is complete") ||
                                          contains(thrown[0].message, "a power cut may undo that");
                    if (thrown[0].code == ErrorCode::none) {  // it was of no consequence, or there was no such call
                        for (auto const& each : thrown) CHECK(each == thrown[0]);
                        CHECK(version == 2);
                        succeeded = succeeded || plan.failed.empty();
                    } else {
                        test::check_same(thrown, ErrorCode::io, {errors::concat("rank ", rank, " of 3: IoError: ")});
                        CHECK(version == (complete ? 2 : 1));
                        // Once the index was renamed, or tried to be, nothing is taken back.
                        bool const tried = contains(thrown[0].message, "see which save the folder opens as");
                        if (!complete && !tried) CHECK(folder.leaves() == named_leaves(folder.path()));
                    }
                    check_next_save(folder, 3);
                }
            }
        }
    }

    TEST_CASE("renames that were done but say that they failed: the folder holds a whole save, old or new") {
        bool seen[3] = {};
        for (long call = 0; call < 2; ++call) {  // of rank 0: its file, the index
            TempFolder const folder;
            save_model(folder.path(), 1);
            Faults plan;
            plan.at = call;
            plan.error = EIO;
            plan.only = "rename";
            plan.done_anyway = true;
            faults = &plan;
            auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 2);
                counted = comm.rank() == 0;
                save(folder.path(), mine.list(), comm, options(2));
            });
            faults = nullptr;
            test::check_same(thrown, ErrorCode::io, {"rank 0 of 3: IoError: ", "cannot rename"});
            CHECK(contains(thrown[0].message, "see which save the folder opens as") == (call == 1));
            seen[version_of(folder)] = true;
            check_next_save(folder, 3);
        }
        CHECK(seen[1]);
        CHECK(seen[2]);
    }

    TEST_CASE("a rank that is lost once the index has its name: each rank says what it knows the folder to hold") {
        for (bool const behind : {false, true}) {
            CAPTURE(behind);
            TempFolder const folder;
            save_model(folder.path(), 1);
            auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 2);
                barrier(comm);
                if (comm.rank() == 0) {
                    after_call = [&](DiskCall const& call) {
                        if (call.kind == DiskCall::Kind::rename && call.to == folder / manifest_name)
                            comm.abort(ErrorCode::user, "no more");
                    };
                }
                barrier(comm);
                if (behind)
                    start_save(folder.path(), mine.list(), comm, options(2)).wait();
                else
                    save(folder.path(), mine.list(), comm, options(2));
            });
            after_call = {};
            for (std::size_t rank = 0; rank < 3; ++rank) {
                CAPTURE(thrown[rank].message);
                CHECK(thrown[rank].message.ends_with(rank == 0
                                                         ? "(The save is complete: the folder holds it.)"
                                                         : "(The folder holds this save, or what it held before.)"));
            }
            CHECK(version_of(folder) == 2);
            check_next_save(folder, 3);
        }
    }

    TEST_CASE("a file that cannot be closed is not saved, durable or not") {
        for (bool const durable : {false, true}) {
            TempFolder const folder;
            save_model(folder.path(), 1);
            long refused = 0;
            for (long call = 0;; ++call) {
                Faults plan;
                plan.at = call;
                plan.error = EDQUOT;
                plan.only = "close";
                faults = &plan;
                auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
                    Trained mine(model(), comm.rank(), 2);
                    counted = comm.rank() == 1;  // its own file is all that it closes, or folders besides
                    SaveOptions how = options(2);
                    how.durable = durable;
                    save(folder.path(), mine.list(), comm, how);
                });
                faults = nullptr;
                if (plan.failed.empty()) break;
                if (thrown[0].code == ErrorCode::none) continue;
                ++refused;
                test::check_same(thrown, ErrorCode::io,
                                 {"rank 1 of 3: IoError: ", "cannot close it, bytes may be lost"});
                CHECK(version_of(folder) == 1);
                CHECK(folder.leaves() == named_leaves(folder.path()));
            }
            CHECK(refused == 1);
        }
    }

    TEST_CASE("a folder that is made has its name durably, before anything is written to it") {
        TempFolder const folder;
        std::string const parent = std::filesystem::canonical(folder.path());
        SelfCommunicator alone;
        std::vector<PlacedTensor> const one{source("w", DType::f32, "(1):(R)", Shape{10})};
        auto const save_to = [&](std::string const& to, bool durable) {
            Trained mine(one, 0, 1);
            save(to, mine.list(), alone, {.durable = durable});
        };
        struct Maker {
            char const* leaf;
            std::function<void(std::string const&)> make;
        };
        auto const fill = [](CheckpointTensor const&, Index, std::span<std::byte> out) {
            std::fill(out.begin(), out.end(), std::byte{7});
        };
        save_to(folder / "from", true);
        std::vector<Maker> const makers{
            {"save", [&](std::string const& to) { save_to(to, true); }},
            {"slash/", [&](std::string const& to) { save_to(to, true); }},
            {"writer",
             [&](std::string const& to) {
                 write_checkpoint(to, {{"a", DType::u8, Shape{9}}}, fill);
             }},
            {"rewritten", [&](std::string const& to) { consolidate(folder / "from", to); }}};
        for (Maker const& maker : makers) {
            CAPTURE(maker.leaf);
            while_one_fails("fsync", EIO, [&] {
                check_io("a power cut may take the new folder in it: cannot sync the folder",
                         [&] { maker.make(folder / maker.leaf); });
            });
            if (std::filesystem::exists(folder / maker.leaf)) {
                CHECK(std::filesystem::is_empty(folder / maker.leaf));
                std::filesystem::remove(folder / maker.leaf);
            }
            auto const folders = synced_by([&] { maker.make(folder / maker.leaf); });
            REQUIRE(folders.size() > 1);
            CHECK(folders[0] == parent);
            CHECK(folders.back() != parent);
        }
        check_io("cannot sync the folder: No such file or directory (errno 2). Fix: let this process read it",
                 [&] { detail::sync_folder(folder / "nowhere"); });
        for (std::string const& synced : synced_by([&] { save_to(folder / "save", true); })) CHECK(synced != parent);
        int runs = 0;
        for (Maker const& maker : makers) {  // so have those that it lies in, the outermost first
            CAPTURE(maker.leaf);
            std::string const outer = errors::concat("run", ++runs);
            auto folders = synced_by([&] { maker.make(folder / errors::concat(outer, "/step/", maker.leaf)); });
            REQUIRE(folders.size() > 3);
            folders.resize(3);
            CHECK(folders ==
                  std::vector{parent, errors::concat(parent, "/", outer), errors::concat(parent, "/", outer, "/step")});
        }
        CHECK(synced_by([&] { save_to(folder / "not durable", false); }).empty());
    }

    TEST_CASE("a signal while files are opened and made durable does not end a save") {
        for (char const* const what : {"open", "fdatasync", "fsync"}) {  // of any, of files, of folders
            CAPTURE(what);
            long calls = 0;
            for (bool interrupted = true; interrupted; ++calls) {
                TempFolder const folder;
                Caught error;
                auto const save = [&] { error = caught([&] { save_model(folder.path(), 1); }); };
                interrupted = !while_one_fails(what, EINTR, save, calls).empty();
                CHECK(error.message == "");
                CHECK(version_of(folder) == 1);
            }
            CHECK(calls > 1);
        }
    }

    TEST_CASE("writes that move less than they were asked for go on") {
        TempFolder const folder;
        Faults plan;
        plan.longest = 7;
        faults = &plan;
        save_model(folder.path(), 1);
        faults = nullptr;
        CHECK(version_of(folder) == 1);
    }

    TEST_CASE("writes that move nothing, and a lock that cannot be looked at, end with an error") {
        TempFolder const folder;
        save_model(folder.path(), 1);
        auto const refused = [&](Faults& plan, std::vector<std::string> const& parts) {
            faults = &plan;
            auto const thrown = test::thrown_by(3, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 2);
                counted = comm.rank() == 0;
                save(folder.path(), mine.list(), comm, options(2));
            });
            faults = nullptr;
            test::check_same(thrown, ErrorCode::io, parts);
            CHECK(version_of(folder) == 1);
        };
        Faults none;
        none.longest = 0;
        refused(none, {"cannot write", "Input/output error"});
        Faults blind;
        blind.at = 0;
        blind.error = EIO;
        blind.only = "fstat";
        blind.lasting = true;
        refused(blind, {"rank 0 of 3: IoError: ", ".lock was locked 1000 times"});
        check_next_save(folder, 3);
    }

    TEST_CASE("readers that saves overtake read a newer save, whole, or say what has happened") {
        TempFolder const folder;
        int version = 1;
        save_model(folder.path(), version);
        // Opens of files of saves, by threads that are counted, come too late as often as that: a save has taken place.
        long times = 0;
        before_open = [&](std::string_view path) {
            if (!counted || times == 0 || !path.ends_with(".safetensors")) return;
            --times;
            counted = false;
            save_model(folder.path(), ++version);
            counted = true;
        };
        auto const overtaken = [&](long saves, auto const& body) {
            times = saves;
            counted = true;
            body();
            counted = false;
        };
        constexpr char const* words = "a save into this folder has overtaken this reader";
        SelfCommunicator alone;
        for (long const saves : {1, 3}) {
            overtaken(saves, [&] {
                Checkpoint const checkpoint = Checkpoint::open(folder.path());
                CHECK(checkpoint.manifest().metadata.at(0).second == std::to_string(version));
            });
            overtaken(saves, [&] { CHECK(holds(load_one(folder.path(), alone), version)); });
            overtaken(saves, [&] { CHECK(verify_checkpoint(folder.path(), alone).tensors == 4); });
            int const before = version;
            for (int const way : {0, 1, 2}) {
                run_on_threads(3, [&](ThreadCommunicator& comm) {
                    if (comm.rank() == 0) times = saves;
                    barrier(comm);
                    counted = comm.rank() == (way == 2 ? 0 : 1);  // one rank misses a file, all start again
                    CHECK(holds(load_one(folder.path(), comm, way), version));
                    counted = false;
                });
            }
            CHECK(version == before + 3 * saves);
        }
        int const before = version;
        overtaken(-1, [&] { check_io(words, [&] { static_cast<void>(Checkpoint::open(folder.path())); }); });
        CHECK(version == before + reshard::detail::most_overtakings);
        overtaken(-1, [&] {
            check_io("Fix: load again, and let saves and loads of one folder take turns; or",
                     [&] { load_one(folder.path(), alone); });
        });
        overtaken(-1, [&] {
            auto const error = caught([&] { static_cast<void>(verify_checkpoint(folder.path(), alone)); });
            CHECK(contains(error.message, words));
        });
        before_open = {};
        CHECK(version_of(folder) == version);
    }

    TEST_CASE("a reader that has all files open reads the save that it opened, whatever becomes of the folder") {
        TempFolder const folder;
        save_model(folder.path(), 1);
        Checkpoint const before = Checkpoint::open(folder.path());
        save_model(folder.path(), 2);
        std::vector<std::byte> memory(20);
        LocalTensor tensor{"cyclic", parse("(1):(R)", Shape{20}), DynamicView(memory.data(), DType::u8, Shape{20})};
        load(before, std::span(&tensor, 1), 0);
        CHECK(holds(memory, 1));
        auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {  // ranks of two saves
            std::vector<std::byte> mine(20);
            LocalTensor one{"cyclic", parse("(2):(R)", Shape{20}), DynamicView(mine.data(), DType::u8, Shape{20})};
            Checkpoint const own = Checkpoint::open(folder.path());
            agree_loaded(comm, load(comm.rank() == 0 ? before : own, std::span(&one, 1), comm.rank()));
        });
        test::check_same(thrown, ErrorCode::mismatch, {"loaded 1 tensors from files with digest"});
    }

    TEST_CASE("a process that is killed at any moment leaves a whole save") {
        auto const seed = static_cast<unsigned>(test::seeds(1)[0]);
        CAPTURE(seed);
        std::mt19937 random(seed);
        TempFolder const folder;
        int last = 0;
        for (int kill = 0; kill < 30; ++kill) {
            CAPTURE(kill);
            pid_t const child = start_child([&] {
                for (int version = last + 1;; ++version) save_model(folder.path(), version);
            });
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
            REQUIRE(::kill(child, SIGKILL) == 0);
            REQUIRE(::waitpid(child, nullptr, 0) == child);
            int const version = version_of(folder);
            CHECK(version >= last);
            last = version;
        }
        check_next_save(folder, last + 1);
    }
}
