// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/collectives.hpp.
#include <reshard/comm/collectives.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "conformance.hpp"

#include <doctest/doctest.h>

#include <vector>

TEST_SUITE("comm/collectives") {
    TEST_CASE("collectives: barrier, broadcast, all_gather and all_to_all on 1, 2, 3 and 5 ranks") {
        reshard::SelfCommunicator self;
        reshard::test::derives_collectives(self);
        for (int ranks : {1, 2, 3, 5}) {
            CAPTURE(ranks);
            reshard::run_on_threads(ranks, [](auto& comm) { reshard::test::derives_collectives(comm); });
        }
    }

    TEST_CASE("collectives: a size that is no multiple of the ranks is an error that says so") {
        reshard::run_on_threads(2, [](reshard::ThreadCommunicator& comm) {
            std::vector<std::byte> three(3);
            CHECK_THROWS_WITH_AS(reshard::all_to_all(comm, three, three), doctest::Contains("one block per rank"),
                                 reshard::BufferError);
            reshard::barrier(comm);
        });
    }
}
