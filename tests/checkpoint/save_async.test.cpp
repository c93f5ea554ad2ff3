// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/save_async.hpp: what is saved is what the tensors held when start_save() returned.
#include <reshard/checkpoint/save_async.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "../support/thrown.hpp"
#include "save_support.hpp"

namespace {
using namespace reshard;
using namespace checkpoint_test;

std::vector<PlacedTensor> model() {
    return {source("w", DType::f32, "(2,2):(R,S0)", Shape{300, 133}),
            source("b", DType::bf16, "(2,2):(R,R)", Shape{77}), source("cyclic", DType::u8, "(4):(S0:cyc3)", Shape{50}),
            source("step", DType::i64, "(2,2):(R,R)", Shape{})};
}
void spoil(std::vector<LocalTensor>& list) {
    for (LocalTensor& tensor : list) {
        if (tensor.view.size() > 0) {
            std::memset(tensor.view.data(), 0xEE,
                        static_cast<std::size_t>(tensor.view.size() * bytes(tensor.view.dtype())));
        }
    }
}
void save_now(std::string const& folder, int version) {
    run_on_threads(4, [&](ThreadCommunicator& comm) {
        Trained mine(model(), comm.rank(), version);
        save(folder, mine.list(), comm);
    });
}
std::vector<PlacedTensor> one() { return {source("w", DType::f32, "(1):(R)", Shape{40'000})}; }

}  // namespace

TEST_SUITE("checkpoint/save_async") {
    TEST_CASE("a forked child that ends with its copy of a save leaves the save alone") {
        TempFolder const folder;
        SelfCommunicator comm;
        Trained mine(one(), 0, 3);
        SaveRequest saving = start_save(folder.path(), mine.list(), comm);
        pid_t const child = ::fork();
        if (child == 0) {
            ::alarm(60);  // who waits is ended by a signal
            saving = SaveRequest();
            ::_exit(0);
        }
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK_THROWS_AS(save(folder.path(), mine.list(), comm), IoError);  // the folder is still its own
        saving.wait();
        CHECK(damage(folder.path()) == "");
    }

    TEST_CASE("tensors that change after start_save() are saved as they were, whatever fits the snapshot") {
        TempFolder const folder;
        int version = 0;
        for (Index const snapshot : {Index{0}, Index{1} << 30, Index{10'000}, Index{1}}) {
            for (int const threads : {1, 3}) {
                CAPTURE(snapshot);
                CAPTURE(threads);
                ++version;
                run_on_threads(4, [&](ThreadCommunicator& comm) {
                    Trained mine(model(), comm.rank(), version);
                    SaveOptions const options{
                        .dedup = SaveDedup::shared, .in_flight = threads, .snapshot_bytes = snapshot};
                    SaveRequest saving = start_save(folder.path(), mine.list(), comm, options);
                    spoil(mine.list());
                    barrier(comm);  // the communicator is free meanwhile
                    while (!saving.test()) std::this_thread::yield();
                    SaveReport const report = saving.wait();
                    CHECK(report.bytes_saved == plan_save(model(), 4, options).bytes_written);
                    CHECK(report.seconds_blocked <= report.seconds);
                    CHECK(report.collectives == Collectives{0, 1, 2, 7});
                    if (snapshot == 10'000) CHECK(report.extra_bytes <= 10'000);
                    if (snapshot == 1) CHECK(report.extra_bytes <= 64);
                    CHECK(saving.test());
                    CHECK_THROWS_AS(saving.wait(), BufferError);
                });
                CHECK(damage(folder.path()) == "");
                CHECK(holds_version(folder.path(), model(), version));
                CHECK(folder.leaves() == named_leaves(folder.path()));
            }
        }
    }

    TEST_CASE("until wait() the folder holds the save before; a dropped handle leaves it so") {
        TempFolder const folder;
        save_now(folder.path(), 1);
        auto const leaves = folder.leaves();
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            Trained mine(model(), comm.rank(), 2);
            auto saving = start_save(folder.path(), mine.list(), comm, {.snapshot_bytes = comm.rank() % 2 * 1000});
            while (!saving.test()) std::this_thread::yield();
            barrier(comm);
            if (comm.rank() == 0) CHECK(holds_version(folder.path(), model(), 1));
            barrier(comm);
            saving = {};
        });
        CHECK(folder.leaves() == leaves);
        CHECK(holds_version(folder.path(), model(), 1));
        save_now(folder.path(), 3);
        CHECK(holds_version(folder.path(), model(), 3));
    }

    TEST_CASE("a handle that is dropped while it writes stops") {
        TempFolder const folder;
        SelfCommunicator self;
        Trained mine(one(), 0, 1);
        std::atomic<bool> dropping{false};
        SaveOptions options{.in_flight = 1, .snapshot_bytes = 0};
        std::atomic<int> pieces{0};
        options.progress = [&](Index, Index) {
            ++pieces;
            while (!dropping) std::this_thread::yield();
        };
        {
            auto const saving = start_save(folder.path(), mine.list(), self, options);
            CHECK_FALSE(saving.test());
            dropping = true;
        }
        CHECK(folder.leaves().empty());
    }

    TEST_CASE("a second save into the folder is refused by name while one is under way, into another it is not") {
        TempFolder const folder;
        TempFolder const other;
        SelfCommunicator self;
        Trained mine(one(), 0, 1);
        auto saving = start_save(folder.path(), mine.list(), self);
        check_io(folder.path() + ": another save into this folder is under way",
                 [&] { static_cast<void>(start_save(folder.path(), mine.list(), self)); });
        check_io(folder.path() + ": another save into this folder is under way",
                 [&] { save(folder.path(), mine.list(), self); });
        auto second = start_save(other.path(), mine.list(), self);
        second.wait();
        saving.wait();
        CHECK(holds_version(folder.path(), one(), 1));
        CHECK(holds_version(other.path(), one(), 1));
        start_save(folder.path(), mine.list(), self).wait();
    }

    TEST_CASE(
        "ranks that wait for saves in another order are told which, and neither is saved; in one order both are") {
        TempFolder const first;
        TempFolder const second;
        auto const save_both = [&](int version, bool crossed) {
            std::string texts;  // of rank 0, which has the errors of all
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                Trained mine(one(), comm.rank(), version);
                auto saving = start_save(first.path(), mine.list(), comm);
                auto other = start_save(second.path(), mine.list(), comm, {.vote_bytes = 1});
                bool const swaps = crossed && comm.rank() == 1;
                for (auto* request : {swaps ? &other : &saving, swaps ? &saving : &other}) {
                    Caught const error = caught([&] { request->wait(); });
                    CHECK(error.code == (crossed ? ErrorCode::mismatch : ErrorCode::none));
                    if (comm.rank() == 0) texts += error.message;
                }
            });
            return texts;
        };
        auto const says = [](std::string const& a, std::string const& b) {
            return errors::concat("rank 1 of 2: waits for its save into ", b, ", but rank 0 waits for its save into ",
                                  a);
        };
        std::string const texts = save_both(1, true);
        CHECK(contains(texts, says(first.path(), second.path())));
        CHECK(contains(texts, says(second.path(), first.path())));
        CHECK(first.leaves().empty());
        CHECK(second.leaves().empty());
        CHECK(save_both(2, false).empty());
        save_both(3, true);  // what was there stays
        CHECK(holds_version(first.path(), one(), 2));
        CHECK(holds_version(second.path(), one(), 2));
    }

    TEST_CASE("what fails behind the trainer's back is the error of all ranks in wait()") {
        TempFolder const folder;
        save_now(folder.path(), 1);
        auto const leaves = folder.leaves();
        for (Index const snapshot : {0, 200}) {
            auto const thrown = test::thrown_by(4, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 2);
                SaveOptions options{.snapshot_bytes = snapshot};
                if (comm.rank() == 2) {
                    options.progress = [](Index, Index) { errors::raise(ErrorCode::io, "IoError: lost. Fix: none."); };
                }
                auto saving = start_save(folder.path(), mine.list(), comm, options);
                spoil(mine.list());
                saving.wait();
            });
            test::check_same(thrown, ErrorCode::io, {"rank 2 of 4: IoError: lost."});
            CHECK(folder.leaves() == leaves);
            CHECK(holds_version(folder.path(), model(), 1));
        }
    }

