// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/save.hpp: what a save leaves in a folder, and what stops it. What happens when
// calls to the system fail, or a process dies, is in save.faults.test.cpp.
#include <reshard/checkpoint/save.hpp>

#include <reshard/checkpoint/load.hpp>
#include <reshard/core/tensor.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "../support/random.hpp"
#include "../support/thrown.hpp"
#include "save_support.hpp"

namespace {
using namespace reshard;
using namespace checkpoint_test;

std::vector<PlacedTensor> model() {
    return {source("w", DType::f32, "(2,2):(R,S0)", Shape{40, 33}),
            source("b", DType::bf16, "(2,2):(R,R)", Shape{77}),
            source("cyclic", DType::u8, "(4):(S0:cyc3)", Shape{50}),
            source("columns", DType::i64, "(2,2):(S1,R)", Shape{5, 9}),
            source("step", DType::i64, "(2,2):(R,R)", Shape{}),
            source("none", DType::f32, "(2,2):(S0,R)", Shape{0, 3}),
            source("of one", DType::f16, "(1)+3:(R)", Shape{6})};
}

/// Saves a version of the model on threads; returns the reports.
std::vector<SaveReport> save_model(std::string const& folder, std::vector<PlacedTensor> const& sources, int ranks,
                                   int version, SaveOptions const& options = {}, bool gaps = false) {
    std::vector<SaveReport> reports(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        Trained mine(sources, comm.rank(), version, options, gaps);
        reports[static_cast<std::size_t>(comm.rank())] = save(folder, mine.list(), comm, options);
    });
    return reports;
}

void check_holds(TempFolder const& folder, std::vector<PlacedTensor> const& sources, int version) {
    CHECK(damage(folder.path()) == "");
    CHECK(holds_version(folder.path(), sources, version));
    CHECK(folder.leaves() == named_leaves(folder.path()));
}

}  // namespace

