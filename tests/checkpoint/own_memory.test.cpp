// SPDX-License-Identifier: Apache-2.0
// Tensors in memory that the host cannot reach, and that no driver knows: only the policy that the communicator states
// works on it. A load, a save or a check that took it for the host's would be a fault of the process.
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>

#include <doctest/doctest.h>

#include <support/far_memory.hpp>

#include "support.hpp"

#include <vector>

namespace {
using namespace checkpoint_test;
using test::FarMemory;
using test::OnFarMemory;
}  // namespace

TEST_SUITE("checkpoint/own_memory") {
    TEST_CASE("memory of a policy's own is saved, verified and loaded by that policy") {
        TempFolder const folder;
        run_on_threads(2, [&](ThreadCommunicator& threads) {
            int const rank = threads.rank();
            FarMemory memory;
            OnFarMemory comm(std::move(threads), memory);
            auto const far = [&](Index offset) { return reinterpret_cast<float*>(memory.far + 4 * offset); };
            auto* const near = reinterpret_cast<float*>(memory.near);
            std::vector<float> host(8, 3.0F);
            std::vector<LocalTensor> tensors{
                {"rows", distribution(Mesh{2}, Shape{64, 8}, "S0"), TensorView<float>(far(0), Shape{32, 8})},
                {"copies", distribution(Mesh{2}, Shape{9, 4}, "R"), TensorView<float>(far(256), Shape{9, 4})},
                {"host", distribution(Mesh{2}, Shape{8}, "R"), TensorView<float>(host.data(), Shape{8})}};
            auto const value = [&](int i) { return static_cast<float>(i < 256 ? 256 * rank + i : i); };
            for (int i = 0; i < 292; ++i) near[i] = value(i);
            save(folder.path(), tensors, comm);
            CHECK(verify_replicas(tensors, comm).differences.empty());
            near[260] += static_cast<float>(rank);
            auto const report = verify_replicas(tensors, comm, {.mode = VerifyMode::report});
            REQUIRE(report.differences.size() == 1);
            CHECK(report.differences[0].tensor == 1);
            auto const loads = [&](auto const& strategy) {
                CAPTURE(strategy.name);
                for (int i = 0; i < 292; ++i) near[i] = -1.0F;
                host.assign(8, -1.0F);
                load(folder.path(), tensors, comm, strategy);
                int wrong = 0;
                for (int i = 0; i < 292; ++i) wrong += near[i] == value(i) ? 0 : 1;
                CHECK(wrong == 0);
                CHECK(host == std::vector<float>(8, 3.0F));
            };
            loads(EachRankReadsItsBoxes{});
            loads(OneRankReads<Scatter>{});
            loads(OneRankReads<Broadcast>{});
            loads(CooperativeRead{});
        });
    }
}