    TEST_CASE("ranks vote while they write: nobody waits for a whole save, and who fails stops the others") {
        Index const unit = Index{8} << 20;
        auto const run = [&](bool behind, bool fails, Index vote_bytes) {
            TempFolder const folder;
            std::vector<Index> agreements(2);
            std::vector<int> units(2);
            auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
                auto const rank = static_cast<std::size_t>(comm.rank());
                // Rank 0 has half as much to write.
                std::vector<PlacedTensor> const list{source("w", DType::u8, "(2):(S0)", Shape{8 * unit}),
                                                     source("more", DType::u8, "(1)+1:(R)", Shape{4 * unit})};
                std::deque<std::vector<std::byte>> memory;  // what the bytes are is all one
                std::vector<LocalTensor> mine;
                for (PlacedTensor const& each : list) {
                    bool const holds = each.distribution.contains(comm.rank());
                    DynamicShape const shape =
                        holds ? each.distribution.local_shape(comm.rank()) : DynamicShape(Shape{0});
                    memory.emplace_back(static_cast<std::size_t>(detail::larger<Index>(shape.size(), 1)));
                    mine.push_back(
                        {each.name, each.distribution, DynamicView(memory.back().data(), each.dtype, shape)});
                }
                SaveOptions options{.durable = false, .vote_bytes = vote_bytes};
                options.progress = [&](Index, Index) {
                    ++units[rank];
                    if (fails && rank == 1 && units[rank] == 2) throw 42;
                };
                SaveReport const report = behind ? start_save(folder.path(), mine, comm, options).wait()
                                                 : save(folder.path(), mine, comm, options);
                agreements[rank] = report.collectives.agreements;
            });
            if (fails) {
                for (auto const& each : thrown)
                    CHECK(each.message == "rank 1 of 2: an exception that is not a std::exception");
                CHECK(!std::filesystem::exists(folder / "reshard.manifest.json"));
                if (!behind) CHECK(units == std::vector<int>{1, 2});  // two of eight are before the first vote
            } else {
                for (auto const& each : thrown) CHECK(each.message == "");
                CHECK(units == std::vector<int>{4, 8});
            }
            CHECK(agreements[0] == agreements[1]);
            return agreements[0];
        };
        for (bool const behind : {false, true}) {
            CAPTURE(behind);
            run(behind, true, 2 * unit);
            CHECK(run(behind, false, 2 * unit) == 3 + run(behind, false, 8 * unit));
        }
    }

    TEST_CASE("what can be found at once is found by start_save()") {
        TempFolder const folder;
        auto const thrown = test::thrown_by(4, [&](ThreadCommunicator& comm) {
            Trained mine(model(), comm.rank(), 1);
            if (comm.rank() == 1) mine.list()[1].view.data()[0] ^= std::byte{1};
            static_cast<void>(start_save(folder.path(), mine.list(), comm));
        });
        test::check_same(thrown, ErrorCode::mismatch, {"'b' BF16 on ranks 0-3: rank 1 is odd"});
        SaveRequest empty;
        CHECK(empty.test());
        CHECK_THROWS_AS(empty.wait(), BufferError);
    }

    TEST_CASE("a folder that goes away meanwhile is an error, not a crash") {
        TempFolder const folder;
        SelfCommunicator self;
        Trained mine(one(), 0, 1);
        auto saving = start_save(folder / "inside", mine.list(), self);
        while (!saving.test()) std::this_thread::yield();
        std::filesystem::remove_all(folder / "inside");
        check_io("cannot rename", [&] { saving.wait(); });
    }
}
