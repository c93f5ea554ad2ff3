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
    TEST_CASE("Traced: a record counts messages, bytes and peers, and keeps local bytes apart") {
        run_on_threads(3, [](ThreadCommunicator& plain) {
            Trace trace(8);
            Traced comm(std::move(plain), trace);
            test::moves_in_order(
                comm, [](int, int) { return 2; }, [](int, int, int) { return 10; });
            REQUIRE(trace.records().size() == 1);
            TraceRecord const record = trace.records()[0];
            CHECK(record.operation == TraceOperation::exchange);
            CHECK(record.completed());
            CHECK(record.start <= record.end);
            CHECK(record.moved == Traffic{4, 40, 4, 40, 20});
            CHECK(record.peer_count == 2);
            REQUIRE(trace.peers(record).size() == 2);
            int const first = comm.rank() == 0 ? 1 : 0;
            int const second = comm.rank() == 2 ? 1 : 2;
            CHECK(trace.peers(record)[0] == TracePeer{first, {2, 20, 2, 20}});
            CHECK(trace.peers(record)[1] == TracePeer{second, {2, 20, 2, 20}});
            comm.exchange({}, {}).wait();
            REQUIRE(trace.records().size() == 2);
            CHECK(trace.records()[1].moved == Traffic{});
            CHECK(trace.peers(trace.records()[1]).empty());
        });
    }

    TEST_CASE("Traced: peers that only send or only receive have a side of their own") {
        run_on_threads(3, [](ThreadCommunicator& plain) {
            Trace trace(8);
            Traced comm(std::move(plain), trace);
            test::moves_in_order(
                comm, [](int from, int to) { return (from + 1) % 3 == to ? 1 : 0; },
                [](int from, int, int) { return 100 + from; });
            int const next = (comm.rank() + 1) % 3;
            int const previous = (comm.rank() + 2) % 3;
            for (auto const& peer : trace.peers(trace.records()[0])) {
                CHECK(peer == (peer.rank == next ? TracePeer{next, {1, 100 + comm.rank(), 0, 0}}
                                                 : TracePeer{previous, {0, 0, 1, 100 + previous}}));
            }
        });
    }

    TEST_CASE("Traced: what is recorded is what the transport counted") {
        run_on_threads(4, [](ThreadCommunicator& plain) {
            Trace trace(TraceCapacity{10000, 100000, 1});
            Traced comm(std::move(plain), trace);
            test::conforms(comm);
            CHECK(trace.dropped() == 0);
            Traffic sum;
            for (auto const& record : trace.records()) {
                CHECK(record.completed());
                if (record.group != 0) continue;
                sum += record.moved;
                Traffic of_peers;
                of_peers.bytes_local = record.moved.bytes_local;
                for (auto const& peer : trace.peers(record)) {
                    of_peers += peer.moved;
                    CHECK(peer.rank != comm.rank());
                }
                CHECK(of_peers == record.moved);
            }
            CHECK(sum.bytes_sent == comm.traffic().bytes_sent);
            CHECK(sum.bytes_received == comm.traffic().bytes_received);
            CHECK(sum.bytes_local == comm.traffic().bytes_local);
        });
    }

    TEST_CASE("Traced: agreements and splits are recorded; parts write to the same trace as a group of their own") {
        run_on_threads(3, [](ThreadCommunicator& plain) {
            Trace trace(8);
            Traced comm(std::move(plain), trace);
            barrier(comm);
            auto part = comm.split(comm.rank() == 0 ? -1 : 0, -comm.rank());
            auto again = part.split(0, 0);
            again.exchange({}, {}).wait();
            auto const records = trace.records();
            REQUIRE(records.size() == 4);
            CHECK(records[0].operation == TraceOperation::agree);
            CHECK(records[1].operation == TraceOperation::split);
            CHECK(records[1].group == 0);
            CHECK(records[1].made == TraceGroup{1, part.rank(), part.size()});
            CHECK(records[2].group == 1);
            CHECK(records[2].made == TraceGroup{2, part.rank(), part.size()});
            CHECK(records[3].operation == TraceOperation::exchange);
            CHECK(records[3].group == 2);
            for (std::size_t i = 1; i != records.size(); ++i) CHECK(records[i - 1].end <= records[i].start);
        });
    }

    TEST_CASE("Traced: one rank may trace alone") {
        run_on_threads(3, [](ThreadCommunicator& plain) {
            if (plain.rank() != 1) return test::sends_one_value_to_each_peer(plain);
            Trace trace(8);
            Traced comm(std::move(plain), trace);
            test::sends_one_value_to_each_peer(comm);
            CHECK(trace.records().size() == 1);
        });
    }

    TEST_CASE("Traced: an exchange is under way until its request is done, however that is found out") {
        run_on_threads(2, [](ThreadCommunicator& plain) {
            Trace trace(8);
            Traced comm(std::move(plain), trace);
            {
                auto request = comm.exchange({}, {});
                CHECK(trace.records()[0].end == -1);
                auto moved = std::move(request);
                moved.wait();
                CHECK(trace.records()[0].end >= trace.records()[0].start);
            }
            {
                auto request = comm.exchange({}, {});
                while (!request.test()) {
                }
                CHECK(trace.records()[1].completed());
            }
            { [[maybe_unused]] auto request = comm.exchange({}, {}); }
            CHECK(trace.records()[2].completed());
            auto request = comm.exchange({}, {});
            trace.clear();
            request.wait();
        });
    }

    TEST_CASE("Traced: an error passes with its type and is noted") {
        for (bool const waits : {true, false}) {
            CAPTURE(waits);
            ErrorCode noted[2] = {};
            CHECK_THROWS_AS(
                run_on_threads(
                    2,
                    [&](ThreadCommunicator& plain) {
                        int const me = plain.rank();
                        Trace trace(8);
                        Traced comm(std::move(plain), trace);
                        int value = 0;
                        transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), test::box_of(4, {})};
                        // Rank 1 expects nothing.
                        auto const sends = me == 0 ? std::span(&send, 1) : std::span<transport::Send const>();
                        std::exception_ptr caught;
                        try {
                            auto request = comm.exchange(sends, {});
                            if (waits) request.wait();
                        } catch (...) {
                            caught = std::current_exception();
                        }
                        noted[me] = trace.records()[0].error;
                        CHECK(trace.records()[0].end >= trace.records()[0].start);
                        if (caught) std::rethrow_exception(caught);
                        barrier(comm);
                    }),
                Error);
            CHECK(noted[0] == ErrorCode::mismatch);
            CHECK(noted[1] == ErrorCode::mismatch);
        }
    }
}