TEST_SUITE("checkpoint/save") {
    TEST_CASE("every element of every copy is in the folder, whatever the policy and the memory") {
        for (SaveDedup dedup : {SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared}) {
            for (bool const gaps : {false, true}) {
                for (int apart = 0; apart < 3; ++apart) {
                    SaveOptions options{.dedup = dedup, .small_bytes = 100, .min_slice_bytes = 64};
                    if (apart > 0) options.replica_axes = {0};
                    if (apart > 1) options.replica_axes = {0, 1};
                    CAPTURE(name(dedup));
                    CAPTURE(apart);
                    TempFolder const folder;
                    save_model(folder.path(), model(), 4, 1, options, gaps);
                    check_holds(folder, model(), 1);
                }
            }
        }
    }

    TEST_CASE("const tensors, const views and lists of both are saved") {
        TempFolder const folder;
        auto const where = parse("(1):(R)", Shape{3});
        Tensor<float> made{Shape{3}};
        for (int i = 0; i < 3; ++i) made(i) = static_cast<float>(i);
        Tensor<float> const& tensor = made;
        std::vector<float> const weights{3, 4, 5};
        SelfCommunicator comm;
        LocalTensor const other{"other", where, made.view()};
        std::vector<ConstLocalTensor> const tensors{
            {"tensor", where, tensor.view()}, {"weights", where, TensorView(weights.data(), Shape{3})}, other};
        CHECK(save(folder.path(), tensors, comm).tensors == 3);
        auto const at = [&](char const* name) {
            auto const checkpoint = Checkpoint::open(folder.path(), Access::mmap);
            auto const view = checkpoint.view(checkpoint.at(name));
            return std::vector<std::byte>(view.data(), view.data() + 3 * sizeof(float));
        };
        auto const* const expected = reinterpret_cast<std::byte const*>(weights.data());
        CHECK(at("weights") == std::vector<std::byte>(expected, expected + 3 * sizeof(float)));
        CHECK(at("tensor") == at("other"));
    }

    TEST_CASE("tensors that repeat elements, as broadcast_to() and expand() make them, are saved in full") {
        for (SaveDedup dedup : {SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared}) {
            TempFolder const folder;
            std::vector<double> const numbers{1, 2, 3, 4, 5, 6};
            DynamicShape const shape{Shape{4, 6}};
            auto const rows = parse("(2):(S0)", shape);
            auto const copies = parse("(2):(R)", shape);
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                DynamicShape const mine = rows.local_shape(comm.rank());
                std::vector<ConstLocalTensor> const tensors{
                    {"row", rows, TensorView(numbers.data(), mine, {0, 1})},
                    {"column", copies, TensorView(numbers.data(), shape, {1, 0})},
                    {"one", copies, TensorView(numbers.data() + 5, shape, {0, 0})}};
                SaveOptions const options{.dedup = dedup, .min_slice_bytes = 8};
                CHECK(save(folder.path(), tensors, comm, options).tensors == 3);
            });
            Tensor<double> row{shape}, column{shape}, one{shape};
            auto const whole = parse("(1):(R)", shape);
            std::vector<LocalTensor> const all{
                {"row", whole, row.view()}, {"column", whole, column.view()}, {"one", whole, one.view()}};
            load(Checkpoint::open(folder.path()), all, 0);
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 6; ++j) {
                    CHECK(row(i, j) == numbers[static_cast<std::size_t>(j)]);
                    CHECK(column(i, j) == numbers[static_cast<std::size_t>(i)]);
                    CHECK(one(i, j) == 6);
                }
            }
        }
    }

    TEST_CASE("a save replaces the one before it, and leaves files alone that are not its own") {
        TempFolder const folder;
        save_model(folder.path(), model(), 5, 1);
        check_holds(folder, model(), 1);
        Manifest const first = read_manifest(folder.path());
        std::vector<std::string> const others{"notes.txt", "shard-00001-of-00004.0123456789abcdef.safetensors.bak",
                                              ".shard-x.tmp.1.2", "model-00001-of-00002.safetensors"};
        for (std::string const& leaf : others) write_text(folder / leaf, "of somebody else");
        // What saves that died have left goes.
        write_text(folder / "shard-00001-of-00004.0123456789abcdef.safetensors", "stale");
        write_text(folder / ".shard-00001-of-00004.0123456789abcdef.safetensors.tmp.17.0", "stale");
        write_text(folder / ".reshard.manifest.json.tmp.17.3", "stale");
        save_model(folder.path(), model(), 4, 2);
        CHECK(damage(folder.path()) == "");
        CHECK(holds_version(folder.path(), model(), 2));
        std::vector<std::string> expected = named_leaves(folder.path());
        expected.insert(expected.end(), others.begin(), others.end());
        std::sort(expected.begin(), expected.end());
        CHECK(folder.leaves() == expected);
        Manifest const second = read_manifest(folder.path());
        CHECK(second.save != first.save);
        CHECK(second.world_size == 4);
        CHECK(first.world_size == 5);
    }

    TEST_CASE("a save puts files in the place of links, and leaves alone what these lead to") {
        TempFolder const other;
        save_model(other.path(), model(), 4, 1);
        auto const before = other.leaves();
        TempFolder const folder;
        for (std::string const& leaf : before) std::filesystem::create_symlink(other / leaf, folder / leaf);
        check_holds(folder, model(), 1);
        save_model(folder.path(), model(), 4, 2);
        check_holds(folder, model(), 2);
        for (std::string const& leaf : folder.leaves()) CHECK_FALSE(std::filesystem::is_symlink(folder / leaf));
        CHECK(other.leaves() == before);
        check_holds(other, model(), 1);
    }

    TEST_CASE("a save of windows into the map of the save that it replaces") {
        TempFolder const folder;
        std::vector<PlacedTensor> const whole{source("w", DType::f32, "(1):(S0)", Shape{40, 33}),
                                              source("b", DType::bf16, "(1):(R)", Shape{77})};
        save_model(folder.path(), whole, 1, 1);
        std::string const first = read_manifest(folder.path()).save;
        auto const w = parse("(4):(S1)", Shape{40, 33});
        auto const b = parse("(4):(R)", Shape{77});
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            Checkpoint const old = Checkpoint::open(folder.path(), Access::mmap);
            std::vector<ConstLocalTensor> const tensors{{"w", w, local_view(old, "w", w, comm.rank())},
                                                        {"b", b, local_view(old, "b", b, comm.rank())}};
            save(folder.path(), tensors, comm);
        });
        check_holds(folder, whole, 1);
        CHECK(read_manifest(folder.path()).save != first);
    }

    TEST_CASE("what a first save that died has left makes room before the next one writes") {
        TempFolder const folder;
        std::string const left = folder / "shard-00001-of-00002.0123456789abcdef.safetensors";
        write_text(left, "stale");
        std::atomic<int> seen{0};
        std::atomic<int> calls{0};
        SaveOptions options;
        options.progress = [&](Index, Index) {
            ++calls;
            seen += std::filesystem::exists(left) ? 1 : 0;
        };
        save_model(folder.path(), model(), 4, 1, options);
        CHECK(calls > 0);
        CHECK(seen == 0);
        check_holds(folder, model(), 1);
    }

    TEST_CASE("files are what other tools read: names, metadata, offsets of shards") {
        TempFolder const folder;
        save_model(folder.path(), model(), 4, 1, {.dedup = SaveDedup::lowest_rank, .metadata = {{"step", "12"}}});
        Manifest const manifest = read_manifest(folder.path());
        CHECK(manifest.metadata == Metadata{{"step", "12"}});
        CHECK(manifest.files[1].leaf == errors::concat("shard-00002-of-00004.", manifest.save, ".safetensors"));
        CHECK(manifest.files[1].writer == 1);
        auto const file = SafetensorsFile::open(folder / manifest.files[1].leaf);
        CHECK(file.metadata() ==
              Metadata{{"DCP_SHARDING_INFO",
                        "{\"w\": {\"saved_offsets\": [20, 0]}, \"cyclic\": {\"saved_offsets\": [3]}, "
                        "\"cyclic.__box_1\": {\"saved_offsets\": [15]}, \"cyclic.__box_2\": {\"saved_offsets\": [27]}, "
                        "\"cyclic.__box_3\": {\"saved_offsets\": [39]}}"},
                       {"format", "pt"},
                       {"reshard_save", manifest.save}});
        REQUIRE(file.find("w") != nullptr);
        CHECK(file.find("w")->shape == Shape{20, 33});
    }

    TEST_CASE("reports add up") {
        TempFolder const folder;
        std::vector<std::atomic<Index>> progress(5);
        std::vector<SaveReport> reports(5);
        run_on_threads(5, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            Trained mine(model(), comm.rank(), 1);
            SaveOptions options;
            Index last = 0;
            options.progress = [&](Index done, Index total) {
                CHECK(done > last);
                CHECK(done <= total);
                last = done;
                progress[r] = done;
            };
            reports[r] = save(folder.path(), mine.list(), comm, options);
        });
        SavePlan const plan = plan_save(model(), 5);
        Index extents = 0;
        for (std::size_t r = 0; r < 5; ++r) {
            SaveReport const& report = reports[r];
            CHECK(report.save_id == reports[0].save_id);
            CHECK(report.tensors == 7);
            CHECK(report.bytes_saved == plan.bytes_written);
            CHECK(report.bytes_deduplicated == plan.bytes_held - plan.bytes_written);
            CHECK(report.files_opened == (plan.extents_of(static_cast<int>(r)).empty() ? 0 : 1) + (r == 0 ? 1 : 0));
            CHECK(report.bytes_written >= plan.bytes_of(static_cast<int>(r)));
            CHECK(progress[r] == plan.bytes_of(static_cast<int>(r)));
            // Lists, copies, written, published, the manifest, tidy.
            CHECK(report.collectives == Collectives{0, 1, 2, 7});
            CHECK(report.seconds >= report.seconds_blocked);
            extents += report.extents;
        }
        CHECK(extents == static_cast<Index>(plan.manifest.extents.size()));
        CHECK(reports[4].bytes_written == 0);
    }

    TEST_CASE("a report in words") {
        SaveReport report;
        report.save_id = "0123456789abcdef";
        report.tensors = 7;
        report.extents = 3;
        report.bytes_written = 2048;
        report.files_opened = 1;
        report.bytes_saved = 10240;
        report.bytes_deduplicated = 512;
        report.collectives = {0, 1, 2, 7};
        report.traffic = {3, 1024, 1, 10, 0};
        report.seconds = 1.5;
        report.seconds_blocked = 0.001;
        CHECK(explain(report) ==
              "save 0123456789abcdef: 7 tensors, 10.0 KiB by all ranks, 512 B more are copies\n"
              "  collectives: 1 broadcast, 2 exchanges, 7 agreements\n"
              "  sent 1.0 KiB in 3 messages, received 10 B in 1 message\n"
              "  wrote 2.0 KiB in 3 extents and 1 open file\n"
              "  memory beyond the tensors: 0 B\n"
              "  1.50 s, 1.0 ms of them in calls\n");
    }

    TEST_CASE("one rank, a group of some ranks, no tensors") {
        TempFolder const folder;
        std::vector<PlacedTensor> const alone{source("w", DType::f32, "(1,1):(S0,P+)", Shape{4, 5})};
        SelfCommunicator self;
        Trained mine(alone, 0, 3);
        save(folder.path(), mine.list(), self);
        check_holds(folder, alone, 3);
        save(folder.path(), std::span<LocalTensor const>(), self);
        CHECK(folder.leaves() == std::vector<std::string>{std::string(manifest_name)});
        CHECK(damage(folder.path()) == "");

        std::vector<PlacedTensor> const pair{source("w", DType::f32, "(2):(S0)", Shape{4, 5})};
        run_on_threads(5, [&](ThreadCommunicator& comm) {
            bool const saves = comm.rank() % 2 == 1;
            auto group = comm.split(saves ? 0 : -1, comm.rank());
            if (!saves) return;
            Trained part(pair, group.rank(), 4);
            save(folder.path(), part.list(), group);
        });
        check_holds(folder, pair, 4);
    }

    TEST_CASE("many small tensors, long ones that several threads write, and a folder that is made") {
        TempFolder const folder;
        std::vector<PlacedTensor> sources;
        for (int i = 0; i < 300; ++i)
            sources.push_back(source(errors::concat("s", i), DType::bf16, "(2):(R)", Shape{i % 70}));
        sources.push_back(source("long", DType::u8, "(2):(R)", Shape{3, test::tries(3'500'000)}));
        sources.push_back(source("cut", DType::f32, "(2):(S1)", Shape{500, 600}));
        std::string const inside = folder / "new";
        for (int threads : {1, 3}) {
            save_model(inside, sources, 2, threads,
                       {.dedup = threads == 1 ? SaveDedup::shared : SaveDedup::lowest_rank,
                        .durable = false,
                        .in_flight = threads,
                        .window_bytes = 10'000});
            CHECK(damage(inside) == "");
            CHECK(holds_version(inside, sources, threads));
        }
    }

    TEST_CASE("copies that differ are named with rank and place, and nothing is written") {
        TempFolder const folder;
        save_model(folder.path(), model(), 4, 1);
        auto const leaves = folder.leaves();
        auto const spoilt = [&](SaveOptions const& options) {
            return test::thrown_by(4, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 2, options);
                if (comm.rank() == 3) mine.list()[1].view.data()[10] ^= std::byte{1};
                save(folder.path(), mine.list(), comm, options);
            });
        };
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            Trained mine(model(), comm.rank(), 2, {});
            if (comm.rank() == 3) mine.list()[1].view.data()[10] ^= std::byte{1};
            CHECK_THROWS_AS(save(folder / "new", mine.list(), comm), MismatchError);
        });
        CHECK_FALSE(std::filesystem::exists(folder / "new"));
        test::check_same(spoilt({}), ErrorCode::mismatch,
                         {"reshard::save: copies of which one would be saved differ",
                          "'b' BF16 on ranks 0-3: rank 3 is odd", "first at [5]"});
        CHECK(folder.leaves() == leaves);
        CHECK(holds_version(folder.path(), model(), 1));
        // Copies along axis 0 are kept apart and may differ, those along axis 1 may not.
        test::check_same(spoilt({.replica_axes = {0}}), ErrorCode::mismatch, {"'b' BF16 on ranks 2,3: a tie"});
        for (auto const& thrown : spoilt({.replica_axes = {0, 1}})) CHECK(thrown.message == "");
        CHECK(damage(folder.path()) == "");
        for (auto const& thrown : spoilt({.verify_replicas = false})) CHECK(thrown.message == "");
        CHECK(damage(folder.path()) == "");
    }

    TEST_CASE("a folder that a failed save has made goes with the last of its files") {
        for (int turn = 0; turn < 20; ++turn) {
            TempFolder const folder;
            SaveOptions options;
            options.durable = false;
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                Trained mine(model(), comm.rank(), 1, {});
                SaveOptions own = options;
                if (comm.rank() == turn % 4) own.progress = [](Index, Index) { throw IoError("no more"); };
                CHECK_THROWS_AS(save(folder / "new", mine.list(), comm, own), Error);
            });
            CHECK_FALSE(std::filesystem::exists(folder / "new"));
        }
    }
    TEST_CASE("what one rank finds wrong stops all before anything is written") {
        TempFolder const folder;
        save_model(folder.path(), model(), 4, 1);
        auto const leaves = folder.leaves();
        auto const refuses = [&](ErrorCode code, std::vector<std::string> const& parts, auto const& spoil) {
            auto const thrown = test::thrown_by(4, [&](ThreadCommunicator& comm) {
                std::vector<PlacedTensor> sources = model();
                SaveOptions options;
                std::string path = folder.path();
                Trained mine(sources, comm.rank(), 2);
                spoil(comm.rank(), mine.list(), options, path);
                save(path, mine.list(), comm, options);
            });
            test::check_same(thrown, code, parts);
            CHECK(folder.leaves() == leaves);
            CHECK(holds_version(folder.path(), model(), 1));
        };
        using List = std::vector<LocalTensor>;
        refuses(ErrorCode::mismatch, {"rank 2 of 4: saves tensor 0 'x' as", "but rank 0 saves tensor 0 'w' as"},
                [](int rank, List& list, SaveOptions&, std::string&) {
                    if (rank == 2) list[0].name = "x";
                });
        refuses(ErrorCode::mismatch,
                {"rank 1 of 4: saves with dedup shared, but rank 0 saves with dedup balanced. Fix: give every rank the "
                 "same "
                 "arguments."},
                [](int rank, List&, SaveOptions& options, std::string&) {
                    if (rank == 1) options.dedup = SaveDedup::shared;
                });
        refuses(ErrorCode::mismatch,
                {"saves with metadata ['step' '4', 'note' 50 bytes of digest",
                 "but rank 0 saves with metadata ['step' '3', 'note' 50 "},
                [](int rank, List&, SaveOptions& options, std::string&) {
                    options.metadata = {{"step", rank == 1 ? "4" : "3"}, {"note", std::string(50, 'x')}};
                });
        refuses(ErrorCode::mismatch,
                {"rank 1 of 4: saves with durable false, but rank 0 saves with durable true. Fix: "},
                [](int rank, List&, SaveOptions& options, std::string&) {
                    options.durable = rank != 1;
                    options.vote_bytes = 7 + rank;  // of several the first
                });
        refuses(ErrorCode::buffer, {"rank 3 of 4: ", "tensor 'b' on rank 3: the view has shape [5]"},
                [](int rank, List& list, SaveOptions&, std::string&) {
                    static std::byte memory[10];
                    if (rank == 3) list[1].view = DynamicView(memory, DType::bf16, Shape{5});
                });
        refuses(ErrorCode::transition, {"tensor 'g'", "Partial along mesh axis 0"},
                [](int, List& list, SaveOptions&, std::string&) {
                    static float numbers[4];
                    list.push_back({"g", parse("(4):(P+)", Shape{4}), DynamicView(numbers, DType::f32, Shape{4})});
                });
        refuses(ErrorCode::buffer, {"rank 1 of 4: ", "in_flight is 0"},
                [](int rank, List&, SaveOptions& options, std::string&) {
                    if (rank == 1) options.in_flight = 0;
                });
        refuses(
            ErrorCode::io,
            {"rank 0 of 4: IoError: ", "/reshard.manifest.json/inside: cannot create the folder",
             "Fix: check that what it lies in is a folder"},
            [](int, List&, SaveOptions&, std::string& path) { path += errors::concat("/", manifest_name, "/inside"); });
        refuses(ErrorCode::io,
                {"reshard.manifest.json: cannot create the folder", "Fix: a file has this name: move it away"},
                [](int, List&, SaveOptions&, std::string& path) { path += "/" + std::string(manifest_name); });
        refuses(ErrorCode::io, {"IoError: '': cannot create the folder", "Fix: name a folder."},
                [](int, List&, SaveOptions&, std::string& path) { path.clear(); });
        refuses(ErrorCode::user, {"rank 2 of 4: the trainer stops. Fix: go on."},
                [](int rank, List&, SaveOptions& options, std::string&) {
                    if (rank == 2)
                        options.progress = [](Index, Index) {
                            throw std::runtime_error("the trainer stops. Fix: go on.");
                        };
                });
        TempFolder const other;
        refuses(ErrorCode::io, {"rank 0 of 4: IoError: ", "rank 0 does not see what another rank has written"},
                [&](int rank, List&, SaveOptions&, std::string& path) {
                    if (rank == 1) path = other.path();
                });
        CHECK(other.leaves().empty());
    }

    TEST_CASE("a rank that is lost before the save: the others say so, and the save before is whole") {
        TempFolder const folder;
        save_model(folder.path(), model(), 4, 1);
        auto const leaves = folder.leaves();
        std::atomic<int> told{0};
        try {
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                if (comm.rank() == 2) return;
                Trained mine(model(), comm.rank(), 2);
                try {
                    save(folder.path(), mine.list(), comm);
                } catch (PeerFailed const&) {
                    ++told;
                    throw;
                }
            });
        } catch (PeerFailed const&) {
        }
        CHECK(told == 3);
        CHECK(folder.leaves() == leaves);
        CHECK(holds_version(folder.path(), model(), 1));
    }

    TEST_CASE("two savers in one folder: the second is refused, the first goes on") {
        TempFolder const folder;
        std::vector<PlacedTensor> const sources{source("w", DType::f32, "(1):(R)", Shape{4, 5})};
        SelfCommunicator first;
        Trained mine(sources, 0, 1);
        SaveOptions options;
        std::string refused;
        options.progress = [&](Index, Index) {  // half way through the first save
            SelfCommunicator second;
            Trained other(sources, 0, 2);
            refused = caught([&] { save(folder.path(), other.list(), second); }).message;
        };
        save(folder.path(), mine.list(), first, options);
        CHECK(contains(refused, folder.path() + ": another save into this folder is under way"));
        check_holds(folder, sources, 1);
    }

    TEST_CASE("a manifest that somebody replaced meanwhile is not overwritten") {
        TempFolder const folder;
        std::vector<PlacedTensor> const sources{source("w", DType::f32, "(1):(R)", Shape{4, 5})};
        SelfCommunicator self;
        Trained mine(sources, 0, 1);
        SaveOptions options;
        options.progress = [&](Index, Index) { write_text(folder / manifest_name, "of another job"); };
        check_io("another save has replaced it while this one was under way",
                 [&] { save(folder.path(), mine.list(), self, options); });
        CHECK(folder.leaves() == std::vector<std::string>{std::string(manifest_name)});
        CHECK(read_text(folder / manifest_name) == "of another job");
        // One that cannot be read is replaced, and its data files, if they are ours, go then, not before.
        write_text(folder / "shard-00001-of-00004.0123456789abcdef.safetensors", "of a save without a manifest");
        options.progress = [&](Index, Index) {
            CHECK(read_text(folder / "shard-00001-of-00004.0123456789abcdef.safetensors") != "");
        };
        save(folder.path(), mine.list(), self, options);
        check_holds(folder, sources, 1);
    }
}
