// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/consolidate.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/consolidate_plan.hpp>
#include <reshard/checkpoint/detail/consolidate_folder.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/folder_lock.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/comm/self.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "consolidate_support.hpp"

using namespace checkpoint_test;

namespace {

Saved cut(std::string name, DType dtype, DynamicShape const& shape, int dim, int parts) {
    Saved saved{{std::move(name), dtype, shape}, 1, {}};
    for (int p = 0; p < parts; ++p) {
        Box box(shape);
        Index const extent = shape.extent(dim);
        box.set(dim, {extent * p / parts, extent * (p + 1) / parts});
        saved.parts.push_back({0, p, box});
    }
    return saved;
}
Saved whole(std::string name, DType dtype, DynamicShape const& shape, int file = 0) {
    return {{std::move(name), dtype, shape}, 1, {{0, file, Box(shape)}}};
}

/// Shards in `in` of a folder; `out` is not there yet.
struct Shards {
    TempFolder folder;
    std::string in = folder / "in";
    std::string out = folder / "out";
    std::vector<Saved> list;

    explicit Shards(std::vector<Saved> saved, int files, Described how = Described::by_manifest)
        : list(std::move(saved)) {
        std::filesystem::create_directory(in);
        write_sharded(in, list, files, how);
    }
    /// Nothing but the input is left.
    [[nodiscard]] bool untouched() const { return !std::filesystem::exists(out); }
};

std::vector<Saved> small_model() {
    return {cut("a", DType::f32, Shape{64, 48}, 0, 4), cut("b", DType::bf16, Shape{40, 64}, 1, 4),
            whole("c", DType::i64, Shape{})};
}

std::vector<std::string> leaves_in(std::string const& folder) {
    auto leaves = reshard::detail::leaves_of(folder);
    std::sort(leaves.begin(), leaves.end());
    return leaves;
}

/// All ranks throw the same, in words that have each part; nothing is left behind.
void check_refused(Shards const& shards, std::vector<Caught> const& all, ErrorCode code,
                   std::vector<std::string> const& parts) {
    for (Caught const& one : all) {
        CAPTURE(one.message);
        CHECK(one.code == code);
        CHECK(one.message == all[0].message);
        for (std::string const& part : parts) CHECK_MESSAGE(contains(one.message, part), part);
        CHECK(contains(one.message, "Fix: "));
    }
    CHECK(shards.untouched());
}

}  // namespace

