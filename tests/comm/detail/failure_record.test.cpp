// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/detail/failure_record.hpp.
#include <reshard/comm/detail/failure_record.hpp>

#include <doctest/doctest.h>

#include <cstring>

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
