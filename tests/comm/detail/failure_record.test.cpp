// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/detail/failure_record.hpp.
#include <reshard/comm/detail/failure_record.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>

using namespace reshard;
using namespace reshard::detail;

TEST_CASE("a failure that somebody began to write and died names nobody; the first that is written is kept") {
    alignas(SharedFailure) static std::byte memory[sizeof(SharedFailure)];  // zero, as memory that processes share
    auto& shared = *reinterpret_cast<SharedFailure*>(memory);
    FailureRecord heard;
    CHECK(!shared.heard(heard));
    shared.state = 1;
    CHECK(shared.heard(heard));
    CHECK(heard.rank == -1);
    CHECK(heard.teller == -1);
    CHECK(std::strstr(heard.reason, "a rank has died while it told") != nullptr);
    CHECK(heard.code == static_cast<int>(ErrorCode::peer_failed));
    shared.state = 0;
    FailureRecord first = failure_record(ErrorCode::io, 2, 7, -1, -1, "the disk");
    FailureRecord second = failure_record(ErrorCode::mesh, 1, 7, -1, -1, "late");
    CHECK(shared.tell(first));
    CHECK(!shared.tell(second));
    CHECK(second.rank == 2);
    CHECK(std::strcmp(second.reason, "the disk") == 0);
}

TEST_CASE(
    "a rank that others have waited for in vain while it waits itself is told in which call it is, and for whom") {
    FailureRecord const heard =
        failure_record(ErrorCode::deadline, 2, 7, -1, -1, "waited 10 ms in exchange for rank 2. Fix: look.");
    CHECK(std::string(told_to_waiting(heard, 1, "agree").reason) == heard.reason);
    FailureRecord const told = told_to_waiting(heard, 2, name(TeamCall::agree));
    CHECK(told.code == heard.code);
    CHECK(told.rank == 2);
    CHECK(told.scope == 7);
    CHECK(told.first == -1);
    CHECK(told.second == -1);
    CHECK(std::string(told.reason) ==
          "waited 10 ms in exchange for rank 2. Fix: look. (This is that rank, and it waits itself, in agree. Where "
          "it came late, see what kept it; where the others are in another call, make all ranks call the same things "
          "in the same order.)");
    CHECK(std::string(told_to_waiting(heard, 2, "exchange", " for rank 3").reason)
              .find("in exchange for rank 3. Where") != std::string::npos);
}

TEST_CASE("who was not there hears once which transport speaks, whoever is to blame") {
    auto const heard = [](int rank, std::string_view reason) {
        bool reported = false;
        FailureRecord const failure = failure_record(ErrorCode::deadline, rank, 7, -1, -1, reason);
        try {
            raise_failure(failure, "reshard::Some", 1, 7, false, reported);
        } catch (PeerFailed const& error) {
            return std::string(error.what());
        }
    };
    CHECK(heard(-1, "reshard::Some: waited.") == "reshard::Some: waited.");
    CHECK(heard(-1, "somebody has died.") == "reshard::Some: somebody has died.");
    CHECK(heard(2, "the disk is full") == "reshard::Some: rank 2 failed: the disk is full");
}
