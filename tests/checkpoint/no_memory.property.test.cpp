// SPDX-License-Identifier: Apache-2.0
// Whichever allocation one rank is refused in a collective call: all ranks throw the same OutOfMemory, and none waits.
#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>

#include <doctest/doctest.h>

#include "consolidate_support.hpp"
#include "support/scarce.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using test::Thrown;
using test::without_memory;

constexpr int ranks = 3;

std::vector<Goal> goals() {
    return {goal("embed", DType::f32, "(3):(S0)", Shape{10, 4}), goal("norm", DType::bf16, "(3):(R)", Shape{7}),
            goal("sums", DType::f32, "(3):(P+)", Shape{9}), goal("head", DType::f32, "(3):(S1)", Shape{5, 6})};
}
/// Two tensors in boxes that spans of ranks cut: parts of sums have to meet.
std::vector<Saved> boxes() {
    Saved wide{{"w", DType::f32, Shape{30, 4}}, 1, {}};
    for (int f = 0; f < 2; ++f) wide.parts.push_back({0, f, Box{{15 * f, 15 * (f + 1)}, {0, 4}}});
    return {wide, {{"x", DType::f32, Shape{8}}, 1, {{0, 0, Box{{0, 8}}}}}};
}

template <class Strategy>
void check_load(std::string const& path, std::vector<Goal> const& list, Strategy const& strategy) {
    for (int poor : {0, 1}) {
        CAPTURE(poor);
        int const failed = without_memory(
            ranks, poor,
            [&](auto& comm) {
                return [&, local = std::make_unique<LocalTensors>(list, comm.rank())] {
                    load(path, local->list(), comm, strategy);
                    test::Plenty const plenty;
                    CHECK(local->wrong() == "");
                };
            },
            [](Thrown const&) {});
        CHECK(failed > 0);
    }
}
template <class... Strategies>
void check_loads(Strategies const&... strategies) {
    TempFolder const plain;
    write(plain.path(), goals(), 200);
    TempFolder const sharded;
    write_sharded(sharded.path(), boxes(), 2, Described::by_manifest);
    std::vector<Goal> const cut{goal("w", DType::f32, "(3):(S1)", Shape{30, 4}),
                                goal("x", DType::f32, "(3):(R)", Shape{8})};
    (check_load(plain.path(), goals(), strategies), ...);
    (check_load(sharded.path(), cut, strategies), ...);
}
/// One bit of its last byte.
void spoil(std::string const& file) {
    std::string text = read_text(file);
    text.back() ^= 4;
    write_text(file, text);
}

}  // namespace

