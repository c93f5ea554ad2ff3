// SPDX-License-Identifier: Apache-2.0
//
// The transport that docs/communicators.md writes, examples/board.hpp: it passes the conformance suite, alone and with
// policies around it, and keeps the promises that the suite cannot try.
#include "../../examples/board.hpp"

#include <reshard/comm/communicator.hpp>

#include "../support/random.hpp"
#include "policies.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace {
using namespace reshard;
using board::BoardCommunicator;

/// Runs body(comm) on `ranks` threads; what each of them threw, or null.
template <class Body>
std::vector<std::exception_ptr> on_board(int ranks, std::chrono::milliseconds deadline, Body const& body) {
    auto family = std::make_shared<board::Family>();
    family->deadline = deadline;
    auto const shared = std::make_shared<board::Board>(family, ranks);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r != ranks; ++r) {
        threads.emplace_back([&, r] {
            BoardCommunicator comm(shared, r);
            BoardCommunicator own(shared, r);
            try {
                body(comm);
            } catch (std::exception const& error) {
                errors[static_cast<std::size_t>(r)] = std::current_exception();
                own.abort(ErrorCode::user, error.what());
            }
        });
    }
    for (auto& thread : threads) thread.join();
    return errors;
}

template <class E>
void rethrow_as(std::exception_ptr const& error) {
    REQUIRE(error != nullptr);
    CHECK_THROWS_AS(std::rethrow_exception(error), E);
}

constexpr std::chrono::milliseconds long_enough = std::chrono::minutes(5);

}  // namespace

TEST_SUITE("comm/written") {
    TEST_CASE("the transport of the documentation conforms, alone and with policies") {
        for (int const ranks : {1, 2, 3, 4, 8}) {
            if (test::fewer_seeds() && ranks > 3) continue;
            CAPTURE(ranks);
            for (auto const& error : on_board(ranks, long_enough, [](BoardCommunicator& comm) {
                     test::conforms(comm);
                     test::conforms_with_policies<test::SomePolicies>(comm);
                 })) {
                CHECK(error == nullptr);
            }
        }
    }

    TEST_CASE("exchanges that are alike are not mixed up") {
        for (bool again : {false, true}) {
            auto const check = [&](BoardCommunicator& comm) { test::notices_another_order(comm, again); };
            for (auto const& error : on_board(3, long_enough, check)) CHECK(error == nullptr);
        }
    }

    TEST_CASE("payloads that differ are a mismatch for both, PeerFailed for the others, and poison") {
        for (int ranks : {2, 3}) {
            for (test::Payloads const& one : test::different_payloads) {
                CAPTURE(one.nth);
                auto const check = [&](BoardCommunicator& comm) { test::notices_different_payloads(comm, one); };
                for (auto const& error : on_board(ranks, long_enough, check)) CHECK(error == nullptr);
            }
        }
    }

    TEST_CASE("a rank that throws ends the others; one that does not come is named at the deadline") {
        auto const thrown = on_board(3, long_enough, [](BoardCommunicator& comm) {
            auto part = comm.split(comm.rank() == 0 ? 1 : 0, 0);
            if (comm.rank() == 0) errors::raise(ErrorCode::io, "no such file");
            for (;;) barrier(part);  // poison reaches the parts
        });
        rethrow_as<IoError>(thrown[0]);
        rethrow_as<PeerFailed>(thrown[1]);
        rethrow_as<PeerFailed>(thrown[2]);
        auto const late = on_board(2, std::chrono::milliseconds(50), [](BoardCommunicator& comm) {
            if (comm.rank() == 1) return;
            barrier(comm);
        });
        rethrow_as<DeadlineExceeded>(late[0]);
        CHECK(late[1] == nullptr);
    }
}
