// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/load.hpp, checkpoint.hpp and detail/file_list.hpp: what a folder may be, which
// copy is whose, which rank reads what, and bytes that are not those that were saved.
#include <reshard/checkpoint/load.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/load_choice.hpp>
#include <reshard/checkpoint/detail/load_match.hpp>
#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/comm/threads.hpp>

#include "sharded_support.hpp"
#include "support/thrown.hpp"

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using test::check_same;
using test::thrown_by;

/// Rows of one matrix in three files, and a vector in two copies.
struct Small {
    Small() {
        goals = {goal("v", DType::f32, "(3):(R)", Shape{5}), goal("w", DType::f32, "(3):(S1)", Shape{9, 6})};
        saved = {{goals[0].stored, 2, {{0, 0, Box(Shape{5})}, {1, 2, Box(Shape{5})}}},
                 {goals[1].stored,
                  1,
                  {{0, 0, Box{{0, 3}, {0, 6}}}, {0, 1, Box{{3, 6}, {0, 6}}}, {0, 2, Box{{6, 9}, {0, 6}}}}}};
    }
    std::vector<Goal> goals;
    std::vector<Saved> saved;
};
std::string shard(int number) { return errors::concat("shard-0000", number, "-of-00003.0123456789abcdef.safetensors"); }

/// Flips a bit of a file.
void spoil(std::string const& path, Index at) {
    std::string text = read_text(path);
    text[static_cast<std::size_t>(at)] = static_cast<char>(text[static_cast<std::size_t>(at)] ^ 4);
    write_text(path, text);
}

void check_none(std::vector<test::Thrown> const& thrown) {
    for (test::Thrown const& each : thrown) CHECK(each == test::Thrown{});
}

/// With each of the strategies that communicate.
template <class Do>
void with_all(Do&& work) {
    work(OneRankReads<Scatter>{1, 64});
    work(OneRankReads<Broadcast>{});
    work(EachRankReadsItsBoxes{});
    work(CooperativeRead{64, {}, Cooperation::always, {}});
}
}  // namespace

