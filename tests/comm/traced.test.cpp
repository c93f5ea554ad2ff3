// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/traced.hpp.
#include <reshard/comm/traced.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "conformance.hpp"

#include <doctest/doctest.h>

namespace {
using namespace reshard;
static_assert(Communicator<Traced<SelfCommunicator>>);
static_assert(Communicator<Traced<Traced<ThreadCommunicator>>>);
static_assert(Traced<ThreadCommunicator>::name == "threads");
}  // namespace

TEST_SUITE("comm/traced") {
    TEST_CASE("Traced: is the communicator it wraps") {
        Trace trace(16);
        Traced comm(SelfCommunicator(), trace);
        test::conforms(comm);
        CHECK(trace.records().size() == 16);
        CHECK(trace.dropped() > 0);
        run_on_threads(3, [](ThreadCommunicator& plain) {
            Trace own(4);
            Traced traced(std::move(plain), own);
            test::conforms(traced);
        });
    }

    TEST_CASE("Traced: a record counts messages, bytes and peers, and keeps local bytes apart") {
        run_on_threads(3, [](ThreadCommunicator& plain) {
            Trace trace(8);
            Traced comm(std::move(plain), trace);
            test::moves_in_order(
                comm, [](int, int) { return 2; }, [](int, int, int) { return 10; });
            REQUIRE(trace.records().size() == 1);
            CHECK(trace.records()[0] == TraceRecord{{4, 40, 2}, {4, 40, 2}, 20});
            comm.exchange({}, {}).wait();
            REQUIRE(trace.records().size() == 2);
            CHECK(trace.records()[1] == TraceRecord{});
            auto child = comm.split(0, 0);
            child.exchange({}, {}).wait();
            CHECK(trace.records().size() == 3);  // same trace
            trace.clear();
            CHECK(trace.records().empty());
        });
    }

    TEST_CASE("Trace: a full one counts what it drops") {
        Trace trace(1);
        trace.add({});
        trace.add({});
        trace.add({});
        CHECK(trace.records().size() == 1);
        CHECK(trace.dropped() == 2);
    }
}
