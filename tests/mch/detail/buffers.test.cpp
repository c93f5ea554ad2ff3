// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/buffers.hpp: buffers of a device that only the communicator knows.
#include <reshard/mch/detail/buffers.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>
#include <reshard/mch/redistribute.hpp>
#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <mch/support/state.hpp>
#include <support/far_memory.hpp>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
}  // namespace

TEST_SUITE("mch/detail/buffers") {
    TEST_CASE("memory that the communicator's policy holds is refused on all ranks, not read, ids and rows") {
        World world(40, 2, Policy::lfu);
        MchTable const table = table_of(world);
        run_on_threads(2, [&](ThreadCommunicator& threads) {
            auto const rank = static_cast<std::size_t>(threads.rank());
            test::FarMemory const memory;
            test::OnFarMemory comm(std::move(threads), memory);
            MchState state = state_of(world.ranks[rank]);
            DynamicView const far(memory.far, DType::i64, DynamicShape{Indices{20}});
            if (rank == 1) state.metadata[0].view = far;
            auto const refused = [&](auto const& call) {
                CHECK_THROWS_WITH_AS(call(), doctest::Contains("on rank 1: a buffer lies in device memory. Fix: "),
                                     BufferError);
            };
            refused([&] { static_cast<void>(redistribute(table, table, state, comm)); });
            refused([&] { static_cast<void>(validate(table, state, comm)); });
            refused([&] { apply_row_moves({}, table, rank == 1 ? far : state.ids, comm); });
        });
    }
    TEST_CASE("one rank alone asks its communicator, too") {
        World world(20, 1, Policy::lfu);
        run_on_threads(1, [&](ThreadCommunicator& threads) {
            test::FarMemory const memory;
            test::OnFarMemory comm(std::move(threads), memory);
            MchState state = state_of(world.ranks[0]);
            state.ids = DynamicView(memory.far, DType::i64, DynamicShape{Indices{20}});
            CHECK_THROWS_WITH_AS(static_cast<void>(validate(table_of(world), state, comm)),
                                 doctest::Contains("a buffer lies in device memory. Fix: "), BufferError);
        });
    }
}