// What PyTorch's consolidation gets wrong, or did: torch/distributed/checkpoint/_consolidate_hf_safetensors.py.
TEST_SUITE("checkpoint/consolidate") {
    TEST_CASE("every element type comes through: scalars, empty tensors, integers, booleans, 4 and 6 bits") {
        std::vector<Saved> list;
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            std::string const number = errors::concat(i < 10 ? "0" : "", i);
            if (is_byte_sized(dtype)) {
                list.push_back(cut(number + "cut", dtype, Shape{6, 10}, i % 2, 2));
                list.push_back(whole(number + "scalar", dtype, Shape{}, i % 2));
            } else {
                list.push_back(whole(number + "whole", dtype, Shape{6, 4}));
            }
            list.push_back(whole(number + "without", dtype, Shape{4, 0, 2}));
        }
        for (Described const how : {Described::by_manifest, Described::by_shards}) {
            Shards shards(list, 2, how);
            on_ranks(3, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.out, comm); });
            CHECK(damage(shards.out, list) == "");
            CHECK(Checkpoint::open(shards.out).files()[0].metadata() == Metadata{{"format", "pt"}});
        }
    }

    TEST_CASE("one file keeps all ranks busy: shares are equal in bytes, wherever tensors end") {
        std::vector<Saved> list{cut("large", DType::f32, Shape{1024, 512}, 0, 4),
                                cut("z", DType::f32, Shape{64}, 0, 4)};
        Shards shards(list, 4);
        ConsolidateOptions options;
        options.max_file_bytes = 0;
        auto const reports =
            on_ranks(5, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.out, comm, options); });
        CHECK(damage(shards.out, list) == "");
        for (RewriteReport const& report : reports) {
            CHECK(static_cast<double>(report.bytes_written) * 5 ==
                  doctest::Approx(static_cast<double>(report.bytes_total)).epsilon(0.02));
        }
        std::vector<std::string> leaves;
        for (auto const& entry : std::filesystem::directory_iterator(shards.out))
            leaves.push_back(entry.path().filename());
        CHECK(leaves == std::vector<std::string>{"model.safetensors"});
    }

    TEST_CASE("a missing, a doubled and a cut shard are refused, naming tensor and box, before anything is written") {
        auto list = small_model();
        SUBCASE("missing") {
            list[1].parts.erase(list[1].parts.begin() + 2);
            Shards shards(list, 4);
            check_refused(shards, caught_on_ranks(3, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::format, {"'b'", "[0:40,32:48]", "missing"});
        }
        SUBCASE("twice") {
            list[0].parts.push_back({0, 3, Box{{8, 12}, {0, 48}}});
            Shards shards(list, 4);
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::format, {"'a'", "[8:12,0:48]", "more than once"});
        }
        SUBCASE("a file of PyTorch's is gone") {
            Shards shards(list, 4, Described::by_shards);
            std::filesystem::remove(shards.in + "/shard-00002-model-00001-of-00001.safetensors");
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::format, {"shard 2"});
        }
        SUBCASE("a file of the manifest is gone") {
            Shards shards(list, 4);
            std::filesystem::remove(shards.in + "/shard-00002-of-00004.0123456789abcdef.safetensors");
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::io, {"shard-00002", "missing"});
        }
        SUBCASE("a file was cut short") {
            Shards shards(list, 4);
            std::filesystem::resize_file(shards.in + "/shard-00003-of-00004.0123456789abcdef.safetensors", 500);
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::format, {"shard-00003"});
        }
        SUBCASE("shards of two saves in one folder") {
            Shards shards(list, 4, Described::by_shards);
            std::filesystem::rename(shards.in + "/shard-00002-model-00001-of-00001.safetensors",
                                    shards.in + "/shard-00002-model-00001-of-00002.safetensors");
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::format, {"different saves"});
        }
        SUBCASE("a file of another save than the manifest's") {
            Shards shards(list, 4);
            Shards other({cut("a", DType::f32, Shape{64, 48}, 0, 4), cut("b", DType::f16, Shape{40, 64}, 1, 4),
                          whole("c", DType::i64, Shape{})},
                         4);
            std::string const leaf = "/shard-00002-of-00004.0123456789abcdef.safetensors";
            std::filesystem::copy_file(other.in + leaf, shards.in + leaf,
                                       std::filesystem::copy_options::overwrite_existing);
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::mismatch, {"shard-00002"});
        }
    }

    TEST_CASE("memory stays under the window, whatever the size of a tensor") {
        std::vector<Saved> const list{cut("large", DType::f32, Shape{1500, 700}, 1, 4)};
        Shards shards(list, 4);
        ConsolidateOptions options;
        options.window_bytes = Index{256} << 10;
        options.in_flight = 2;
        auto const reports =
            on_ranks(2, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.out, comm, options); });
        CHECK(damage(shards.out, list) == "");
        for (RewriteReport const& report : reports) CHECK(report.extra_bytes <= options.window_bytes);
        CHECK(reports[0].extra_bytes + reports[1].extra_bytes < reports[0].bytes_total / 4);
    }

    TEST_CASE("no final name is there while bytes are written, and ranks vote after as many bytes as they were told") {
        std::vector<Saved> const list{cut("a", DType::f32, Shape{1024, 256}, 0, 4)};
        Shards shards(list, 4);
        ConsolidateOptions options;
        options.max_file_bytes = 1;
        options.vote_bytes = 100'000;
        options.window_bytes = Index{512} << 10;
        std::atomic<int> looks{0};
        options.progress = [&](Index done, Index total) {
            CHECK(done <= total);
            for (auto const& entry : std::filesystem::directory_iterator(shards.out)) {
                CHECK(entry.path().filename().string().front() == '.');
            }
            ++looks;
        };
        auto const reports =
            on_ranks(2, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.out, comm, options); });
        CHECK(looks > 2);
        CHECK(damage(shards.out, list) == "");
        Index const votes = plan_consolidate(Catalogue(Checkpoint::open(shards.in)), 2, options).votes;
        CHECK(votes == 6);
        CHECK(reports[0].collectives.agreements >= votes);
        CHECK(reports[0].collectives.agreements < votes + 12);
    }

    TEST_CASE("runs are merged over all dimensions, on both sides") {
        auto const runs = [](Saved const& saved, int files) {
            Shards shards({saved}, files);
            ConsolidateOptions options;
            options.in_flight = 1;
            return plan_consolidate(Catalogue(Checkpoint::open(shards.in)), 1, options).shares[0];
        };
        RewriteShare const conv = runs(cut("conv", DType::f32, Shape{64, 64, 3, 3}, 0, 8), 8);
        CHECK(conv.runs == 1);
        CHECK(conv.reads == 8);
        RewriteShare const five = runs(cut("five", DType::f32, Shape{8, 4, 4, 2, 2}, 0, 4), 4);
        CHECK(five.runs == 1);
        CHECK(five.reads == 4);
        // The other way: shards of dimension 1 of a whole tensor are read once, whole.
        TempFolder folder;
        write_checkpoint(
            folder / "full", {{"w", DType::f32, Shape{128, 64}}},
            [](TensorInfo const& tensor, Index at, std::span<std::byte> out) { fill_expected(tensor, at, out); });
        RewritePlan const plan =
            plan_shards(Catalogue(Checkpoint::open(folder / "full")), placed_as("(8):(S1)"), 1, ShardOptions{});
        CHECK(plan.shares[0].reads == 1);
        CHECK(plan.shares[0].bytes_read == 128 * 64 * 4);
        CHECK(plan.shares[0].runs == 8);
    }

    TEST_CASE("what one rank finds out, all are told, and the output folder is as it was") {
        std::vector<Saved> const list{cut("a", DType::f32, Shape{2048, 256}, 0, 4)};
        Shards shards(list, 4);
        ConsolidateOptions options;
        options.in_flight = 1;
        options.vote_bytes = 200'000;
        options.window_bytes = Index{128} << 10;
        SUBCASE("whatever the reason") {
            auto const all = caught_on_ranks(3, [&](ThreadCommunicator& comm) {
                ConsolidateOptions mine = options;
                if (comm.rank() == 2) {
                    mine.progress = [](Index done, Index total) {
                        if (done > total / 2) errors::raise(ErrorCode::io, "IoError: the disk is full. Fix: empty it.");
                    };
                }
                consolidate(shards.in, shards.out, comm, mine);
            });
            check_refused(shards, all, ErrorCode::io, {"rank 2 of 3", "the disk is full"});
        }
        SUBCASE("a shard that is cut short under way") {
            auto const all = caught_on_ranks(2, [&](ThreadCommunicator& comm) {
                ConsolidateOptions mine = options;
                if (comm.rank() == 0) {
                    mine.progress = [&](Index, Index) {
                        std::filesystem::resize_file(shards.in + "/shard-00004-of-00004.0123456789abcdef.safetensors",
                                                     900);
                    };
                }
                consolidate(shards.in, shards.out, comm, mine);
            });
            check_refused(shards, all, ErrorCode::io, {"rank 1 of 2", "shard-00004", "cut short"});
        }
        SUBCASE("a shard that is written to under way") {
            auto const all = caught_on_ranks(2, [&](ThreadCommunicator& comm) {
                ConsolidateOptions mine = options;
                mine.verify_checksums = false;
                if (comm.rank() == 1) {
                    mine.progress = [&](Index, Index) {
                        std::ofstream out(shards.in + "/shard-00004-of-00004.0123456789abcdef.safetensors",
                                          std::ios::binary | std::ios::in);
                        out.seekp(3000);
                        out.put('!');
                    };
                }
                consolidate(shards.in, shards.out, comm, mine);
            });
            check_refused(shards, all, ErrorCode::io, {"rank 1 of 2", "written to while it was read"});
        }
    }

    TEST_CASE("bytes that are not those that were saved are refused") {
        auto const list = small_model();
        Shards shards(list, 4);
        std::string const path = shards.in + "/shard-00002-of-00004.0123456789abcdef.safetensors";
        std::string text = read_text(path);
        text.back() = static_cast<char>(text.back() ^ 4);
        write_text(path, text);
        check_refused(shards, caught_on_ranks(3, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                      ErrorCode::format, {"shard-00002", "CRC-32C"});
        ConsolidateOptions options;
        options.verify_checksums = false;
        consolidate(shards.in, shards.out, options);
        CHECK(damage(shards.out, list) != "");
    }

    TEST_CASE("whole files with a manifest: a flipped bit is named in each, and those without open as before") {
        auto list = small_model();
        list.push_back(whole("d", DType::u8, Shape{3 << 20}));  // several blocks
        Shards shards(list, 4);
        ConsolidateOptions options;
        options.manifest = true;
        options.metadata.emplace_back("step", "12");
        SelfCommunicator alone;
        for (Index const most : {Index{0}, Index{10'000}}) {  // one file, and three with an index
            CAPTURE(most);
            std::string const out = errors::concat(shards.out, most);
            options.max_file_bytes = most;
            auto const reports = on_ranks(3, [&](auto& comm) { return consolidate(shards.in, out, comm, options); });
            CHECK(damage(out, list) == "");
            Checkpoint const opened = Checkpoint::open(out);
            CHECK(opened.kind() == CheckpointKind::manifest);
            CHECK(opened.manifest() == reports[2].written);
            for (std::size_t f = 0; f < opened.files().size(); ++f)
                CHECK(detail::is_saved_header(opened.manifest(), f, opened.files()[f].data_offset() - 8));
            CHECK(opened.manifest().world_size == 1);
            CHECK(opened.tensors().size() == list.size());
            CHECK(verify_checkpoint(out, alone).extents_without_checksum == 0);

            // Who goes by the names of files finds what is there without the manifest, and not one file more.
            std::string const other =
                errors::concat(out, "/", most == 0 ? "model.safetensors" : "model.safetensors.index.json");
            Checkpoint const plain = Checkpoint::open(other);
            CHECK(plain.kind() == (most == 0 ? CheckpointKind::file : CheckpointKind::index));
            CHECK(plain.manifest().metadata == opened.manifest().metadata);
            CHECK(leaves_in(out).size() == opened.files().size() + (most == 0 ? 1 : 2));

            CHECK(opened.files().size() == (most == 0 ? 1 : 3));
            for (CheckpointFile const& file : opened.manifest().files) {
                std::string const path = errors::concat(out, "/", file.leaf);
                std::string const text = read_text(path);
                std::string spoilt = text;
                spoilt.back() = static_cast<char>(spoilt.back() ^ 1);
                write_text(path, spoilt);
                Caught const found = caught([&] { verify_checkpoint(out, alone); });
                CHECK(found.code == ErrorCode::format);
                CHECK_MESSAGE(contains(found.message, "1 fault:"), found.message);
                CHECK_MESSAGE(contains(found.message, errors::concat("'", file.leaf, "'")), found.message);
                CHECK(caught([&] { consolidate(out, shards.out); }).code == ErrorCode::format);
                write_text(path, text);
            }
            CHECK(consolidate(out, shards.out).bytes_verified > 0);
            CHECK(leaves_in(shards.out) == std::vector<std::string>{"model.safetensors"});  // off by default
            std::filesystem::remove_all(shards.out);
        }
        options.checksums = false;
        check_refused(shards,
                      caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm, options); }),
                      ErrorCode::buffer, {"manifest is true, but checksums is false"});
    }

    TEST_CASE("nothing has its name where a rank finds at the end that what it has read is damaged") {
        Shards shards({whole("a", DType::f32, Shape{64, 64}), whole("b", DType::f32, Shape{64, 64}, 1)}, 2);
        std::string const path = shards.in + "/shard-00002-of-00002.0123456789abcdef.safetensors";
        std::string text = read_text(path);
        text.back() = static_cast<char>(text.back() ^ 4);  // of what rank 1 alone reads
        write_text(path, text);
        ShardOptions options;
        options.checksums = false;  // else all ranks meet once more
        check_refused(shards,
                      caught_on_ranks(2,
                                      [&](auto& comm) {
                                          ConsolidateOptions whole_files;
                                          whole_files.checksums = false;
                                          consolidate(shards.in, shards.out, comm, whole_files);
                                      }),
                      ErrorCode::format, {"'b'", "CRC-32C"});
        check_refused(
            shards,
            caught_on_ranks(
                2, [&](auto& comm) { shard_checkpoint(shards.in, shards.out, placed_as("(2):(S0)"), comm, options); }),
            ErrorCode::format, {"'b'", "CRC-32C"});
    }

    TEST_CASE("a manifest that contradicts a header is refused") {
        Shards shards(small_model(), 4);
        std::string const path = shards.in + "/reshard.manifest.json";
        Manifest told = manifest_from(read_text(path), path);
        told.extents.back().key = "elsewhere";
        write_text(path, to_json(told));
        check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                      ErrorCode::format, {"as it says"});
    }

    TEST_CASE("output on the input, and output folders that are not empty, are refused") {
        Shards shards(small_model(), 4);
        auto const run = [&](std::string const& out) {
            return caught_on_ranks(2, [&](ThreadCommunicator& comm) { consolidate(shards.in, out, comm); });
        };
        check_refused(shards, run(shards.in), ErrorCode::io, {"it is the folder that is read"});
        std::filesystem::create_directory_symlink(shards.in, shards.folder / "other name");
        check_refused(shards, run(shards.folder / "other name"), ErrorCode::io, {"it is the folder that is read"});
        TempFolder const other;
        write_text(other / "config.json", "{}");
        check_refused(shards, run(other.path()), ErrorCode::io, {"it is not empty", "'config.json'"});
        CHECK(other.leaves() == std::vector<std::string>{"config.json"});
        check_refused(shards, run(other / "config.json"), ErrorCode::io, {"config.json"});
        check_refused(shards, run(other / "config.json/inside"), ErrorCode::io,
                      {"config.json/inside: cannot create the folder"});
        std::filesystem::create_symlink("nowhere", other / "link");
        for (char const* const leaf : {"link", "link/inside"}) {
            check_refused(shards, run(other / leaf), ErrorCode::io,
                          {"/link: cannot create the folder", "Fix: a link has this name, and leads nowhere"});
            CHECK(std::filesystem::is_symlink(other / "link"));
        }
    }

    TEST_CASE("a report in words") {
        Shards shards(small_model(), 4);
        RewriteReport report = consolidate(shards.in, shards.out);
        report.bytes_total = report.bytes_written = report.bytes_read = 3072;
        report.bytes_verified = report.extra_bytes = 0;
        report.writes = report.reads = 2;
        report.files_opened = 5;
        report.seconds = 2e-5;
        CHECK(explain(report) == errors::concat(report.written.tensors.size(),
                                                " tensors, 3.0 KiB in 1 file, by all ranks\n",
                                                "  collectives: ", to_string(report.collectives),
                                                "\n  wrote 3.0 KiB in 2 writes\n"
                                                "  read 3.0 KiB in 2 reads, 5 open files; all ranks verified 0 B\n"
                                                "  memory for bytes in flight: 0 B\n"
                                                "  20.0 us\n"));
    }

    TEST_CASE("a folder whose shards lie in a sub-folder may be written to, and what a dead run left makes room") {
        Shards shards(small_model(), 4);
        write_text(shards.folder / ".model.safetensors.tmp.123.0", "half");
        write_text(shards.folder / errors::concat(reshard::detail::nonce_prefix, "0123456789abcdef"), "");
        on_ranks(2, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.folder.path(), comm); });
        CHECK(damage(shards.folder / "model.safetensors", shards.list) == "");
        CHECK(shards.folder.leaves() == std::vector<std::string>{"in", "model.safetensors"});
    }

    TEST_CASE("a save under way is refused by name, and an unpublished one is never read") {
        Shards shards(small_model(), 4);
        {
            reshard::detail::FolderLock const saving(shards.in, ".reshard.manifest.json.lock");
            check_refused(
                shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                ErrorCode::io,
                {"a save into this folder is under way",
                 errors::concat("it holds .reshard.manifest.json.lock (process ", ::getpid(), " on "), "SaveRequest"});
        }
        write_text(shards.in + "/.reshard.manifest.json.lock", "");  // left by a process that died
        REQUIRE(::mkfifo((shards.in + "/.model.safetensors.index.json.lock").c_str(), 0600) == 0);
        consolidate(shards.in, shards.folder / "first");
        CHECK(damage(shards.folder / "first", shards.list) == "");
        std::filesystem::remove(shards.in + "/reshard.manifest.json");
        check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                      ErrorCode::io, {"a save that never ended"});
    }

    TEST_CASE(
        "who writes into a folder leaves alone who writes checkpoints of the other kind there, unless that died") {
        Shards shards(small_model(), 4);
        auto const whole = [&](auto& comm) { consolidate(shards.in, shards.out, comm); };
        auto const parts = [&](auto& comm) { shard_checkpoint(shards.in, shards.out, placed_as("(2):(S0)"), comm); };
        std::string const of_whole = ".model.safetensors.tmp.1.0";
        std::string const of_parts = ".shard-00001-of-00002.0123456789abcdef.safetensors.tmp.1.0";
        auto const check = [&](std::string const& lock, std::string const& temporary, auto const& other) {
            std::filesystem::remove_all(shards.out);
            std::filesystem::create_directory(shards.out);
            write_text(shards.out + "/" + temporary, "half");
            {
                reshard::detail::FolderLock const writing(shards.out, lock);
                auto const thrown = caught_on_ranks(2, other);
                CHECK(contains(thrown[0].message, "another save into this folder is under way: it holds " + lock));
                CHECK(std::filesystem::exists(shards.out + "/" + temporary));
            }
            write_text(shards.out + "/model.safetensors", "half");
            write_text(shards.out + "/" + lock, note_of_files({{"model.safetensors", shards.out + "/model.safetensors"},
                                                               {"more.safetensors", shards.out + "/" + temporary}}));
            run_on_threads(2, [&](ThreadCommunicator& comm) { other(comm); });
            CHECK(!std::filesystem::exists(shards.out + "/" + temporary));
            CHECK(!std::filesystem::exists(shards.out + "/" + lock));
            SelfCommunicator alone;
            CHECK(compare_checkpoints(shards.in, shards.out, alone).equal());
        };
        std::string const first = ".reshard.manifest.json.lock";
        std::string const second = ".model.safetensors.index.json.lock";
        check(first, of_parts, whole);
        check(second, of_whole, parts);
        // All take the locks in one order: two that hold one each would both be refused.
        std::filesystem::remove_all(shards.out);
        std::filesystem::create_directory(shards.out);
        reshard::detail::FolderLock const locks[] = {{shards.out, first}, {shards.out, second}};
        CHECK(contains(caught_on_ranks(2, whole)[0].message, "it holds " + first));
        CHECK(contains(caught_on_ranks(2, parts)[0].message, "it holds " + first));
    }

    TEST_CASE("a folder that is refused keeps what is there, what a dead run has left as well") {
        Shards shards(small_model(), 4);
        std::filesystem::create_directory(shards.out);
        std::string const lock = shards.out + "/.model.safetensors.index.json.lock";
        write_text(shards.out + "/.model.safetensors.tmp.1.0", "half");
        write_text(shards.out + "/config.json", "{}");
        write_text(shards.out + "/part.safetensors", "part");
        auto const note = note_of_files({{"part.safetensors", shards.out + "/part.safetensors"},
                                         {"model.safetensors", shards.out + "/.model.safetensors.tmp.1.0"}});
        write_text(lock, note);
        auto const before = leaves_in(shards.out);
        check_io("it is not empty: there is 'config.json'", [&] { consolidate(shards.in, shards.out); });
        check_io("it is not empty: there is 'config.json'",
                 [&] { shard_checkpoint(shards.in, shards.out, placed_as("(2):(S0)")); });
        CHECK(leaves_in(shards.out) == before);
        CHECK(read_text(lock) == note);
        std::filesystem::remove(shards.out + "/config.json");
        CHECK(consolidate(shards.in, shards.out).left_over == std::vector<std::string>{"part.safetensors"});
        CHECK(leaves_in(shards.out) == std::vector<std::string>{"model.safetensors"});
    }

    TEST_CASE("a file of the name and size that a dead run has noted is not what it has left") {
        Shards shards(small_model(), 4);
        std::filesystem::create_directory(shards.out);
        std::string const lock = shards.out + "/.model.safetensors.index.json.lock";
        write_text(shards.out + "/a.safetensors", "left");
        write_text(shards.out + "/b.safetensors", "left");
        auto note = note_of_files(
            {{"a.safetensors", shards.out + "/a.safetensors"}, {"b.safetensors", shards.out + "/b.safetensors"}});
        write_text(shards.folder / "mine", "mine");
        std::filesystem::rename(shards.folder / "mine", shards.out + "/b.safetensors");
        SUBCASE("another file") {}
        SUBCASE("a note of an earlier version, of sizes alone") {
            std::string const end(1, '\0');
            note = errors::concat("reshard gives names\n4 b.safetensors", end, "4 a.safetensors", end);
        }
        write_text(lock, note);
        check_io("it is not empty", [&] { consolidate(shards.in, shards.out); });
        CHECK(read_text(shards.out + "/a.safetensors") == "left");
        CHECK(read_text(shards.out + "/b.safetensors") == "mine");
        std::filesystem::remove(shards.out + "/b.safetensors");
        if (note.starts_with(reshard::detail::note_head)) {
            CHECK(consolidate(shards.in, shards.out).left_over == std::vector<std::string>{"a.safetensors"});
        } else {
            check_io("it is not empty", [&] { consolidate(shards.in, shards.out); });
        }
    }

    TEST_CASE("all that a dead run has noted is a checkpoint, and nothing that it has left") {
        Shards shards(small_model(), 4);
        consolidate(shards.in, shards.out);
        write_text(shards.out + "/.model.safetensors.index.json.lock",
                   note_of_files({{"model.safetensors", shards.out + "/model.safetensors"}}));
        check_io("it is not empty: there is 'model.safetensors'", [&] { consolidate(shards.in, shards.out); });
        CHECK(leaves_in(shards.out) == std::vector<std::string>{"model.safetensors"});
        CHECK(damage(shards.out, shards.list) == "");
    }

    TEST_CASE("what write_checkpoint is writing is left alone, and it leaves no locks") {
        Shards shards(small_model(), 4);
        int asked = 0;
        write_checkpoint(shards.out, {{"w", DType::u8, Shape{9}}},
                         [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                             ++asked;
                             check_io("another save into this folder is under way",
                                      [&] { consolidate(shards.in, shards.out); });
                             check_io("another save into this folder is under way",
                                      [&] { shard_checkpoint(shards.in, shards.out, placed_as("(2):(S0)")); });
                             check_io("a save into this folder is under way",
                                      [&] { consolidate(shards.out, shards.folder / "other"); });
                             fill_expected(tensor, begin, out);
                         });
        CHECK(asked == 1);
        CHECK(leaves_in(shards.out) == std::vector<std::string>{"model.safetensors"});
    }

    TEST_CASE("what a dead run has noted is nothing to who comes after write_checkpoint") {
        Shards shards(small_model(), 4);
        std::vector<TensorSpec> const list{{"w", DType::u8, Shape{9}}};
        write_checkpoint(shards.out, list, fill_expected);
        auto const note = note_of_files({{"model.safetensors", shards.out + "/model.safetensors"}});
        for (char const* const lock : {"/.model.safetensors.index.json.lock", "/.reshard.manifest.json.lock"}) {
            write_text(shards.out + lock, note);
            auto const fails = [](auto&&...) { errors::raise(ErrorCode::user, "no more"); };
            CHECK(caught([&] { write_checkpoint(shards.out, list, fails); }).code == ErrorCode::user);
            CHECK(read_text(shards.out + lock) == note);  // it has written nothing
            write_checkpoint(shards.out, list, fill_expected);
            check_io("it is not empty", [&] { consolidate(shards.in, shards.out); });
            CHECK(leaves_in(shards.out) == std::vector<std::string>{"model.safetensors"});
        }
    }

    TEST_CASE("a save under way is waited for where its handle is given") {
        TempFolder folder;
        std::string const in = folder / "in";
        std::vector<float> whole(300);
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
        auto const reports = on_ranks(3, [&](ThreadCommunicator& comm) {
            auto const where = parse("(3):(S0)", Shape{300});
            auto mine = std::vector<float>(whole.begin() + 100 * comm.rank(), whole.begin() + 100 * comm.rank() + 100);
            std::vector<LocalTensor> const tensors{{"w", where, TensorView<float>(mine.data(), Shape{100})}};
            auto saving = start_save(in, tensors, comm);
            std::fill(mine.begin(), mine.end(), -1.0F);  // the trainer goes on
            RewriteReport report = consolidate(saving, in, folder / "out", comm);
            Caught const again = caught([&] { consolidate(saving, in, folder / "again", comm); });
            CHECK(again.code == ErrorCode::buffer);
            return report;
        });
        CHECK(reports[0].bytes_total == 1200);
        Checkpoint const full = Checkpoint::open(folder / "out");
        std::vector<float> read(300);
        full.read(full.at("w"), std::as_writable_bytes(std::span(read)));
        CHECK(read == whole);
        CHECK_FALSE(std::filesystem::exists(folder / "again"));
    }

    TEST_CASE("too little room is told before anything is written") {
        TempFolder folder;
        std::filesystem::create_directory(folder / "in");
        Index const huge = Index{1} << 43;
        std::string header =
            errors::concat("{\"w\":{\"dtype\":\"U8\",\"shape\":[", huge, "],\"data_offsets\":[0,", huge, "]}}");
        header.append((8 - header.size() % 8) % 8, ' ');
        write_text(folder / "in/model.safetensors", length_bytes(header.size()) + header);
        std::error_code failed;
        std::filesystem::resize_file(folder / "in/model.safetensors",
                                     8 + header.size() + static_cast<std::size_t>(huge), failed);
        if (failed || std::filesystem::space(folder.path()).available > static_cast<std::uintmax_t>(huge)) {
            MESSAGE("skipped: no sparse files of 8 TiB here, or room for one");
            return;
        }
        for (Caught const& one :
             caught_on_ranks(2, [&](ThreadCommunicator& comm) { consolidate(folder / "in", folder / "out", comm); })) {
            CAPTURE(one.message);
            CHECK(one.code == ErrorCode::io);
            CHECK(contains(one.message, "bytes will be written, there is room for"));
        }
        CHECK(folder.leaves() == std::vector<std::string>{"in"});
    }

    TEST_CASE("ranks that do not see the folder are all named") {
        TempFolder here;
        TempFolder elsewhere;
        write_text(here / "nonce", "");
        auto const all = caught_on_ranks(4, [&](ThreadCommunicator& comm) {
            TempFolder const& folder = comm.rank() % 2 == 0 ? here : elsewhere;
            std::byte seen[4];
            reshard::detail::TransferLists lists;
            reshard::detail::check_shared(comm, folder.path(), folder / "nonce", seen, lists);
        });
        for (Caught const& one : all) {
            CAPTURE(one.message);
            CHECK(one.code == ErrorCode::io);
            CHECK(contains(one.message, "ranks 1,3 of 4 do not see"));
        }
        Shards shards(small_model(), 4);  // the whole of it: relative paths of processes with other working folders
        auto const apart = caught_on_ranks(2, [&](ThreadCommunicator& comm) {
            consolidate(shards.in, comm.rank() == 0 ? shards.out : elsewhere / "out", comm);
        });
        for (Caught const& one : apart) CHECK(contains(one.message, "rank 1 of 2 does not see"));
        CHECK(shards.untouched());
    }

    TEST_CASE("options that mean nothing, or differ between ranks, are refused before work starts") {
        Shards shards(small_model(), 4);
        auto const run = [&](auto&& change) {
            return caught_on_ranks(2, [&](ThreadCommunicator& comm) {
                ConsolidateOptions options;
                change(options, comm.rank());
                consolidate(shards.in, shards.out, comm, options);
            });
        };
        check_refused(shards, run([](auto& o, int rank) { o.in_flight = rank; }), ErrorCode::buffer,
                      {"rank 0 of 2", "in_flight is 0"});
        check_refused(shards, run([](auto& o, int) { o.window_bytes = 1000; }), ErrorCode::buffer, {"window_bytes"});
        check_refused(shards, run([](auto& o, int) { o.vote_bytes = 0; }), ErrorCode::buffer, {"vote_bytes is 0"});
        check_refused(shards, run([](auto& o, int) { o.replica = -2; }), ErrorCode::buffer, {"replica is -2"});
        check_refused(shards, run([](auto& o, int) { o.max_file_bytes = -1; }), ErrorCode::buffer,
                      {"max_file_bytes is -1"});
        check_refused(shards, run([](auto& o, int rank) { o.max_file_bytes = 1000 + rank; }), ErrorCode::mismatch,
                      {"rank 1 of 2: consolidates with max_file_bytes 1001, but rank 0 consolidates with "
                       "max_file_bytes 1000. Fix: "});
        check_refused(shards,
                      caught_on_ranks(2,
                                      [&](ThreadCommunicator& comm) {
                                          if (comm.rank() == 0) consolidate(shards.in, shards.out, comm);
                                          if (comm.rank() == 1)
                                              shard_checkpoint(shards.in, shards.out, placed_as("(2):(R)"), comm);
                                      }),
                      ErrorCode::mismatch,
                      {"rank 1 of 2: is in shard_checkpoint()", ", but rank 0 is in consolidate(). Fix: "});
        check_refused(
            shards, run([](auto& o, int rank) {
                o.metadata = {{"step", std::to_string(rank)}};
            }),
            ErrorCode::mismatch,
            {"consolidates with metadata ['step' '1'], but rank 0 consolidates with metadata ['step' '0']. Fix: "});
        check_refused(shards, run([](auto& o, int rank) {
                          if (rank == 1) o.dtype = floats_as(DType::f64);
                      }),
                      ErrorCode::mismatch,
                      {"rank 1 of 2: writes tensor 'a' with dtype F64, but rank 0 writes tensor 'a' with dtype "});
        auto const sharded = [&](auto&& change) {
            return caught_on_ranks(2, [&](ThreadCommunicator& comm) {
                ShardOptions options;
                std::string where = "(2):(R)";
                change(options, where, comm.rank());
                shard_checkpoint(shards.in, shards.out, placed_as(where), comm, options);
            });
        };
        check_refused(
            shards, sharded([](auto&, std::string& where, int rank) {
                if (rank == 1) where = "(3):(R)";
            }),
            ErrorCode::mismatch,
            {"rank 1 of 2: writes tensor 'a' with place (3):(R), but rank 0 writes tensor 'a' with place (2):(R)"});
        check_refused(shards, sharded([](auto& o, std::string&, int rank) {
                          if (rank == 1) o.dedup = SaveDedup::shared;
                      }),
                      ErrorCode::mismatch, {"shards with dedup shared, but rank 0 shards with dedup balanced. Fix: "});
        check_refused(shards, run([](auto& o, int) { o.dtype = [](StoredTensor const&) { return DType::f8_e4m3; }; }),
                      ErrorCode::dtype, {"'a'", "cannot be written as F8_E4M3"});
        check_refused(shards, run([](auto& o, int) {
                          o.weight_map = {{"a", "x.safetensors"}, {"b", "x.safetensors"}};
                      }),
                      ErrorCode::format, {"does not say where tensor 'c' goes"});
        check_refused(
            shards, run([](auto& o, int) {
                o.weight_map = {
                    {"a", "x.safetensors"}, {"b", "x.safetensors"}, {"c", "x.safetensors"}, {"d", "x.safetensors"}};
            }),
            ErrorCode::format, {"'d'", "does not have"});
        check_refused(shards, run([](auto& o, int) {
                          o.weight_map = {{"a", "x.safetensors"}, {"b", "../x.safetensors"}, {"c", "x.safetensors"}};
                      }),
                      ErrorCode::format, {"'../x.safetensors'"});
    }

    TEST_CASE("any group of ranks: the others are neither needed nor waited for") {
        Shards shards(small_model(), 4);
        std::atomic<int> passed{0};
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            ThreadCommunicator part = comm.split(comm.rank() == 1 ? -1 : 0, -comm.rank());
            if (comm.rank() == 1) {  // an inference server, say
                ++passed;
                return;
            }
            CHECK(part.size() == 3);
            consolidate(shards.in, shards.out, part);
        });
        CHECK(passed == 1);
        CHECK(damage(shards.out, shards.list) == "");
    }

    TEST_CASE("tensors that are named keep their type where floats are cast") {
        auto const cast = floats_as(DType::bf16, {"norm", "*.scale_inv", "a*b*c"});
        auto const type_of = [&](char const* tensor) {
            StoredTensor stored;
            stored.name = tensor;
            stored.dtype = DType::f32;
            return cast(stored);
        };
        for (char const* one : {"norm", "w.scale_inv", ".scale_inv", "abc", "a b c", "axbxbxc"}) {
            CAPTURE(one);
            CHECK(type_of(one) == DType::f32);
        }
        for (char const* one : {"norms", "", "scale_inv", "w.scale_inv.", "ab", "acb", "xabc"}) {
            CAPTURE(one);
            CHECK(type_of(one) == DType::bf16);
        }
    }

    TEST_CASE("values are cast on the way, each rounded once, to even") {
        TempFolder folder;
        std::vector<float> const values{1.0F,    1.00390625F, 1.01171875F, -0.0F,  65504.0F,
                                        1.0e30F, -3.3e38F,    1.0e-8F,     0.333F, std::nanf("")};
        std::size_t const copies = 40'000;
        auto const value = [&](Index i) { return values[static_cast<std::size_t>(i) % values.size()]; };
        Index const count = static_cast<Index>(values.size() * copies);
        write_checkpoint(folder / "in", {{"f", DType::f32, Shape{count / 100, 100}}, {"i", DType::i32, Shape{8}}},
                         [&](CheckpointTensor const& tensor, Index begin, std::span<std::byte> out) {
                             if (tensor.name == "i") return fill_expected(tensor, begin, out);
                             for (std::size_t k = 0; k < out.size(); k += 4) {
                                 float const v = value((begin + static_cast<Index>(k)) / 4);
                                 std::memcpy(out.data() + k, &v, 4);
                             }
                         });
        for (DType const to : {DType::bf16, DType::f16, DType::f64}) {
            ConsolidateOptions options;
            options.dtype = floats_as(to);
            options.window_bytes = Index{300} << 10;
            options.in_flight = 2;
            std::string const out = folder / std::string(name(to));
            auto const reports =
                on_ranks(3, [&](ThreadCommunicator& comm) { return consolidate(folder / "in", out, comm, options); });
            Checkpoint const checkpoint = Checkpoint::open(out);
            CHECK(checkpoint.at("i").dtype == DType::i32);
            CheckpointTensor const& tensor = checkpoint.at("f");
            REQUIRE(tensor.dtype == to);
            std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
            checkpoint.read(tensor, bytes);
            std::vector<std::byte> wanted(bytes.size());
            transport::StridedBox from{{}, 4};
            transport::StridedBox box{{}, reshard::enums::bytes(to)};
            from.dims.push_back({1, 4});
            box.dims.push_back({1, reshard::enums::bytes(to)});
            for (Index i = 0; i < count; ++i) {
                float const v = value(i);
                transport::convert(reinterpret_cast<std::byte const*>(&v), from, DType::f32,
                                   wanted.data() + i * reshard::enums::bytes(to), box, to);
            }
            CHECK(bytes == wanted);
            for (Extent const& extent : reports[0].written.extents)
                if (extent.tensor == 0) CHECK(extent.crc32c == crc32c(bytes));
            if (to ==
                DType::bf16) {  // 1.00390625 is half way between 1 and 1.0078125, 1.01171875 between that and 1.015625
                CHECK(bytes[2] == std::byte{0x80});
                CHECK(bytes[4] == std::byte{0x82});
            }
        }
    }

    TEST_CASE("copies that were saved apart: equal ones are one, others wait for a choice") {
        Saved saved{{"w", DType::f32, Shape{16, 4}}, 2, {}};
        for (int r = 0; r < 2; ++r) saved.parts.push_back({r, r, Box(saved.spec.shape)});
        Shards shards({saved}, 2);
        check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                      ErrorCode::mismatch, {"'w'", "copies 0 and 1", "RewriteOptions::replica", "--replica"});
        for (int r = 0; r < 3; ++r) {
            ConsolidateOptions options;
            options.replica = r;
            consolidate(shards.in, shards.folder / errors::concat("out", r), options);
            CHECK(damage(shards.folder / errors::concat("out", r), shards.list, r) == "");
        }
        // Kept apart, each copy is written as it was.
        ShardOptions apart;
        apart.replica_axes.push_back(0);
        Shards equal({cut("w", DType::f32, Shape{16, 4}, 0, 2)}, 2);
        shard_checkpoint(equal.in, equal.out, placed_as("(2,2):(R,S0)"), apart);
        Manifest const manifest = Checkpoint::open(equal.out).manifest();
        CHECK(manifest.tensors[0].replicas == 2);
        consolidate(equal.out, equal.folder / "full");
        CHECK(damage(equal.folder / "full", equal.list) == "");
        // Those that differ, too: nobody has to choose where none is dropped.
        std::string const both = shards.folder / "both";
        CHECK(plan_shards(Catalogue(Checkpoint::open(shards.in)), placed_as("(2,2):(R,S0)"), 1, apart).tensors == 1);
        shard_checkpoint(shards.in, both, placed_as("(2,2):(R,S0)"), apart);
        for (int r = 0; r < 2; ++r) {
            ConsolidateOptions options;
            options.replica = r;
            consolidate(both, shards.folder / errors::concat("again", r), options);
            CHECK(damage(shards.folder / errors::concat("again", r), shards.list, r) == "");
        }
    }

    TEST_CASE("copies without checksums are not taken for equal: somebody must choose") {
        Shape const shape{16};
        std::vector<Saved::Part> const parts{{0, 0, Box(DynamicShape(shape))}, {1, 1, Box(DynamicShape(shape))}};
        TempFolder const folder;
        std::vector<Saved> const list{{{"w", DType::f32, shape}, 2, parts}};
        std::filesystem::create_directory(folder / "in");
        write_sharded(folder / "in", list, 2, Described::by_manifest, false);
        auto const error = caught_on_ranks(2, [&](auto& comm) { consolidate(folder / "in", folder / "out", comm); });
        for (Caught const& each : error) {
            CHECK(each.code == ErrorCode::mismatch);
            CHECK(contains(each.message, "copies of tensor 'w' were saved without checksums"));
        }
        for (int r = 0; r < 2; ++r) {
            ConsolidateOptions options;
            options.replica = r;
            consolidate(folder / "in", folder / errors::concat("out", r), options);
            CHECK(damage(folder / errors::concat("out", r), list, r) == "");
        }
    }

    TEST_CASE("copies that are cut in different places are not taken for equal: somebody must choose") {
        Shape const shape{16, 4};
        Saved::Part const first{0, 0, Box(DynamicShape(shape))};
        Saved::Part const top{1, 1, Box{{0, 5}, {0, 4}}};
        Saved::Part const bottom{1, 1, Box{{5, 16}, {0, 4}}};
        std::vector<std::vector<Saved::Part>> ways{{first, top, bottom}, {first, top, bottom}};
        for (Saved::Part& part : ways[1]) part.replica = 1 - part.replica;
        for (auto const& parts : ways) {
            Shards shards({{{"w", DType::f32, shape}, 2, parts}}, 2);
            check_refused(shards, caught_on_ranks(2, [&](auto& comm) { consolidate(shards.in, shards.out, comm); }),
                          ErrorCode::mismatch,
                          {"'w'", "cut in different places", "RewriteOptions::replica", "--replica"});
            for (int r = 0; r < 2; ++r) {
                ConsolidateOptions options;
                options.replica = r;
                consolidate(shards.in, shards.folder / errors::concat("out", r), options);
                CHECK(damage(shards.folder / errors::concat("out", r), shards.list, r) == "");
            }
        }
    }

    TEST_CASE("tensors get other names: exact ones, beginnings, whatever the files are that are read") {
        TempFolder const folder;
        std::vector<TensorSpec> const specs{{"layers.0.w", DType::f32, Shape{6, 2}},
                                            {"layers.1.w", DType::f32, Shape{6, 2}},
                                            {"norm", DType::bf16, Shape{3}}};
        write_checkpoint(folder / "in", specs, fill_expected, 60);
        shard_checkpoint(folder / "in", folder / "shards", placed_as("(2):(S0)"));
        std::filesystem::create_directory(folder / "dcp");
        std::vector<Saved> halves;
        for (TensorSpec const& spec : specs) {
            Box first(spec.shape);
            Box second(spec.shape);
            first.set(0, {0, 2});
            second.set(0, {2, spec.shape.extent(0)});
            halves.push_back({spec, 1, {{0, 0, first}, {0, 1, second}}});
        }
        write_sharded(folder / "dcp", halves, 2, Described::by_shards);
        ConsolidateOptions options;
        options.rename = {{"norm", "a.norm"}, {"layers.1.w", "last"}, {"layers.*", "blocks.*"}};
        for (char const* from : {"/in", "/shards", "/dcp"}) {
            CAPTURE(from);
            std::string const out = folder.path() + "/out" + std::to_string(std::string_view(from).size());
            std::string const text = explain(consolidate(folder.path() + from, out, options));
            CHECK(text.ends_with("see that the last rank's file is there\n") == (std::string_view(from) == "/dcp"));
            Checkpoint const written = Checkpoint::open(out);
            for (auto const& [name, old] :
                 {std::pair{"a.norm", "norm"}, {"blocks.0.w", "layers.0.w"}, {"last", "layers.1.w"}}) {
                CheckpointTensor const& tensor = written.at(name);
                std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
                written.read(tensor, bytes);
                TensorInfo as_saved = tensor;
                as_saved.name = old;
                CHECK(holds_expected(as_saved, 0, bytes));
            }
            CHECK(written.manifest().tensors.size() == 3);
        }
        CHECK(plan_consolidate(Catalogue(Checkpoint::open(folder / "in")), 2, options).tensors == 3);
        auto const refused = [&](SafetensorsRule rule, std::vector<std::pair<std::string, std::string>> rename) {
            options.rename = std::move(rename);
            check_rule(rule, [&] { consolidate(folder / "in", folder / "none", options); });
            CHECK_FALSE(std::filesystem::exists(folder / "none"));
        };
        refused(SafetensorsRule::tensor_not_found, {{"nrom", "a"}});
        refused(SafetensorsRule::tensor_not_found, {{"blocks.*", "a.*"}});
        refused(SafetensorsRule::tensor_not_found, {{"*", "a.*"}, {"norm", "b"}});
        refused(SafetensorsRule::duplicate_key, {{"layers.0.w", "layers.1.w"}});
        refused(SafetensorsRule::invalid_index, {{"layers.*", "a"}});
        refused(SafetensorsRule::invalid_index, {{"norm", ""}});
    }

    TEST_CASE("files go where a weight_map says, and the index says so too") {
        auto const list = small_model();
        Shards shards(list, 4);
        ConsolidateOptions options;
        options.weight_map = {{"b", "second.safetensors"},
                              {"a", "model.safetensors-00001-of-00002.safetensors"},
                              {"c", "second.safetensors"}};
        on_ranks(2, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.out, comm, options); });
        CHECK(damage(shards.out, list) == "");
        auto map = options.weight_map;
        std::sort(map.begin(), map.end());
        CHECK(read_weight_map(shards.out + "/model.safetensors.index.json") == map);
    }

    TEST_CASE("tensors that an index does not name are not written, and the report says so") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        write_safetensors(folder / "in/f", {{"a", DType::u8, Shape{3}}, {"more", DType::u8, Shape{5}}}, fill_expected);
        write_safetensors(folder / "in/g", {{"b", DType::u8, Shape{3}}}, fill_expected);
        write_text(folder / "in/model.safetensors.index.json", R"({"weight_map":{"a":"f","b":"g"}})");
        on_ranks(2, [&](ThreadCommunicator& comm) {
            RewriteReport const report = consolidate(folder / "in", folder / "out", comm);
            CHECK(report.written.tensors.size() == 2);
            REQUIRE(report.unlisted.size() == 1);
            CHECK(report.unlisted[0].unlisted == 1);
            CHECK(explain(report).ends_with(
                "note: the index does not name 1 tensor of 'f': no part of the checkpoint\n"));
            return report;
        });
        CHECK(consolidate(folder / "out", folder / "again").unlisted.empty());
    }

    TEST_CASE("texts of a save come along") {
        Shards shards(small_model(), 4);
        std::string const path = shards.in + "/reshard.manifest.json";
        Manifest told = manifest_from(read_text(path), path);
        told.metadata = {{"step", "1000"}};
        write_text(path, to_json(told));
        consolidate(shards.in, shards.out);
        CHECK(Checkpoint::open(shards.out).files()[0].metadata() == Metadata{{"format", "pt"}, {"step", "1000"}});
        shard_checkpoint(shards.in, shards.folder / "again", placed_as("(2):(S0)"));
        CHECK(Checkpoint::open(shards.folder / "again").manifest().metadata == Metadata{{"step", "1000"}});
    }

    TEST_CASE("what a file says of its own entries does not come along: full tensors as PyTorch's DCP writes them") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        auto const write = [&](std::string const& tensor, std::string const& leaf) {
            std::string const info = errors::concat("{\"", tensor, "\": {\"saved_offsets\": [0]}}");
            write_safetensors(folder / ("in/" + leaf), {{tensor, DType::u8, Shape{3}}}, fill_expected,
                              {{"DCP_SHARDING_INFO", info}, {"DCP_VERSION", "1.0"}, {"format", "pt"}});
        };
        write("a", "f");
        write("b", "g");
        write_text(folder / "in/model.safetensors.index.json", R"({"weight_map":{"a":"f","b":"g"}})");
        Metadata const kept{{"DCP_VERSION", "1.0"}};
        CHECK(Checkpoint::open(folder / "in").manifest().metadata == kept);
        SelfCommunicator alone;
        for (Index const most : {0, 3}) {
            ConsolidateOptions options;
            options.max_file_bytes = most;
            std::string const out = folder / (most == 0 ? "one" : "two");
            consolidate(folder / "in", out, options);
            Checkpoint const made = Checkpoint::open(out);
            CHECK(made.files().size() == (most == 0 ? 1 : 2));
            for (SafetensorsFile const& file : made.files())
                CHECK(file.metadata() == Metadata{{"DCP_VERSION", "1.0"}, {"format", "pt"}});
            CHECK(compare_checkpoints(folder / "in", out, alone).equal());
        }
        shard_checkpoint(folder / "in", folder / "again", placed_as("(2):(S0)"));
        CHECK(Checkpoint::open(folder / "again").manifest().metadata == kept);
    }

    TEST_CASE("texts of all files come along, a format that all have is kept, and what contradicts the first is told") {
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        auto const write = [&](std::string const& tensor, Metadata const& metadata) {
            write_safetensors(folder / ("in/" + tensor), {{tensor, DType::u8, Shape{3}}}, fill_expected, metadata);
        };
        auto const texts = [&](std::string const& out, std::vector<std::string> const& wrong,
                               RewriteOptions with = {}) {
            ConsolidateOptions options;
            options.metadata = with.metadata;
            options.max_file_bytes = 6;
            on_ranks(2, [&](ThreadCommunicator& comm) {
                RewriteReport const report = consolidate(folder / "in", folder / out, comm, options);
                std::vector<std::string> found;
                for (CheckpointFile const& file : report.unlisted) found.push_back(file.leaf + ": " + file.contradicts);
                CHECK(found == wrong);
                CHECK(contains(explain(report), "note: of metadata the first file counts") == !wrong.empty());
                return report;
            });
            Checkpoint const made = Checkpoint::open(folder / out);
            CHECK(made.files().size() == 2);
            CHECK(made.files()[0].metadata() == made.files()[1].metadata());
            return made.files()[1].metadata();
        };
        write("a", {{"format", "flax"}, {"k", "1"}, {"only a", "x"}});
        write("b", {{"a b", "y"}, {"format", "flax"}, {"k", "1"}});
        write("c", {{"format", "flax"}});
        write_text(folder / "in/model.safetensors.index.json", R"({"weight_map":{"a":"a","b":"b","c":"c"}})");
        CHECK(texts("kept", {}) == Metadata{{"a b", "y"}, {"format", "flax"}, {"k", "1"}, {"only a", "x"}});
        RewriteOptions own;
        own.metadata = {{"format", "mlx"}, {"k", "7"}};
        CHECK(texts("own", {}, own) == Metadata{{"a b", "y"}, {"format", "mlx"}, {"k", "7"}, {"only a", "x"}});
        // A manifest keeps the format, and shards do: where they become full files it is there again.
        ConsolidateOptions summed;
        summed.manifest = true;
        run_on_threads(1, [&](ThreadCommunicator& comm) {
            consolidate(folder / "in", folder / "summed", comm, summed);
            shard_checkpoint(folder / "summed", folder / "cut", placed_as("(2):(S0)"), comm);
            consolidate(folder / "cut", folder / "again", comm);
        });
        for (char const* const out : {"summed", "cut", "again"}) {
            CAPTURE(out);
            Checkpoint const made = Checkpoint::open(folder / out);
            CHECK(made.manifest().format == "flax");
            CHECK(std::ranges::count(made.files()[0].metadata(),
                                     std::pair<std::string, std::string>("format", "flax")) == 1);
        }
        write("c", {{"k", "2"}});
        CHECK(texts("first", {"c: k"}) == Metadata{{"a b", "y"}, {"format", "pt"}, {"k", "1"}, {"only a", "x"}});
    }

    TEST_CASE("without checksums the system copies what it can") {
        std::vector<Saved> const list{cut("a", DType::f32, Shape{1024, 256}, 0, 2),
                                      cut("b", DType::f32, Shape{64, 32}, 1, 2)};
        Shards shards(list, 2);
        ConsolidateOptions options;
        options.checksums = false;
        options.verify_checksums = false;
        auto const reports =
            on_ranks(2, [&](ThreadCommunicator& comm) { return consolidate(shards.in, shards.out, comm, options); });
        CHECK(damage(shards.out, list) == "");
        CHECK_FALSE(reports[0].written.extents[0].has_checksum);
    }

    TEST_CASE("shards open as what save() leaves: names, texts, manifest") {
        Shards shards(small_model(), 4);
        auto const reports = on_ranks(3, [&](ThreadCommunicator& comm) {
            return shard_checkpoint(shards.in, shards.out, placed_as("(2,3):(S0,S1)"), comm);
        });
        CHECK(damage(shards.out, shards.list) == "");
        Checkpoint const checkpoint = Checkpoint::open(shards.out);
        CHECK(checkpoint.kind() == CheckpointKind::manifest);
        CHECK(checkpoint.manifest() == reports[2].written);
        CHECK(checkpoint.manifest().world_size == 6);
        CHECK(checkpoint.manifest().tensors[0].distribution == "(2,3):(S0,S1)");
        for (SafetensorsFile const& file : checkpoint.files()) {
            CHECK(reshard::detail::find_metadata(file.metadata(), "DCP_SHARDING_INFO") != nullptr);
        }
        consolidate(shards.out, shards.folder / "full");
        CHECK(damage(shards.folder / "full", shards.list) == "");
    }

    TEST_CASE("columns of a long tensor are not taken for rows, whatever the source is cut into") {
        std::vector<Saved> const lists[] = {{cut("w", DType::i32, Shape{500, 301}, 0, 1)},
                                            {cut("w", DType::i32, Shape{500, 301}, 0, 2)},
                                            {cut("w", DType::i32, Shape{500, 301}, 1, 2)},
                                            {cut("w", DType::i32, Shape{9, 170, 101}, 0, 2)}};
        for (std::vector<Saved> const& list : lists) {
            Shards shards(list, 2);
            for (std::string const to : {"(2):(S1)", "(3):(S1)", "(2,2):(S1,S0)", "(2,2):(S0,S1)", "(2):(S0)"}) {
                CAPTURE(to);
                for (bool checksums : {true, false}) {
                    ShardOptions options;
                    options.checksums = options.verify_checksums = checksums;
                    std::string const out = errors::concat(shards.folder / "to", to, checksums ? "sums" : "");
                    on_ranks(2, [&](ThreadCommunicator& comm) {
                        return shard_checkpoint(shards.in, out, placed_as(to), comm, options);
                    });
                    CHECK(damage(out, list) == "");
                }
            }
        }
    }

    TEST_CASE("a checkpoint without tensors, and one without elements") {
        TempFolder folder;
        write_safetensors(folder / "none.safetensors", {}, [](auto const&...) {});
        on_ranks(
            2, [&](ThreadCommunicator& comm) { return consolidate(folder / "none.safetensors", folder / "a", comm); });
        CHECK(Checkpoint::open(folder / "a").tensors().empty());
        write_safetensors(folder / "empty.safetensors", {{"e", DType::f32, Shape{0, 3}}}, [](auto const&...) {});
        on_ranks(
            2, [&](ThreadCommunicator& comm) { return consolidate(folder / "empty.safetensors", folder / "b", comm); });
        CHECK(Checkpoint::open(folder / "b").at("e").shape == DynamicShape(Shape{0, 3}));
    }
}
