// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/agree.hpp.
#include <reshard/comm/agree.hpp>
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include "support/allocations.hpp"
#include "support/thrown.hpp"

#include <string>
#include <vector>

using namespace reshard;

TEST_SUITE("comm/agree") {
    TEST_CASE("a rank that has no memory for words has the code, and all say the same words") {
        auto const thrown = test::thrown_by(3, [](ThreadCommunicator& comm) {
            Verdict mine;
            if (comm.rank() == 1) {
                test::allocation_counter().refused_from = 0;  // from now on
                mine = detail::verdict_of([] { static_cast<void>(std::vector<int>(100)); });
                test::allocation_counter().refused_from = SIZE_MAX;
                CHECK(mine.reason.empty());
            }
            detail::agree_or_raise(comm, std::move(mine));
        });
        test::check_same(thrown, ErrorCode::out_of_memory, {"rank 1 of 3: reshard: out of memory."});
    }

    TEST_CASE("what fails is pending, what comes after it is left out, and the next agreement tells all") {
        std::vector<int> done(2, 0);
        auto const thrown = test::thrown_by(2, [&](ThreadCommunicator& comm) {
            detail::PendingVerdict pending;
            pending.attempt([&] {
                if (comm.rank() == 1) raise(ErrorCode::io, "the disk is full. Fix: make room.");
            });
            pending.attempt([&] { done[static_cast<std::size_t>(comm.rank())] = 1; });
            CHECK(pending.ok() == (comm.rank() == 0));
            pending.agree(comm);
        });
        test::check_same(thrown, ErrorCode::io, {"rank 1 of 2: the disk is full"});
        CHECK(done == std::vector<int>{1, 0});
    }

    TEST_CASE("what is pending can be thrown once, in the work of another agreement") {
        detail::PendingVerdict pending;
        pending.attempt([] { raise(ErrorCode::buffer, "too small. Fix: more."); });
        CHECK_THROWS_WITH_AS(pending.raise_pending(), "too small. Fix: more.", BufferError);
        CHECK(pending.ok());
        pending.raise_pending();
    }
}