TEST_SUITE("checkpoint/no_memory") {
    TEST_CASE("load: one rank reads for all") {
        check_loads(OneRankReads<Scatter>{1, 64}, OneRankReads<Broadcast>{1, 64});
    }
    TEST_CASE("load: each rank reads its boxes") { check_loads(EachRankReadsItsBoxes{}); }
    TEST_CASE("load: ranks read together, or ask the model whether to") {
        check_loads(CooperativeRead{64, {}, Cooperation::always, {}}, CooperativeRead{});
    }

    TEST_CASE("verify_checkpoint: sound files, and files with a fault") {
        for (bool const spoilt : {false, true}) {
            CAPTURE(spoilt);
            TempFolder const folder;
            Manifest const manifest = write_sharded(folder.path(), boxes(), 2, Described::by_manifest);
            if (spoilt) spoil(folder / manifest.files[0].leaf);
            std::string const path = folder.path();
            for (int poor : {0, 2}) {
                CAPTURE(poor);
                int const failed = without_memory(
                    ranks, poor,
                    [&](auto& comm) {
                        return [&] {
                            bool sound = true;
                            try {
                                static_cast<void>(verify_checkpoint(path, comm, {}, 64));
                            } catch (FormatError const&) {
                                sound = false;
                            }
                            test::Plenty const plenty;
                            CHECK(sound == !spoilt);
                        };
                    },
                    [](Thrown const&) {});
                CHECK(failed > 0);
            }
        }
    }

    TEST_CASE("compare_checkpoints: equal ones, and others") {
        for (bool const spoilt : {false, true}) {
            CAPTURE(spoilt);
            TempFolder const folder;
            TempFolder const other;
            write_sharded(folder.path(), boxes(), 2, Described::by_manifest);
            Manifest const manifest = write_sharded(other.path(), boxes(), 2, Described::by_manifest);
            if (spoilt) spoil(other / manifest.files[0].leaf);
            std::string const first = folder.path();
            std::string const second = other.path();
            CompareOptions options;
            options.window_bytes = 64;
            for (int poor : {0, 2}) {
                CAPTURE(poor);
                int const failed = without_memory(
                    ranks, poor,
                    [&](auto& comm) {
                        return [&] {
                            bool const equal = compare_checkpoints(first, second, comm, options).equal();
                            test::Plenty const plenty;
                            CHECK(equal == !spoilt);
                        };
                    },
                    [](Thrown const&) {});
                CHECK(failed > 0);
            }
        }
    }

    TEST_CASE("consolidate: nothing is left of a call that failed, unless it says that the files are there") {
        TempFolder const folder;
        write_sharded(folder.path(), boxes(), 2, Described::by_manifest);
        ConsolidateOptions options;
        options.durable = false;
        options.max_file_bytes = 300;  // two files, an index and a manifest
        options.manifest = true;
        options.vote_bytes = 100;
        options.window_bytes = 1 << 16;
        for (int poor : {0, 1}) {
            CAPTURE(poor);
            std::string const out = folder / "out";
            int const failed = without_memory(
                ranks, poor,
                [&](auto& comm) {
                    return [&, from = folder.path(), to = out]() mutable {
                        consolidate(std::move(from), std::move(to), comm, options);
                    };
                },
                [&](Thrown const& thrown) {
                    bool const kept = std::filesystem::exists(out);
                    CHECK((kept || thrown.code != ErrorCode::none));
                    if (kept) CHECK(damage(out, boxes()) == "");
                    std::filesystem::remove_all(out);
                });
            CHECK(failed > 0);
        }
    }

    TEST_CASE("save and start_save: the folder holds a whole save, or none") {
        TempFolder const folder;
        auto list = goals();
        std::erase_if(list, [](Goal const& goal) { return goal.stored.name == "sums"; });  // addends are not saved
        SaveOptions options;
        options.durable = false;
        std::string const out = folder / "out";
        struct Way {
            bool behind;
            Index snapshot_bytes;  // fewer than a rank has: copies wait for what is written
        };
        for (Way const& way : {Way{false, 0}, Way{true, 0}, Way{true, 128}}) {
            options.snapshot_bytes = way.snapshot_bytes;
            for (int poor : {0, 1}) {
                CAPTURE(way.behind);
                CAPTURE(way.snapshot_bytes);
                CAPTURE(poor);
                int const failed = without_memory(
                    ranks, poor,
                    [&](auto& comm) {
                        auto local = std::make_unique<LocalTensors>(list, comm.rank());
                        return [&, is_behind = way.behind, local = std::move(local), to = out]() mutable {
                            if (is_behind) {
                                start_save(std::move(to), local->list(), comm, options).wait();
                            } else {
                                save(std::move(to), local->list(), comm, options);
                            }
                        };
                    },
                    [&](Thrown const& thrown) {
                        bool const whole = std::filesystem::exists(out + "/" + std::string(manifest_name));
                        CHECK(whole == (thrown.code == ErrorCode::none));
                        if (whole) CHECK(Checkpoint::open(out).manifest().tensors.size() == list.size());
                        std::filesystem::remove_all(out);
                    });
                CHECK(failed > 0);
            }
        }
    }

    TEST_CASE("start_save: what the thread that writes has no memory for is told by wait() on all ranks") {
        std::vector<Goal> const list{goal("a", DType::f32, "(3):(S0)", Shape{300})};
        TempFolder const folder;
        std::string const out = folder / "out";
        for (Index const snapshot_bytes : {0, 128}) {
            CAPTURE(snapshot_bytes);
            auto const thrown = test::thrown_by(ranks, [&](ThreadCommunicator& comm) {
                LocalTensors local(list, comm.rank());
                SaveOptions options;
                options.durable = false;
                options.in_flight = 1;
                options.snapshot_bytes = snapshot_bytes;
                bool const poor = comm.rank() == 1;
                options.progress = [&](Index, Index) {
                    if (poor) test::allocation_counter().refused_from = 0;  // of this thread, which writes
                };
                SaveRequest saving = start_save(out, local.list(), comm, options);
                saving.wait();
            });
            test::check_same(thrown, ErrorCode::out_of_memory,
                             {errors::concat("rank 1 of ", ranks, ": "), "out of memory"});
            CHECK(!std::filesystem::exists(out + "/" + std::string(manifest_name)));
        }
    }

    TEST_CASE("verify_replicas: copies that are equal, and one that is repaired") {
        std::vector<Goal> const list{goal("a", DType::f32, "(3):(R)", Shape{40}),
                                     goal("b", DType::f32, "(3):(S0)", Shape{9}),
                                     goal("c", DType::f32, "(3):(R)", Shape{5, 7})};
        VerifyReplicasOptions options;
        options.mode = VerifyMode::repair;
        options.block_bytes = 16;
        for (bool const differ : {false, true}) {
            for (int poor : {0, 1}) {
                CAPTURE(differ);
                CAPTURE(poor);
                int const failed = without_memory(
                    ranks, poor,
                    [&](auto& comm) {
                        auto local = std::make_unique<LocalTensors>(list, comm.rank());
                        if (differ && comm.rank() == 2) local->list()[2].view.data()[50] ^= std::byte{4};
                        return [&, local = std::move(local)] {
                            bool const equal = verify_replicas(local->list(), comm, options).equal();
                            test::Plenty const plenty;
                            CHECK(equal == !differ);
                            CHECK(local->untouched());
                        };
                    },
                    [](Thrown const&) {});
                CHECK(failed > 0);
            }
        }
    }
}
