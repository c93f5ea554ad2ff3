// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/trace_summary.hpp.
#include <reshard/comm/trace_summary.hpp>

#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>

#include "conformance.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// The fields of the line that starts with `title`; empty when there is none.
std::vector<std::string> fields_of(std::string const& table, std::string const& title) {
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(title)) continue;
        std::istringstream words(line.substr(title.size()));
        std::vector<std::string> fields;
        for (std::string word; words >> word;) fields.push_back(word);
        return fields;
    }
    return {};
}

}  // namespace

TEST_SUITE("comm/trace_summary") {
    TEST_CASE("operations, peers, groups and phases have a line each, with what they moved") {
        run_on_threads(3, [](ThreadCommunicator& plain) {
            Trace trace;
            Traced comm(std::move(plain), trace);
            auto const move = [](auto& some) {
                test::moves_in_order(
                    some, [](int, int) { return 2; }, [](int, int, int) { return 1024; });
            };
            {
                auto const phase = trace.scope("two exchanges");
                move(comm);
                move(comm);
            }
            trace.mark("a moment");
            auto part = comm.split(comm.rank() == 2 ? -1 : 0, 0);
            move(part);
            std::string const table = trace_summary(trace);
            INFO(table);
            bool const alone = comm.rank() == 2;
            auto const exchange = fields_of(table, "exchange");
            REQUIRE(exchange.size() == 10);
            CHECK(exchange[0] == "3");
            CHECK(exchange[1] == (alone ? "16" : "20"));
            CHECK(exchange[2] == (alone ? "8.0" : "10.0"));
            CHECK(exchange[3] == "KiB");
            CHECK(exchange[4] == (alone ? "8.0" : "10.0"));
            CHECK(exchange[6] == "6.0");
            CHECK(fields_of(table, "split ").at(0) == "1");
            CHECK(fields_of(table, "agree").empty());
            int const next = (comm.rank() + 1) % 3;
            CHECK(fields_of(table, errors::concat("rank ", next, " ")).at(0) == "2");
            CHECK(fields_of(table, errors::concat("rank ", comm.rank(), "  ")).empty());
            if (!alone) CHECK(fields_of(table, errors::concat("rank ", 1 - comm.rank(), " of split 1")).at(0) == "1");
            CHECK(fields_of(table, "two exchanges").at(0) == "1");
            CHECK(table.find("a moment") == std::string::npos);
            CHECK(table.find("dropped") == std::string::npos);
        });
    }

    TEST_CASE("what failed, is under way or was dropped is counted, not added up") {
        Trace trace(3);
        TraceRecord record;
        record.start = Trace::now();
        static_cast<void>(trace.start(record, {}, {}, 0));
        trace.finish(trace.start(record, {}, {}, 0), ErrorCode::deadline);
        trace.finish(trace.start(record, {}, {}, 0));
        trace.finish(trace.start(record, {}, {}, 0));
        std::string const table = trace_summary(trace);
        INFO(table);
        CHECK(fields_of(table, "exchange").at(0) == "1");
        CHECK(table.find("failed: 1\n") != std::string::npos);
        CHECK(table.find("under way: 1\n") != std::string::npos);
        CHECK(table.find("dropped: 1.") != std::string::npos);
        CHECK(trace_summary(Trace()).find('\n') + 1 == trace_summary(Trace()).size());  // a head, nothing else
    }
}