TEST_SUITE("checkpoint/load") {
    // ---- What a folder may be --------------------------------------------------------------------------------------

    TEST_CASE("a manifest wins over whatever else lies in its folder") {
        TempFolder const folder;
        Small const small;
        Manifest const manifest = write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
        write_safetensors(folder / "model.safetensors", {{"w", DType::u8, Shape{1}}}, fill_expected);
        write_safetensors(folder / "shard-00001-model-00001-of-00001.safetensors", {{"w", DType::u8, Shape{1}}},
                          fill_expected);
        for (std::string const& path : {folder.path(), folder.path() + "/", folder / manifest_name}) {
            Checkpoint const checkpoint = Checkpoint::open(path);
            CHECK(checkpoint.kind() == CheckpointKind::manifest);
            CHECK(checkpoint.manifest() == manifest);
            CHECK(Catalogue(checkpoint).digest() == Catalogue(manifest).digest());
            CHECK(checkpoint.files().size() == 3);
            // Copies of v lie whole in a file; boxes of w do not.
            REQUIRE(checkpoint.tensors().size() == 2);
            CHECK(checkpoint.tensors()[0].name == "v.__tp_replica_0");
            CHECK(checkpoint.find("w") == nullptr);
            Caught const error = caught([&] { static_cast<void>(checkpoint.at("w")); });
            CHECK(error.rule == SafetensorsRule::tensor_not_found);
            CHECK(contains(error.message, "is stored in boxes"));
            CHECK(checkpoint.total_bytes() == 2 * 20 + 216);
        }
    }

    TEST_CASE("what is left of a save that never ended is not read") {
        TempFolder const folder;
        Small const small;
        write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
        std::filesystem::remove(folder / manifest_name);
        check_io("3 *.safetensors are parts of a save that never ended",
                 [&] { static_cast<void>(Checkpoint::open(folder.path())); });
        for (int i = 1; i <= 3; ++i) {  // under the names of PyTorch's shards they are still parts of a save
            std::filesystem::rename(folder / shard(i),
                                    folder / errors::concat("shard-0000", i, "-model-00001-of-00001.safetensors"));
        }
        Caught const error = caught([&] { static_cast<void>(Checkpoint::open(folder.path())); });
        CHECK(error.code == ErrorCode::io);
        CHECK(contains(error.message, "no checkpoint: it is a part of a save whose reshard.manifest.json is missing"));
        // Beside a checkpoint they are nothing.
        TempFolder const other;
        write_sharded(other.path(), small.saved, 3, Described::by_manifest);
        std::filesystem::remove(other / manifest_name);
        write_safetensors(other / "anything.safetensors", {{"a", DType::u8, Shape{1}}}, fill_expected);
        CHECK(Checkpoint::open(other.path()).at("a").bytes() == 1);
    }

    TEST_CASE("files that a manifest names and that are missing, or are others, are named on all ranks") {
        Small const small;
        with_all([&](auto const& strategy) {
            CAPTURE(strategy.name);
            TempFolder const folder;
            write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
            auto const attempt = [&] {
                return thrown_by(3, [&](ThreadCommunicator& comm) {
                    LocalTensors tensors(small.goals, comm.rank());
                    try {
                        load(folder.path(), tensors.list(), comm, strategy);
                    } catch (...) {
                        CHECK(tensors.untouched());
                        throw;
                    }
                });
            };
            std::string const text = read_text(folder / shard(2));
            write_text(folder / shard(2), text + "x");
            Caught alone = caught([&] { static_cast<void>(Checkpoint::open(folder.path())); });
            CHECK(alone.rule == SafetensorsRule::metadata_incomplete_buffer);
            // Another version of the file, whole in itself.
            std::string other = text;
            other[other.find("\"format\":\"pt\"") + 10] = 'P';
            write_text(folder / shard(2), other);
            check_same(attempt(), ErrorCode::mismatch,
                       {folder / shard(2), "another header, of the same size", "reshard.manifest.json"});
            alone = caught([&] { static_cast<void>(Checkpoint::open(folder.path())); });
            CHECK(alone.code == ErrorCode::mismatch);
            std::filesystem::remove(folder / shard(2));
            std::filesystem::remove(folder / shard(1));
            check_same(attempt(), ErrorCode::io,
                       {"2 of the 3 files it names are missing: '" + shard(1) + "', '" + shard(2) + "'"});
        });
    }

    TEST_CASE("a manifest that contradicts the header of a file is refused on all ranks, whoever reads") {
        Small const small;
        for (bool const elsewhere : {false, true}) {
            with_all([&](auto const& strategy) {
                TempFolder const folder;
                Manifest manifest = write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
                Extent& part = manifest.extents[2];  // of the second file
                if (elsewhere) {
                    part.key = "elsewhere";
                } else {
                    part.begin += 8;  // its end lies in the file still, but not in the data
                }
                write_text(folder / manifest_name, to_json(manifest));
                auto const words =
                    errors::concat("box [3:6,0:6] of tensor 'w', replica 0 is not in '", shard(2), "' as it says");
                check_same(thrown_by(3,
                                     [&](ThreadCommunicator& comm) {
                                         LocalTensors tensors(small.goals, comm.rank());
                                         load(folder.path(), tensors.list(), comm, strategy);
                                     }),
                           ErrorCode::format, {words});
                Caught const alone = caught([&] { static_cast<void>(Checkpoint::open(folder.path())); });
                CHECK(alone.code == ErrorCode::format);
                CHECK(contains(alone.message, words));
            });
        }
    }

    TEST_CASE("a missing file of PyTorch's last rank is named as what may be wrong with a shape") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::f32, "(3):(S0)", Shape{9, 6})};
        std::vector<Saved> const saved{
            {goals[0].stored,
             1,
             {{0, 0, Box{{0, 3}, {0, 6}}}, {0, 1, Box{{3, 6}, {0, 6}}}, {0, 2, Box{{6, 9}, {0, 6}}}}}};
        write_sharded(folder.path(), saved, 3, Described::by_shards);
        std::filesystem::remove(folder / "shard-00003-model-00001-of-00001.safetensors");
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 LocalTensors tensors(goals, comm.rank());
                                 load(folder.path(), tensors.list(), comm);
                             }),
                   ErrorCode::mismatch,
                   {"the checkpoint has shape [6,6], the list says [9,6]. Fix: build the list from the model that was "
                    "saved; see that the file of the last rank is there"});
    }

    TEST_CASE("the manifest is opened by one rank, headers of several files by one each") {
        TempFolder const folder;
        TempFolder const shards;
        Small small;
        write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
        small.goals.erase(small.goals.begin());
        small.saved.erase(small.saved.begin());
        write_sharded(shards.path(), small.saved, 3, Described::by_shards);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(small.goals, comm.rank());
            auto const manifest = load(folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{});
            CHECK(tensors.wrong() == "");
            CHECK(manifest.lists_opened == (comm.rank() == 0 ? 1 : 0));
            LocalTensors again(small.goals, comm.rank());
            auto const plain = load(shards.path(), again.list(), comm, EachRankReadsItsBoxes{});
            CHECK(again.wrong() == "");
            CHECK(plain.lists_opened == (comm.rank() == 0 ? 3 : 0));
            auto const one = load(shards.path(), again.list(), comm, OneRankReads<Scatter>{2});
            CHECK(one.lists_opened == (comm.rank() == 2 ? 3 : 0));
            CHECK(one.files_digest == plain.files_digest);
        });
    }

    // ---- Copies ----------------------------------------------------------------------------------------------------

    TEST_CASE("copies of a plain folder are found by their plain name, by their number, and by one that wraps around") {
        TempFolder const folder;
        write_checkpoint(folder.path(),
                         {{"a", DType::u8, Shape{4}},
                          {"v.__tp_replica_0", DType::u8, Shape{4}},
                          {"v.__tp_replica_1", DType::u8, Shape{4}},
                          {"x._tp_replica0", DType::u8, Shape{4}},
                          {"x._tp_replica2", DType::u8, Shape{4}}},
                         fill_expected, 6);
        Checkpoint const checkpoint = Checkpoint::open(folder.path());
        auto const loaded = [&](std::string const& name, std::vector<int> const& axes, int rank) {
            std::vector<Goal> const goals{goal(name, DType::u8, "(2,3):(R,R)", Shape{4})};
            LocalTensors tensors(goals, rank);
            EveryRankReads strategy;
            strategy.options.replica_axes = axes;
            load(checkpoint, tensors.list(), rank, strategy);
            for (std::string const text :
                 {"a", "v.__tp_replica_0", "v.__tp_replica_1", "x._tp_replica0", "x._tp_replica2"}) {
                if (tensors.wrong([&](Goal const&) { return text; }).empty()) return text;
            }
            return std::string("nothing");
        };
        for (int rank = 0; rank < 6; ++rank) {
            CAPTURE(rank);
            std::string const copies[2] = {"v.__tp_replica_0", "v.__tp_replica_1"};
            CHECK(loaded("v", {1}, rank) == copies[rank % 3 % 2]);     // the last axis
            CHECK(loaded("v", {0}, rank) == copies[rank / 3]);         // the first
            CHECK(loaded("v", {0, 1}, rank) == copies[rank % 2]);      // both
            CHECK(loaded("v.__tp_replica_1", {}, rank) == copies[1]);  // this one
            CHECK(loaded("v.__tp_replica_6", {}, rank) == copies[0]);  // 6 mod 2
            CHECK(loaded("v._tp_replica3", {}, rank) == copies[1]);
            CHECK(loaded("a.__tp_replica_5", {}, rank) == "a");  // it was stored once
            CHECK(loaded("x._tp_replica2", {}, rank) == "x._tp_replica2");
        }
        Caught error = caught([&] { loaded("x", {}, 0); });
        CHECK(error.rule == SafetensorsRule::tensor_not_found);
        CHECK(contains(error.message, "called 'x' (its replica 1 is missing, but 'x._tp_replica2' is there)"));
        error = caught([&] { loaded("x.__tp_replica_7", {}, 0); });
        CHECK(contains(error.message, "its replica 1 is missing"));
        error = caught([&] { loaded("y", {}, 0); });
        CHECK(contains(error.message, "called 'y'. Fix: "));
        error = caught([&] { loaded("v", {2}, 0); });
        CHECK(error.code == ErrorCode::mesh);
        CHECK(contains(error.message, "replica_axes names axis 2 of the mesh (2,3)"));
        error = caught([&] { loaded("v", {}, 0); });
        CHECK(error.code == ErrorCode::mismatch);
        CHECK(contains(error.message,
                       "was saved in 2 copies, and which of them a rank reads is open: axes 0 and 1 of "
                       "the mesh (2,3) are both R. Fix: name in LoadOptions::replica_axes"));
    }

    TEST_CASE("the axis of copies is the one of several ranks that the tensor is R on") {
        TempFolder const folder;
        Small const small;
        write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
        for (auto const* const to : {"(3,1):(R,R)", "(1,3):(R,R)", "(1,3,1):(R,R,R)"}) {
            std::vector<Goal> const goals{goal("v", DType::f32, to, Shape{5})};
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                load(folder.path(), tensors.list(), comm);
                CHECK(tensors.wrong([&](Goal const&) { return content_of("v", comm.rank() % 2, 2); }) == "");
            });
        }
    }

    TEST_CASE("copies saved along an axis of 2 load onto axes of 1, 3 and 4, and copies that nobody reads stay there") {
        TempFolder const folder;
        Small const small;
        write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
        for (int ranks : {1, 3, 4}) {
            std::vector<Goal> const goals{goal("v", DType::f32, errors::concat("(", ranks, "):(R)"), Shape{5})};
            std::atomic<Index> read{0};
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                with_all([&](auto strategy) {
                    if constexpr (requires { strategy.root; }) strategy.root = 0;
                    LocalTensors tensors(goals, comm.rank());
                    auto const report = load(folder.path(), tensors.list(), comm, strategy);
                    CHECK(tensors.wrong([&](Goal const&) { return content_of("v", comm.rank() % 2, 2); }) == "");
                    if (std::string_view(strategy.name) == CooperativeRead::name) read += report.bytes_read;
                });
            });
            CHECK(read == (ranks == 1 ? 20 : 40));
        }
    }

    // ---- Who reads what --------------------------------------------------------------------------------------------

    TEST_CASE("a reload in the same world reads each file on the rank that wrote it") {
        TempFolder const folder;
        std::vector<Goal> goals;
        std::vector<Saved> saved;
        for (int t = 0; t < 10; ++t) {  // files of nearly the same size, tensors in no order of ranks
            Index const rows = 100 + t;
            goals.push_back(goal(errors::concat("t", t), DType::f32, "(4):(S0)", Shape{rows, 8}));
            DynamicDistribution const by = parse("(4):(S0:bal)", Shape{rows, 8});
            Saved one{goals.back().stored, 1, {}};
            for (int r = 0; r < 4; ++r) one.parts.push_back({0, (r + 2) % 4, by.box(r)});
            saved.push_back(one);
        }
        write_sharded(folder.path(), saved, 4, Described::by_manifest);
        std::mutex guard;
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            CooperativeRead const strategy{1 << 20, {}, Cooperation::always, {}};
            auto const report = load(folder.path(), tensors.list(), comm, strategy);
            CHECK(tensors.wrong() == "");
            CHECK(report.files_opened == 1);
            Catalogue const catalogue(Checkpoint::open(folder.path()));
            auto const wanted = detail::match(catalogue, tensors.list());
            auto const schedule = detail::schedule_of(catalogue, wanted, tensors.list(), 4, detail::terms_of(strategy));
            std::scoped_lock const lock(guard);
            for (detail::Piece const& piece : schedule.pieces) CHECK(piece.reader == wanted[piece.wanted].file);
        });
    }

    // ---- Bytes that are not those that were saved ------------------------------------------------------------------

    TEST_CASE("a bit that has changed is found by whoever reads it, and said on all ranks") {
        Small const small;
        with_all([&](auto strategy) {
            CAPTURE(strategy.name);
            TempFolder const folder;
            Manifest const manifest = write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
            auto const size = static_cast<Index>(std::filesystem::file_size(folder / shard(3)));
            Index bytes = 0;
            std::mutex guard;
            auto const run = [&] {
                bytes = 0;
                return thrown_by(3, [&](ThreadCommunicator& comm) {
                    LocalTensors tensors(small.goals, comm.rank());
                    auto const report = load(folder.path(), tensors.list(), comm, strategy);
                    std::scoped_lock const lock(guard);
                    bytes += report.bytes_verified;
                });
            };
            check_none(run());
            // Nobody needs all of a box of w when all read directly, but what lies before a copy of v is read on the
            // way. Two ranks need the first copy of v.
            bool const direct = std::string_view(strategy.name) == EachRankReadsItsBoxes::name;
            CHECK(bytes == (direct ? 3 * 20 + 72 : 2 * 20 + 216));
            Extent const* last = nullptr;  // of v's second copy
            for (Extent const& extent : manifest.extents)
                if (extent.tensor == 0 && extent.replica == 1) last = &extent;
            REQUIRE(last != nullptr);
            Index const header = SafetensorsFile::open(folder / shard(3)).data_offset();
            CHECK(header + last->begin + 20 <= size);
            spoil(folder / shard(3), header + last->begin + 17);
            check_same(run(), ErrorCode::format,
                       {"box [0:5] of tensor 'v', replica 1, in '" + shard(3) + "' at byte", "CRC-32C",
                        "The tensors are partly filled"});
            strategy.options.verify_checksums = Checksums::none;
            check_none(run());
            CHECK(bytes == 0);
        });
        TempFolder const folder;
        write_sharded(folder.path(), small.saved, 3, Described::by_manifest);
        spoil(folder / shard(1), SafetensorsFile::open(folder / shard(1)).file_bytes() - 1);
        spoil(folder / shard(1), SafetensorsFile::open(folder / shard(1)).data_offset());
        std::vector<Goal> const whole{goal("v", DType::f32, "(1):(R)", Shape{5}),
                                      goal("w", DType::f32, "(1):(R)", Shape{9, 6})};
        LocalTensors tensors(whole, 0);
        Caught const error = caught([&] { load(Checkpoint::open(folder.path()), tensors.list(), 0); });
        CHECK(error.code == ErrorCode::format);
        CHECK(contains(error.message, "(and 1 more extents are wrong)"));
    }

    TEST_CASE("who reads a part of an extent finds whatever has changed in the blocks that lie in it") {
        std::vector<Goal> const goals{goal("w", DType::f32, "(4):(S0)", Shape{40, 16})};  // 640 bytes of each rank
        std::string const leaf = "shard-00001-of-00001.0123456789abcdef.safetensors";
        for (Index const block : {Index{64}, Index{200}, Index{640}, Index{1000}, default_block_bytes}) {
            CAPTURE(block);
            TempFolder const folder;
            write_sharded(folder.path(), {{goals[0].stored, 1, {{0, 0, Box(Shape{40, 16})}}}}, 1,
                          Described::by_manifest, true, block);
            Index const data = SafetensorsFile::open(folder / leaf).data_offset();
            auto const lies_in_one = [&](Index byte) {
                Index const begin = byte / block * block;
                Index const end = std::min<Index>(begin + block, 2560);
                return begin / 640 == (end - 1) / 640;
            };
            Index comparable = 0;
            for (Index byte = 0; byte < 2560; ++byte) comparable += lies_in_one(byte) ? 1 : 0;
            Index verified = 0;
            auto const load_all = [&](Cooperation cooperation, Checksums compared = Checksums::whole_blocks) {
                verified = 0;
                std::mutex guard;
                return thrown_by(4, [&](ThreadCommunicator& comm) {
                    LocalTensors tensors(goals, comm.rank());
                    auto const report = load(folder.path(), tensors.list(), comm,
                                             CooperativeRead{0, {}, cooperation, {}, {.verify_checksums = compared}});
                    CHECK(report.bytes_loaded == 640);
                    std::scoped_lock const lock(guard);
                    verified += report.bytes_verified;
                });
            };
            check_none(load_all(Cooperation::never));
            CHECK(verified == comparable);
            Index touched = 0;  // of each rank, from the first block that it has some of to the last
            for (Index rank = 0; rank < 4; ++rank)
                touched +=
                    std::min<Index>(((rank + 1) * 640 + block - 1) / block * block, 2560) - rank * 640 / block * block;
            check_none(load_all(Cooperation::never, Checksums::touched_blocks));
            CHECK(verified == touched);
            check_none(load_all(Cooperation::always));
            CHECK(verified == 2560);
            for (Index byte = 3; byte < 2560; byte += test::fewer_seeds() ? 389 : 97) {
                CAPTURE(byte);
                spoil(folder / leaf, data + byte);
                bool const told = lies_in_one(byte);
                auto const direct = load_all(Cooperation::never);
                if (told) {
                    check_same(direct, ErrorCode::format, {"of tensor 'w'", "the CRC-32C of its", "partly filled"});
                } else {
                    check_none(direct);
                }
                std::string const place =
                    block < 2560 ? errors::concat("bytes ", byte / block * block, " to ") : "2560 bytes";
                check_same(load_all(Cooperation::always), ErrorCode::format, {place, "partly filled"});
                check_same(load_all(Cooperation::never, Checksums::touched_blocks), ErrorCode::format,
                           {place, "partly filled"});
                LocalTensors tensors(goals, static_cast<int>(byte / 640));
                Caught const alone = caught(
                    [&] { load(Checkpoint::open(folder.path()), tensors.list(), static_cast<int>(byte / 640)); });
                CHECK((alone.code == ErrorCode::format) == told);
                EveryRankReads every;
                every.options.verify_checksums = Checksums::touched_blocks;
                Caught const sure = caught([&] {
                    load(Checkpoint::open(folder.path()), tensors.list(), static_cast<int>(byte / 640), every);
                });
                CHECK(sure.code == ErrorCode::format);
                spoil(folder / leaf, data + byte);
            }
        }
    }

    TEST_CASE("ranks that read for themselves compare the shards that they need all of: by more ranks none") {
        std::vector<Saved> saved{{{"w", DType::f32, Shape{64, 16}}, 1, {}}};
        for (int f = 0; f < 8; ++f) saved[0].parts.push_back({0, f, Box{{8 * f, 8 * f + 8}, {0, 16}}});
        TempFolder const folder;
        write_sharded(folder.path(), saved, 8, Described::by_manifest);
        auto const verified = [&](int ranks, Cooperation cooperation, Checksums compared = Checksums::whole_blocks) {
            std::vector<Goal> const goals{goal("w", DType::f32, errors::concat("(", ranks, "):(S0)"), Shape{64, 16})};
            std::atomic<Index> sum{0};
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                CooperativeRead const how{0, {}, cooperation, {}, {.verify_checksums = compared}};
                sum += load(folder.path(), tensors.list(), comm, how).bytes_verified;
                CHECK(tensors.wrong() == "");
            });
            return sum.load();
        };
        for (int const ranks : {1, 4, 8}) CHECK(verified(ranks, Cooperation::never) == 4096);
        CHECK(verified(3, Cooperation::never) == 4096 * 6 / 8);
        CHECK(verified(16, Cooperation::never) == 0);
        CHECK(verified(16, Cooperation::always) == 4096);
        // Unless they are to read the rest of these shards as well.
        CHECK(verified(8, Cooperation::never, Checksums::touched_blocks) == 4096);
        CHECK(verified(3, Cooperation::never, Checksums::touched_blocks) == 4096 * 10 / 8);
        CHECK(verified(16, Cooperation::never, Checksums::touched_blocks) == 2 * 4096);
        CHECK(verified(16, Cooperation::always, Checksums::touched_blocks) == 4096);
    }

    TEST_CASE("of a box of a larger tensor the blocks that it touches are read and compared, whoever reads") {
        constexpr Index rows = 100;
        TempFolder const folder;
        write_sharded(folder.path(), {{{"w", DType::u8, Shape{rows, 10}}, 1, {{0, 0, Box(Shape{rows, 10})}}}}, 1,
                      Described::by_manifest, true, 64);
        std::string const path = folder / "shard-00001-of-00001.0123456789abcdef.safetensors";
        Index const data = SafetensorsFile::open(path).data_offset();
        with_all([&](auto strategy) {
            CAPTURE(strategy.name);
            bool const direct = std::string_view(strategy.name) == EachRankReadsItsBoxes::name;
            std::atomic<Index> read{0};
            std::atomic<Index> verified{0};
            auto const run = [&](Checksums compared) {
                read = verified = 0;
                strategy.options.verify_checksums = compared;
                return thrown_by(3, [&](ThreadCommunicator& comm) {
                    std::vector<std::byte> row(10);  // row 30 is bytes 300 to 310, in the block of 256 to 320
                    std::vector<LocalTensor> const list{{"w",
                                                         parse("(3):(R)", Shape{1, 10}),
                                                         DynamicView(row.data(), DType::u8, Shape{1, 10}),
                                                         {.shape = Shape{rows, 10}, .begin = {30, 0}}}};
                    LoadReport const report = load(folder.path(), list, comm, strategy);
                    read += report.bytes_read;
                    verified += report.bytes_verified;
                    CHECK(report.bytes_loaded == 10);
                    for (Index i = 0; i < 10; ++i)
                        CHECK(row[static_cast<std::size_t>(i)] == expected_byte("w", 300 + i));
                });
            };
            Index const readers = direct ? 3 : 1;
            check_none(run(Checksums::whole_blocks));
            CHECK(read == readers * 10);
            CHECK(verified == 0);
            check_none(run(Checksums::touched_blocks));
            CHECK(read == readers * 64);
            CHECK(verified == readers * 64);
            for (Index const byte : {256, 299, 310, 319}) {  // of the block, and not of the row
                spoil(path, data + byte);
                check_none(run(Checksums::whole_blocks));
                check_same(run(Checksums::touched_blocks), ErrorCode::format,
                           {"of tensor 'w'", "bytes 256 to 320", "partly filled"});
                spoil(path, data + byte);
            }
            for (Index const byte : {255, 320}) {  // of others
                spoil(path, data + byte);
                check_none(run(Checksums::touched_blocks));
                spoil(path, data + byte);
            }
        });
    }

    TEST_CASE("of columns every block is read whole, whichever gaps are read in any case") {
        std::vector<Goal> const goals{goal("w", DType::f32, "(4):(S1)", Shape{64, 4096})};  // gaps of 12 KiB
        TempFolder const folder;
        Manifest const manifest = write_sharded(folder.path(), {{goals[0].stored, 1, {{0, 0, Box(Shape{64, 4096})}}}},
                                                1, Described::by_manifest, true, 36'864);  // the last has all of a row
        constexpr Index all = Index{4} * 64 * 4096;
        for (Index const chunk : {Index{30'000}, Index{100'000}, Index{8} << 20}) {
            for (Index const gap : {Index{0}, Index{16'000}}) {
                CAPTURE(chunk);
                CAPTURE(gap);
                EveryRankReads how;
                how.options.verify_checksums = Checksums::touched_blocks;
                how.reads.chunk_bytes = chunk;
                how.reads.gap_bytes = gap;
                how.reads.over_read = 8;
                for (int rank = 0; rank < 4; ++rank) {
                    LocalTensors tensors(goals, rank);
                    LoadReport const report = load(Checkpoint::open(folder.path()), tensors.list(), rank, how);
                    CHECK(tensors.wrong() == "");
                    CHECK(report.bytes_read == all);
                    CHECK(report.bytes_verified == all);
                    CHECK(report.bytes_loaded == all / 4);
                    CHECK(report.extra_bytes <= 4 * chunk);
                }
                auto const forecast =
                    forecast_load(Catalogue(manifest), placed_tensors(LocalTensors(goals, 0).list()), 4, how);
                CHECK(forecast.bytes_read == 4 * all);
                CHECK(forecast.bytes_verified == 4 * all);
            }
        }
    }

    TEST_CASE("blocks that are loaded whole are read as if nothing were compared") {
        std::vector<Goal> goals;
        std::vector<Saved> saved;
        for (int i = 10; i < 26; ++i) {
            goals.push_back(goal(std::to_string(i) + "a", DType::u8, "(1):(R)", Shape{10 << 10}));
            saved.push_back({goals.back().stored, 1, {{0, 0, Box(Shape{10 << 10})}}});
            auto const between = goal(std::to_string(i) + "b", DType::u8, "(1):(R)", Shape{30 << 10});
            saved.push_back({between.stored, 1, {{0, 0, Box(Shape{30 << 10})}}});
        }
        TempFolder const folder;
        write_sharded(folder.path(), saved, 1, Described::by_manifest, true, 1 << 20);
        for (Checksums const checksums : {Checksums::whole_blocks, Checksums::touched_blocks}) {
            LocalTensors tensors(goals, 0);
            EveryRankReads how;
            how.options.verify_checksums = checksums;
            LoadReport const report = load(Checkpoint::open(folder.path()), tensors.list(), 0, how);
            CHECK(tensors.wrong() == "");
            CHECK(report.bytes_read == 16 * (10 << 10));
            CHECK(report.bytes_verified == 16 * (10 << 10));
            CHECK(report.extra_bytes == 0);
        }
    }

    TEST_CASE("of columns far apart the rest of blocks is one read box, not one a row") {
        std::vector<Goal> const goals{goal("w", DType::u8, "(8):(S1)", Shape{4000, 8192})};  // gaps of 7 KiB
        TempFolder const folder;
        Manifest const manifest = write_sharded(folder.path(), {{goals[0].stored, 1, {{0, 0, Box(Shape{4000, 8192})}}}},
                                                1, Described::by_manifest, true, 1 << 20);
        Catalogue const catalogue(manifest);
        LocalTensors tensors(goals, 3);
        auto const list = tensors.list();
        LoadOptions options;
        options.verify_checksums = Checksums::touched_blocks;
        EveryRankReads how;
        how.options = options;
        auto const report = load(Checkpoint::open(folder.path()), list, 3, how);
        CHECK(tensors.wrong() == "");
        CHECK(report.bytes_read == 4000 * 8192);
        CHECK(report.bytes_verified == 4000 * 8192);
        auto const wanted = detail::match(catalogue, list, options);
        auto const boxes = detail::needed_boxes(wanted, list, 3);
        detail::ReadPlan const narrow(boxes, ReadOptions{.gap_bytes = 0});
        CHECK(detail::rest_of_blocks(catalogue, wanted, narrow.reads()).size() > 4000);
        CHECK(detail::rest_of_blocks(catalogue, wanted, narrow.reads(), ReadOptions().direct_bytes).size() < 3);
    }

    TEST_CASE("a sum of more than a block is compared where all that it is of is loaded, and costs nothing else") {
        std::vector<Goal> const goals{goal("w", DType::f32, "(2):(S0)", Shape{40, 16})};
        TempFolder const folder;
        Manifest manifest = write_sharded(folder.path(), {{goals[0].stored, 1, {{0, 0, Box(Shape{40, 16})}}}}, 1,
                                          Described::by_manifest, true, 64);
        manifest.extents[0].block_sums.clear();  // as releases wrote it that knew no blocks
        Catalogue const catalogue(manifest);
        EachRankReadsItsBoxes how;
        how.options.verify_checksums = Checksums::touched_blocks;
        auto const half = forecast_load(catalogue, placed_tensors(LocalTensors(goals, 0).list()), 2, how);
        CHECK(half.bytes_read == 2560);
        CHECK(half.bytes_verified == 0);
        std::vector<Goal> const whole{goal("w", DType::f32, "(2):(R)", Shape{40, 16})};
        auto const all = forecast_load(catalogue, placed_tensors(LocalTensors(whole, 0).list()), 2, how);
        CHECK(all.bytes_read == 2 * 2560);
        CHECK(all.bytes_verified == 2 * 2560);
    }

    TEST_CASE("a bit of an extent that two ranks read in parts is found as well") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::u8, "(3):(R)", Shape{300, 7})};
        write_sharded(folder.path(), {{goals[0].stored, 1, {{0, 0, Box(Shape{300, 7})}}}}, 1, Described::by_manifest);
        std::string const path = folder / "shard-00001-of-00001.0123456789abcdef.safetensors";
        auto const run = [&] {
            return thrown_by(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                CooperativeRead const strategy{256, {}, Cooperation::always, {}};
                auto const report = load(folder.path(), tensors.list(), comm, strategy);
                CHECK(report.bytes_verified == 700);
                CHECK(tensors.wrong() == "");
            });
        };
        check_none(run());
        spoil(path, SafetensorsFile::open(path).file_bytes() - 1000);
        check_same(run(), ErrorCode::format, {"box [0:300,0:7] of tensor 'w'", "partly filled"});
    }
}
