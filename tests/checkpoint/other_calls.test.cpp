// SPDX-License-Identifier: Apache-2.0
// Ranks that are in different calls of this library: all throw the same error, which names the calls, and can go on.
#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/exec/boxes.hpp>
#include <reshard/exec/collectives.hpp>
#include <reshard/exec/global_tensor.hpp>
#include <reshard/exec/sync.hpp>

#include <doctest/doctest.h>

#include "support.hpp"
#include "support/thrown.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using test::check_same;
using test::thrown_by;

struct Call {
    std::string name;  ///< as messages have it
    std::function<void()> make;
};

/// What one rank calls, and the memory of it. `wrong`: in some the rank has an error of its own.
struct Calls {
    Calls(std::string const& folder, CommunicatorRef comm, bool wrong) {
        int const ranks = comm.size();
        Mesh const mesh{ranks};
        auto const named = mesh.named("dp");
        auto const rows = distribution(mesh, Shape{2 * ranks, 2}, "S0");
        auto const whole = distribution(mesh, Shape{2 * ranks, 2}, "R");
        DynamicView const part = wrong ? DynamicView(parts.data(), DType::f32, Shape{1, 2})
                                       : DynamicView(parts.data(), DType::f32, Shape{2, 2});
        DynamicView const all(wholes.data(), DType::f32, Shape{2 * ranks, 2});
        lists = {{"w", rows, DynamicView(parts.data(), DType::f32, Shape{2, 2})}};
        copies = {{"w", whole, all}};
        BoxTable const table(rows);
        calls = {
            {"agree_on_errors()", [=] { agree_on_errors(comm, [] {}); }},
            {"barrier()", [=] { barrier(comm); }},
            {"prepare()", [=] { redistribute(plan(rows, whole), comm, part, all); }},
            {"prepare(Batch)",
             [=] {
                 Batch batch;
                 batch.add(plan(rows, whole), part, all, "w");
                 redistribute(batch, comm);
             }},
            {"prepare(BoxMove)",
             [=, this] {
                 std::vector const source{ConstDynamicView(parts.data(), DType::f32, Shape{2, 2})};
                 std::vector const destination{DynamicView(wholes.data(), DType::f32, Shape{2, 2})};
                 redistribute(table, table, DType::f32, comm, source, destination);
             }},
            {"all_reduce()", [=] { all_reduce(part, comm, named, "dp"); }},
            {"all_gather()", [=] { all_gather(part, all, comm, named, "dp"); }},
            {"broadcast()", [=] { broadcast(all, comm, named, "dp"); }},
            {"from_local()",
             [=] {
                 static_cast<void>(from_local(mesh, "S0", comm, Shape{2, 2}));
             }},
            {"sync()", [=, this] { sync(copies, comm); }},
            {"verify_replicas()", [=, this] { static_cast<void>(verify_replicas(copies, comm)); }},
            {"save()", [=, this] { save(folder + "/new", lists, comm); }},
            {"load()", [=, this] { load(folder + "/there", lists, comm); }},
            {"verify_checkpoint()", [=] { static_cast<void>(verify_checkpoint(folder + "/there", comm)); }},
            {"compare_checkpoints()",
             [=] { static_cast<void>(compare_checkpoints(folder + "/there", folder + "/there", comm)); }},
            {"consolidate()", [=] { static_cast<void>(consolidate(folder + "/there", folder + "/full", comm)); }},
        };
    }
    Calls(Calls const&) = delete;

    std::vector<float> parts = std::vector<float>(4);
    std::vector<float> wholes = std::vector<float>(32);
    std::vector<LocalTensor> lists;
    std::vector<LocalTensor> copies;
    std::vector<Call> calls;
};

void check_calls(bool wrong) {
    TempFolder const folder;
    ThreadOptions options;
    options.deadline = std::chrono::seconds(10);  // nobody waits for it
    for (int const ranks : {2, 3}) {
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            Calls mine(folder.path(), comm, false);
            save(folder / "there", mine.lists, comm);
        });
        std::size_t const count = 16;
        for (std::size_t odd = 0; odd < count; ++odd) {
            for (std::size_t other = 0; other < count; ++other) {
                if (odd == other) continue;
                std::vector<std::string> names(2);
                auto const thrown = thrown_by(
                    ranks,
                    [&](ThreadCommunicator& comm) {
                        Calls mine(folder.path(), comm, wrong && comm.rank() == 0);
                        REQUIRE(mine.calls.size() == count);
                        if (comm.rank() == 0) names = {mine.calls[odd].name, mine.calls[other].name};
                        mine.calls[comm.rank() == 0 ? odd : other].make();
                    },
                    options);
                CAPTURE(ranks);
                CAPTURE(names[0]);
                CAPTURE(names[1]);
                if (wrong && thrown[0].code != ErrorCode::mismatch) {
                    check_same(thrown, thrown[0].code,
                               {
                                   "rank 0 of",
                               });
                    CHECK(thrown[0].code != ErrorCode::none);
                } else {
                    check_same(thrown, ErrorCode::mismatch, {"is in " + names[1], "rank 0 is in " + names[0]});
                }
            }
        }
    }
}
}  // namespace

TEST_SUITE("checkpoint/other_calls") {
    TEST_CASE("ranks in different calls: the same error on all, which names both, at their first meeting") {
        check_calls(false);
    }
    TEST_CASE("ranks in different calls, of which one finds an error of its own: all throw that") { check_calls(true); }
}
