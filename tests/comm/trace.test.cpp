// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/trace.hpp.
#include <reshard/comm/trace.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {
using namespace reshard;

/// `count` transfers of one byte, to ranks 0, 1, ...
std::vector<transport::Send> sends_to(int count) {
    transport::StridedBox box;
    box.dims.push_back({1, 1});
    std::vector<transport::Send> sends;
    for (int r = 0; r != count; ++r) sends.push_back({r, nullptr, box});
    return sends;
}

}  // namespace

TEST_SUITE("comm/trace") {
    TEST_CASE("a full trace keeps what it has, counts what it drops and allocates nothing") {
        Trace trace(1);
        auto const* const memory = trace.records().data();
        auto const first = trace.start({}, {}, {}, 0);
        auto const second = trace.start({}, {}, {}, 0);
        trace.finish(second);  // was dropped: ends nothing
        CHECK(trace.records().size() == 1);
        CHECK(trace.records()[0].end == -1);
        trace.finish(first, ErrorCode::deadline);
        CHECK(trace.records()[0].error == ErrorCode::deadline);
        CHECK(!trace.records()[0].completed());
        CHECK(trace.dropped() == 1);
        CHECK(trace.records().data() == memory);
    }

    TEST_CASE("a record whose peers do not fit is dropped whole") {
        Trace trace(TraceCapacity{10, 5, 0});
        trace.finish(trace.start({}, sends_to(4), {}, 0));  // three peers: rank 0 is this rank
        trace.finish(trace.start({}, sends_to(4), {}, 0));
        trace.finish(trace.start({}, sends_to(3), {}, 0));
        REQUIRE(trace.records().size() == 2);
        CHECK(trace.dropped() == 1);
        CHECK(trace.records()[0].moved == Traffic{3, 3, 0, 0, 1});
        CHECK(trace.peers(trace.records()[0]).size() == 3);
        CHECK(trace.peers(trace.records()[1]).size() == 2);
        CHECK(trace.peers(trace.records()[1])[1].rank == 2);
    }

    TEST_CASE("clear forgets records, labels and what is under way") {
        Trace trace(2);
        auto const old = trace.start({}, {}, {}, 0);
        {
            auto const phase = trace.scope("phase");
            trace.clear();
            CHECK(trace.labels().empty());
            static_cast<void>(trace.start({}, {}, {}, 0));
            trace.mark("new");
        }
        trace.finish(old);
        CHECK(trace.records()[0].end == -1);
        REQUIRE(trace.labels().size() == 1);
        CHECK(trace.labels()[0].start == trace.labels()[0].end);
        CHECK(trace.dropped() == 0);
    }

    TEST_CASE("marks are moments, scopes last and nest; long names are cut") {
        Trace trace(4);
        {
            auto const outer = trace.scope("outer");
            trace.mark(std::string(100, 'x'));
            auto inner = trace.scope("inner");
            auto const moved = std::move(inner);
        }
        trace.mark("kept");
        trace.mark("dropped");
        auto const labels = trace.labels();
        REQUIRE(labels.size() == 4);
        CHECK(trace.dropped() == 1);
        CHECK(std::string(labels[0].text) == "outer");
        CHECK(std::string(labels[1].text) == std::string(TraceLabel::longest, 'x'));
        CHECK(std::string(labels[2].text) == "inner");
        CHECK(labels[0].start <= labels[2].start);
        CHECK(labels[2].end <= labels[0].end);
        CHECK(labels[2].start <= labels[2].end);
    }

    TEST_CASE("transfers out of order end the record, not the program") {
        auto sends = sends_to(3);
        sends[2].peer = 0;
        Trace trace(4);
        trace.finish(trace.start({}, sends, {}, 7));
        CHECK(trace.records().size() == 1);
    }
}
