// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/verify_checkpoint.hpp.
#include <reshard/checkpoint/verify_checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "faults_support.hpp"
#include "sharded_support.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using test::check_same;
using test::thrown_by;

std::vector<Saved> cut_in_files(int files, int replicas = 1) {
    Saved saved{{"w", DType::f32, Shape{30, 4}}, replicas, {}};
    for (int r = 0; r < replicas; ++r) {
        for (int f = 0; f < files; ++f) {
            saved.parts.push_back({r, f, Box{{30 * f / files, 30 * (f + 1) / files}, {0, 4}}});
        }
    }
    return {saved};
}
std::string shard(int number, int files) {
    return errors::concat("shard-0000", number, "-of-0000", files, ".0123456789abcdef.safetensors");
}
void spoil(std::string const& path, Index from_end) {
    std::string text = read_text(path);
    text[text.size() - static_cast<std::size_t>(from_end)] ^= 4;
    write_text(path, text);
}
}  // namespace

TEST_SUITE("checkpoint/verify_checkpoint") {
    TEST_CASE("every extent is read once, whatever the checkpoint is and however many ranks there are") {
        TempFolder const folder;
        TempFolder const plain;
        write_sharded(folder.path(), cut_in_files(3, 2), 3, Described::by_manifest);
        write_checkpoint(plain.path(), {{"a", DType::u8, Shape{100}}, {"b", DType::f4, Shape{20}}}, fill_expected, 60);
        for (int ranks : {1, 2, 5}) {
            for (Index window : {Index{0}, Index{7}, Index{1} << 20}) {
                std::atomic<Index> read{0};
                std::atomic<Index> read_plain{0};
                run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                    Index told = 0;
                    auto const verdict =
                        verify_checkpoint(folder.path(), comm, {}, window, [&](Index done, Index total) {
                            CHECK(done >= told);
                            CHECK(done <= total);
                            told = done;
                        });
                    CHECK(told == verdict.bytes_read);
                    CHECK(verdict.kind == CheckpointKind::manifest);
                    CHECK(verdict.files == 3);
                    CHECK(verdict.tensors == 1);
                    CHECK(verdict.extents == 6);
                    CHECK(verdict.extents_without_checksum == 0);
                    CHECK(verdict.bytes == 2 * 480);
                    read += verdict.bytes_read;
                    auto const other = verify_checkpoint(plain.path(), comm, {}, window);
                    CHECK(other.kind == CheckpointKind::index);
                    CHECK(other.extents_without_checksum == 2);
                    CHECK(other.bytes == 110);
                    read_plain += other.bytes_read;
                });
                CHECK(read == 2 * 480);
                CHECK(read_plain == 110);
            }
        }
        SelfCommunicator alone;
        CHECK(verify_checkpoint(folder / manifest_name, alone).extents == 6);
    }

    TEST_CASE("tensors that an index does not name are told on every rank") {
        TempFolder const folder;
        for (char const* const leaf : {"f", "g"}) {
            write_safetensors(folder / leaf, {{leaf, DType::u8, Shape{3}}, {"more", DType::u8, Shape{5}}},
                              fill_expected);
        }
        write_text(folder / "model.safetensors.index.json", R"({"weight_map":{"f":"f","g":"g"}})");
        for (int ranks : {1, 2, 3}) {
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                auto const verdict = verify_checkpoint(folder.path(), comm);
                CHECK(verdict.tensors == 2);
                CHECK(verdict.bytes == 6);
                REQUIRE(verdict.unlisted.size() == 2);
                CHECK(verdict.unlisted[1].leaf == "g");
                CHECK(verdict.unlisted[1].unlisted == 1);
            });
        }
    }

    TEST_CASE("all faults are named on every rank: bits, another header, a file cut short, an entry elsewhere") {
        for (int ranks : {1, 2, 3, 7}) {
            CAPTURE(ranks);
            TempFolder const folder;
            Manifest manifest = write_sharded(folder.path(), cut_in_files(5), 5, Described::by_manifest);
            spoil(folder / shard(1, 5), 3);
            std::string text = read_text(folder / shard(2, 5));
            text[text.find("\"format\":\"pt\"") + 10] = 'P';
            write_text(folder / shard(2, 5), text);
            std::filesystem::resize_file(folder / shard(3, 5), std::filesystem::file_size(folder / shard(3, 5)) - 1);
            manifest.extents[3].key = "elsewhere";
            write_text(folder / manifest_name, to_json(manifest));
            auto const verify = [&](ThreadCommunicator& comm) {
                std::vector<VerifyFault> faults{{"of an earlier call"}};
                try {
                    static_cast<void>(verify_checkpoint(folder.path(), comm, {}, default_window_bytes, {}, &faults));
                } catch (FormatError const&) {
                    std::vector<std::string> files;
                    for (VerifyFault const& fault : faults) files.push_back(fault.unread ? "unread" : fault.file);
                    std::ranges::sort(files);
                    CHECK(files == std::vector{shard(1, 5), shard(2, 5), shard(3, 5), shard(4, 5)});
                    throw;
                }
            };
            check_same(thrown_by(ranks, verify), ErrorCode::format,
                       {"4 faults:", "box [0:6,0:4] of tensor 'w', replica 0, in '" + shard(1, 5) + "'",
                        shard(2, 5) + " has another header, of the same size", "MetadataIncompleteBuffer: ",
                        "box [18:24,0:4] of tensor 'w', replica 0 is not in '" + shard(4, 5) + "'"});
        }
    }

    TEST_CASE("a wrong bit in an extent that several ranks read is one fault") {
        TempFolder const folder;
        write_sharded(folder.path(), cut_in_files(1), 1, Described::by_manifest);
        spoil(folder / shard(1, 1), 100);
        check_same(
            thrown_by(4, [&](ThreadCommunicator& comm) { static_cast<void>(verify_checkpoint(folder.path(), comm)); }),
            ErrorCode::format, {"1 fault:", "box [0:30,0:4] of tensor 'w'"});
    }

    TEST_CASE("a box without elements needs no entry, as for load()") {
        TempFolder const folder;
        Manifest manifest = write_sharded(folder.path(), cut_in_files(2), 2, Described::by_manifest);
        manifest.tensors.push_back({"x", DType::f32, Shape{0, 4}, 1, ""});
        manifest.extents.insert(manifest.extents.begin() + 1, {1, 0, 0, 240, Box(Shape{0, 4}), {}, true});
        write_text(folder / manifest_name, to_json(manifest));
        SelfCommunicator alone;
        CHECK(Catalogue(Checkpoint::open(folder.path())).tensors().size() == 2);
        CHECK(verify_checkpoint(folder.path(), alone).tensors == 2);
    }

    TEST_CASE("a file that is written to while it is read is a fault, though its bytes were right") {
        TempFolder const folder;
        write_sharded(folder.path(), cut_in_files(2), 2, Described::by_manifest);
        std::string const path = folder / shard(2, 2);
        std::string const text = read_text(path);
        std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
        check_same(thrown_by(1,
                             [&](ThreadCommunicator& comm) {
                                 (void)verify_checkpoint(folder.path(), comm, {}, default_window_bytes,
                                                         [&](Index, Index) { write_text(path, text); });
                             }),
                   ErrorCode::format, {"1 fault:", shard(2, 2), "it was written to while it was read"});
    }

    TEST_CASE("a file that the manifest says is huge is a fault, whatever that would take to read") {
        for (int ranks : {1, 3}) {
            TempFolder const folder;
            Manifest manifest = write_sharded(folder.path(), cut_in_files(2), 2, Described::by_manifest);
            Index const bytes = Index{1} << 59;
            manifest.tensors.push_back({"x", DType::u8, Shape{bytes}, 1, ""});
            manifest.files.push_back({"shard-00003-of-00003.0123456789abcdef.safetensors", bytes + 100, 1, 0});
            manifest.extents.push_back({1, 0, 2, 0, Box(Shape{bytes})});
            write_text(folder / manifest.files[2].leaf, read_text(folder / shard(1, 2)));
            write_text(folder / manifest_name, to_json(manifest));
            spoil(folder / shard(2, 2), 3);
            check_same(
                thrown_by(ranks,
                          [&](ThreadCommunicator& comm) { static_cast<void>(verify_checkpoint(folder.path(), comm)); }),
                ErrorCode::format,
                {"2 faults:", "bytes, but reshard.manifest.json saw another version of it, with 576460752303423588",
                 "in '" + shard(2, 2) + "'"});
        }
    }

    TEST_CASE("what cannot be read hides nothing of what is read with it") {
        TempFolder const folder;
        write_sharded(folder.path(), cut_in_files(4), 4, Described::by_manifest);
        spoil(folder / shard(4, 4), 3);
        std::string const cut = folder / shard(3, 4);
        ReadOptions reads;
        reads.in_flight = 1;
        check_same(thrown_by(1,
                             [&](ThreadCommunicator& comm) {
                                 Index const two_files = 240;  // bytes of a window
                                 (void)verify_checkpoint(folder.path(), comm, reads, two_files, [&](Index done, Index) {
                                     if (done == two_files)
                                         std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 10);
                                 });
                             }),
                   ErrorCode::format,
                   {"3 faults:", shard(3, 4) + ": the file ends at", shard(3, 4) + ": it was written to",
                    "in '" + shard(4, 4) + "'"});
    }

    TEST_CASE("what cannot be read says nothing of what it holds, and hides no fault") {
        TempFolder const folder;
        write_sharded(folder.path(), cut_in_files(3), 3, Described::by_manifest);
        SelfCommunicator alone;
        std::string failed;
        auto const verify_but = [&](long call) {
            Faults plan;
            plan.all_threads = true;
            plan.only = "open";
            plan.at = call;
            plan.error = EMFILE;
            plan.lasting = true;
            faults = &plan;
            Caught const error = caught([&] { (void)verify_checkpoint(folder.path(), alone); });
            faults = nullptr;
            failed = plan.failed;
            return error;
        };
        long calls = 0;
        long reads = 0;
        for (;; ++calls) {
            Caught const error = verify_but(calls);
            CAPTURE(error.message);
            if (failed.empty()) break;
            CHECK(error.code == ErrorCode::io);
            CHECK(contains(error.message, "Too many open files"));
            reads += contains(error.message, "of what could be read nothing is wrong") ? 1 : 0;
        }
        CHECK(reads > 1);
        spoil(folder / shard(1, 3), 3);
        Caught const both = verify_but(calls - 1);
        CHECK(both.code == ErrorCode::format);
        CHECK(contains(both.message, "2 faults:"));
        CHECK(contains(both.message, "in '" + shard(1, 3) + "'"));
        CHECK(contains(both.message, shard(3, 3) + ": cannot open: Too many open files"));
    }

    TEST_CASE("what cannot be listed is refused as load() refuses it") {
        TempFolder const folder;
        Manifest manifest = write_sharded(folder.path(), cut_in_files(3), 3, Described::by_manifest);
        auto const attempt = [&](Index window) {
            return thrown_by(2, [&](ThreadCommunicator& comm) {
                static_cast<void>(verify_checkpoint(folder.path(), comm, {}, window));
            });
        };
        check_same(attempt(-1), ErrorCode::buffer, {"windows of -1 bytes"});
        std::filesystem::remove(folder / shard(2, 3));
        check_same(attempt(1), ErrorCode::io, {"1 of the 3 files it names are missing", shard(2, 3)});
        manifest.extents.pop_back();
        write_text(folder / manifest_name, to_json(manifest));
        check_same(attempt(1), ErrorCode::format, {"tensor 'w'"});
    }
}
