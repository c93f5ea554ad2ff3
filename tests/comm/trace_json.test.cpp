// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/trace_json.hpp.
#include <reshard/comm/trace_json.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>

#include "conformance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

namespace {
using namespace reshard;
using Json = nlohmann::json;

/// A rank's events of one phase ("X", "C", ...), by thread.
std::vector<Json> events_of(Json const& document, int rank, std::string const& phase) {
    std::vector<Json> events;
    for (auto const& event : document.at("traceEvents")) {
        if (event.at("pid") == rank && event.at("ph") == phase) events.push_back(event);
    }
    return events;
}

/// Whether the slices of one thread follow each other or lie in each other, as viewers need them.
bool nest(std::vector<Json> const& slices) {
    constexpr double rounding = 0.0005;  // half a nanosecond, in microseconds
    for (auto const& a : slices) {
        for (auto const& b : slices) {
            if (a.at("tid") != b.at("tid")) continue;
            double const from = a.at("ts");
            double const to = from + a.at("dur").get<double>();
            double const start = b.at("ts");
            double const stop = start + b.at("dur").get<double>();
            if (start > from + rounding && start < to - rounding && stop > to + rounding) return false;
        }
    }
    return true;
}

}  // namespace

TEST_SUITE("comm/trace_json") {
    TEST_CASE("the traces of all ranks are one document: calls, labels, counters, bytes as the transport counts them") {
        for (int const ranks : {1, 2, 4}) {
            for (int const root : {0, ranks - 1}) {
                CAPTURE(ranks);
                CAPTURE(root);
                std::string text;
                std::vector<Traffic> traffic(static_cast<std::size_t>(ranks));
                std::vector<std::size_t> recorded(traffic.size());
                run_on_threads(ranks, [&](ThreadCommunicator& plain) {
                    auto const me = static_cast<std::size_t>(plain.rank());
                    Trace trace(TraceCapacity{10000, 100000, 100});
                    Traced comm(std::move(plain), trace);
                    {
                        auto const phase = trace.scope("conformance");
                        {
                            auto const inner = trace.scope("inner");
                            test::moves_strided_boxes(comm);
                        }
                        test::counts_traffic(comm);
                        test::splits_by_colour_and_key(comm);
                        barrier(comm);
                    }
                    trace.mark("done");
                    traffic[me] = comm.traffic();
                    recorded[me] = trace.records().size();
                    std::string const mine = chrome_trace(comm, trace, root);
                    CHECK(mine.empty() == (comm.rank() != root));
                    if (comm.rank() == root) text = mine;
                });
                Json const document = Json::parse(text);
                CHECK(document.at("otherData").at("ranks") == ranks);
                CHECK(document.at("otherData").at("dropped") == 0);
                double first = 1e300;
                for (int r = 0; r != ranks; ++r) {
                    auto const at = static_cast<std::size_t>(r);
                    auto const slices = events_of(document, r, "X");
                    CHECK(slices.size() == recorded[at] + 2);
                    CHECK(nest(slices));
                    Traffic sum;
                    std::map<int, double> end_of_thread;
                    std::set<std::string> names;
                    for (auto const& slice : slices) {
                        names.insert(slice.at("name"));
                        first = std::min(first, slice.at("ts").get<double>());
                        CHECK(slice.at("ts") >= 0.0);
                        CHECK(slice.at("dur") >= 0.0);
                        int const thread = slice.at("tid");
                        if (thread == 0) continue;  // scopes lie in each other; calls of a group follow each other
                        CHECK(slice.at("ts").get<double>() >= end_of_thread[thread] - 0.001);
                        end_of_thread[thread] = slice.at("ts").get<double>() + slice.at("dur").get<double>();
                        CHECK(slice.at("cat") == "threads");
                        if (thread != 1 || slice.at("name") != "exchange") continue;
                        auto const& args = slice.at("args");
                        sum.bytes_sent += args.at("bytes_sent").get<Index>();
                        sum.bytes_received += args.at("bytes_received").get<Index>();
                        sum.bytes_local += args.at("bytes_local").get<Index>();
                        Index sent = 0;
                        for (auto const& peer : args.at("peers")) sent += peer.at("bytes_sent").get<Index>();
                        CHECK(sent == args.at("bytes_sent").get<Index>());
                    }
                    CHECK(names == std::set<std::string>{"exchange", "agree", "split", "conformance", "inner"});
                    CHECK(sum.bytes_sent == traffic[at].bytes_sent);
                    CHECK(sum.bytes_received == traffic[at].bytes_received);
                    CHECK(sum.bytes_local == traffic[at].bytes_local);
                    Index sent = 0;
                    double time = 0;
                    for (auto const& point : events_of(document, r, "C")) {
                        CHECK(point.at("ts") >= time);
                        CHECK(point.at("args").at("sent") >= sent);
                        time = point.at("ts");
                        sent = point.at("args").at("sent");
                    }
                    CHECK(sent >= traffic[at].bytes_sent);  // the parts of the communicator as well
                    auto const moments = events_of(document, r, "i");
                    REQUIRE(moments.size() == 1);
                    CHECK(moments[0].at("name") == "done");
                    std::map<int, std::string> threads;
                    for (auto const& name : events_of(document, r, "M")) {
                        if (name.at("name") == "thread_name") threads[name.at("tid")] = name.at("args").at("name");
                    }
                    CHECK(threads.at(0) == "labels");
                    CHECK(threads.at(1) == "threads");
                    CHECK(threads.at(2) == "split 1");
                }
                CHECK(first == 0.0);
            }
        }
    }

    TEST_CASE("calls that failed carry their error; what is under way has a beginning and no end") {
        Trace trace;
        TraceRecord record;
        record.transport = "threads";
        record.start = Trace::now();
        static_cast<void>(trace.start(record, {}, {}, 0));
        trace.finish(trace.start(record, {}, {}, 0), ErrorCode::deadline);
        auto const phase = trace.scope("open");
        Json const document = Json::parse(chrome_trace(trace, 7));
        auto const begun = events_of(document, 7, "B");
        REQUIRE(begun.size() == 2);
        CHECK(begun[0].at("name") == "open");
        CHECK(begun[1].at("name") == "exchange");
        CHECK(!begun[1].contains("dur"));
        auto const ended = events_of(document, 7, "X");
        REQUIRE(ended.size() == 1);
        CHECK(ended[0].at("args").at("error") == static_cast<int>(ErrorCode::deadline));
        CHECK(events_of(document, 7, "C").empty());
    }

    TEST_CASE("names may be any bytes; an empty trace is a document; what was dropped is counted") {
        Trace trace(TraceCapacity{0, 0, 2});
        trace.mark("quotes \" and \\ and \n and \xc3\xa4");
        trace.mark("\xff not UTF-8");
        trace.mark("one too many");
        Json const document = Json::parse(chrome_trace(trace));
        auto const moments = events_of(document, 0, "i");
        REQUIRE(moments.size() == 2);
        CHECK(moments[0].at("name") == "quotes \" and \\ and \n and \xc3\xa4");
        CHECK(document.at("otherData").at("dropped") == 1);
        CHECK(Json::parse(chrome_trace(Trace())).at("traceEvents").size() == 2);
        SelfCommunicator self;
        CHECK(Json::parse(chrome_trace(self, Trace())).at("traceEvents").size() == 2);
        CHECK_THROWS_AS(static_cast<void>(chrome_trace(self, trace, 1)), MeshError);
        CHECK_THROWS_AS(static_cast<void>(chrome_trace(self, trace, -1)), MeshError);
    }

    TEST_CASE("write_chrome_trace: the file is there when it returns; all ranks hear when it cannot be written") {
        std::string const path = errors::concat("/tmp/reshard_trace_", ::getpid(), ".json");
        run_on_threads(3, [&](ThreadCommunicator& plain) {
            Trace trace;
            Traced comm(std::move(plain), trace);
            barrier(comm);
            write_chrome_trace(comm, trace, path, 1);
            std::ifstream file(path);
            Json const document = Json::parse(file);
            CHECK(events_of(document, comm.rank(), "X").size() == 1);
            CHECK_THROWS_AS(write_chrome_trace(comm, trace, "/no/such/folder/trace.json"), IoError);
            if (::access("/dev/full", W_OK) == 0) {
                CHECK_THROWS_AS(write_chrome_trace(comm, trace, "/dev/full"), IoError);
            }
            test::sends_one_value_to_each_peer(comm);  // nothing is poisoned
        });
        CHECK(::unlink(path.c_str()) == 0);
    }

    TEST_CASE("a rank that is elsewhere in the middle of a call is told which one") {
        auto const check = [](std::string_view call, auto&& other) {
            CAPTURE(call);
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                Trace const trace;
                CHECK_THROWS_WITH_AS(
                    comm.rank() == 0 ? write_chrome_trace(comm, trace, "/dev/null") : other(comm),
                    doctest::Contains(errors::concat("is in barrier(), but rank 0 is in ", call, "().").c_str()),
                    MismatchError);
            });
        };
        check("write_chrome_trace", [](ThreadCommunicator& comm) {
            static_cast<void>(chrome_trace(comm, Trace()));
            barrier(comm);
        });
        check("chrome_trace", [](ThreadCommunicator& comm) {
            for (std::size_t const bytes : {16U, 8U}) {  // what it gathers first
                std::vector<std::byte> const mine(bytes);
                std::vector<std::byte> all(2 * bytes);
                all_gather(comm, std::span(mine), std::span(all));
            }
            barrier(comm);
        });
    }
}
