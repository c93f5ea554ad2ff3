// SPDX-License-Identifier: Apache-2.0
// The conformance suite over NcclCommunicator and the test double of NCCL, in every way it is configured.
#include "../conformance.hpp"
#include "gpus.hpp"

#include <reshard/comm/staged.hpp>

namespace {
using namespace reshard;
using test::check_none;
using test::on_gpus;
namespace fake = test::fake_nccl;
}  // namespace

TEST_SUITE("comm/nccl") {
    TEST_CASE("NcclCommunicator: keeps the contract on 1, 2, 3, 4 and 5 ranks, and leaves nothing behind") {
        fake::reset();
        for (int ranks : {1, 2, 3, 4, 5}) {
            CAPTURE(ranks);
            check_none(on_gpus(ranks, {}, [](NcclCommunicator& comm) { test::conforms(comm); }));
        }
        fake::Counts const counts = fake::counts();
        CHECK(counts.mismatches == 0);
        CHECK(counts.misused == 0);
        CHECK(counts.default_stream == 0);
        CHECK(counts.aborted == 0);
        CHECK(counts.largest_group <= 1024);
        CHECK(fake::live_communicators() == 0);
        CHECK(fake::live_allocations() == 0);
    }

    TEST_CASE("NcclCommunicator: keeps the contract when peers are trusted, and when the window is small") {
        for (bool compare : {true, false}) {
            for (Index window : {Index{256} << 20, Index{4096}}) {
                CAPTURE(compare);
                CAPTURE(window);
                NcclOptions options;
                options.compare = compare;
                options.window_bytes = window;
                check_none(on_gpus(3, options, [](NcclCommunicator& comm) { test::conforms(comm); }));
            }
        }
    }
}
