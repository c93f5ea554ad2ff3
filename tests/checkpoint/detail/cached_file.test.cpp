// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/cached_file.hpp: more files than the process may have open, read and
// written.
#include <reshard/checkpoint/detail/cached_file.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "../load_support.hpp"

#include <atomic>
#include <filesystem>
#include <thread>

namespace {
using namespace reshard;
using namespace checkpoint_test;
using detail::CachedFile;
using detail::FileDescriptor;

/// While it lives the process may have so many files open, beside those that are open already.
class FewDescriptors {
public:
    explicit FewDescriptors(rlim_t most) {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &old_) == 0);
        rlimit limit = old_;
        limit.rlim_cur = most;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    FewDescriptors(FewDescriptors const&) = delete;
    FewDescriptors& operator=(FewDescriptors const&) = delete;
    ~FewDescriptors() { static_cast<void>(::setrlimit(RLIMIT_NOFILE, &old_)); }

private:
    rlimit old_{};
};

std::string leaf(int file) { return errors::concat("f", file); }
std::unique_ptr<CachedFile> counted(std::string const& path, std::atomic<int>& opened) {
    return std::make_unique<CachedFile>([path, &opened] {
        ++opened;
        return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    });
}
}  // namespace

TEST_SUITE("checkpoint/cached_file") {
    TEST_CASE("a file is opened at its first use, and again when it was closed for others; the last used stay open") {
        TempFolder const folder;
        FewDescriptors const few(128);
        constexpr int files = 100;
        std::atomic<int> opened{0};
        std::vector<std::unique_ptr<CachedFile>> all;
        for (int f = 0; f < files; ++f) all.push_back(counted(folder / leaf(f), opened));
        CHECK(opened == 0);
        CHECK(!all[0]->is_used());
        for (auto const& one : all) CHECK(one->use()->is_open());
        CHECK(opened == files);
        static_cast<void>(all.back()->use());
        CHECK(opened == files);
        static_cast<void>(all.front()->use());
        CHECK(opened == files + 1);
    }

    TEST_CASE("what is in use is not closed") {
        TempFolder const folder;
        std::atomic<int> opened{0};
        auto const held = counted(folder / "held", opened);
        CachedFile::Use const use = held->use();
        FewDescriptors const few(64);
        std::vector<std::unique_ptr<CachedFile>> all;
        for (int f = 0; f < 60; ++f) all.push_back(counted(folder / leaf(f), opened));
        for (auto const& one : all) static_cast<void>(one->use());
        CHECK(::fcntl(use->get(), F_GETFD) >= 0);
        CHECK(held->use().get() == use.get());
    }

    TEST_CASE("where all that may be open are in use, the next one is opened as well, for its user") {
        TempFolder const folder;
        FewDescriptors const few(64);
        std::atomic<int> opened{0};
        std::vector<std::unique_ptr<CachedFile>> all;
        std::vector<CachedFile::Use> uses;
        for (int f = 0; f < 40; ++f) {
            all.push_back(counted(folder / leaf(f), opened));
            uses.push_back(all.back()->use());
            REQUIRE(uses.back() != nullptr);
        }
        for (CachedFile::Use const& use : uses) CHECK(::fcntl(use->get(), F_GETFD) >= 0);
        CHECK(opened == 40);
    }

    TEST_CASE("threads use more files than may be open, each gets the bytes of its own") {
        TempFolder const folder;
        FewDescriptors const few(96);
        std::atomic<int> opened{0};
        std::vector<std::unique_ptr<CachedFile>> all;
        for (int f = 0; f < 80; ++f) all.push_back(counted(folder / leaf(f), opened));
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 2000; ++i) {
                    auto const f = static_cast<std::size_t>((i * 7 + t * 13) % 80);
                    CachedFile::Use const use = all[f]->use();
                    auto const byte = static_cast<unsigned char>(f);
                    unsigned char read = 0xff;
                    bool const same =
                        ::pwrite(use->get(), &byte, 1, 0) == 1 && ::pread(use->get(), &read, 1, 0) == 1 && read == byte;
                    if (!same) ++wrong;
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(wrong == 0);
        CHECK(opened > 80);
        for (auto const& one : all) one->close_written("file");
    }

    TEST_CASE("a checkpoint of more files than may be open is read, loaded, compared, verified and rewritten") {
        TempFolder const folder;
        std::vector<Goal> goals;
        for (int t = 0; t < 150; ++t)
            goals.push_back(goal(errors::concat("w", t), DType::f32, "(3):(S0)", Shape{6, 5}));
        write(folder / "in", goals, 100);  // a file each
        FewDescriptors const few(64);
        Checkpoint const all = Checkpoint::open(folder / "in");
        REQUIRE(all.files().size() == goals.size());
        for (int round = 0; round < 2; ++round) {
            for (CheckpointTensor const& tensor : all.tensors()) {
                std::vector<std::byte> bytes(120);
                std::vector<std::byte> expected(120);
                all.read(tensor, bytes);
                fill_expected(tensor, 0, expected);
                CHECK(bytes == expected);
            }
        }
        LocalTensors every(goals, 1);
        load(all, every.list(), 1);
        CHECK(every.wrong() == "");
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            auto const check = [&](auto const& strategy) {
                LocalTensors tensors(goals, comm.rank());
                load(folder / "in", tensors.list(), comm, strategy);
                CHECK(tensors.wrong() == "");
            };
            check(EachRankReadsItsBoxes{});
            check(OneRankReads<Scatter>{1});
            check(CooperativeRead{.cooperation = Cooperation::always});
            CHECK(compare_checkpoints(folder / "in", folder / "in", comm).equal());
            CHECK(verify_checkpoint(folder / "in", comm).files == 150);
        });
        SelfCommunicator alone;
        shard_checkpoint(folder / "in", folder / "shards", placed_as("(5):(S1)"), alone);
        ConsolidateOptions options;
        options.max_file_bytes = 100;
        CHECK(consolidate(folder / "shards", folder / "out", alone, options).written.files.size() == 150);
        CHECK(compare_checkpoints(folder / "in", folder / "out", alone).equal());
    }

    TEST_CASE("a file that was replaced before it is opened again is an IoError that says so") {
        TempFolder const folder;
        std::vector<Goal> goals;
        for (int t = 0; t < 100; ++t) goals.push_back(goal(errors::concat("w", t), DType::u8, "(1):(R)", Shape{8}));
        write(folder / "in", goals, 8);
        FewDescriptors const few(64);
        Checkpoint const all = Checkpoint::open(folder / "in");
        std::vector<std::byte> bytes(8);
        // Several threads have opened them: which are open now, nobody knows.
        for (CheckpointTensor const& tensor : all.tensors().subspan(1)) all.read(tensor, bytes);
        CheckpointTensor const& first = all.tensors().front();
        std::string const& path = all.files().front().path();
        std::filesystem::copy_file(path, folder / "copy");
        std::filesystem::rename(folder / "copy", path);
        CHECK_THROWS_WITH_AS(all.read(first, bytes), doctest::Contains("another file now"), IoError);
        // Loads over a communicator look for these words, and start again.
        std::string const words(detail::overtaken_words);
        CHECK_THROWS_WITH_AS(all.read(first, bytes), doctest::Contains(words.c_str()), IoError);
        std::filesystem::remove(path);
        CHECK_THROWS_WITH_AS(all.read(first, bytes), doctest::Contains(words.c_str()), IoError);
    }
}
