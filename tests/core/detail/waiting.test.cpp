// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/detail/waiting.hpp.
#include <reshard/core/detail/waiting.hpp>

#include <doctest/doctest.h>

using namespace reshard;
using namespace std::chrono_literals;
using detail::Clock;

TEST_CASE("look_at_clock: of a time in which the process was stopped a second counts; of others all") {
    auto since = Clock::now() - 60s;
    auto seen = since + 10s;  // and 50 s stopped
    auto const now = detail::look_at_clock(since, seen);
    CHECK(now - since == 11s);
    CHECK(seen == now);
    auto const before = since;
    seen = Clock::now() + 1h;  // so that this look comes in time on any machine
    CHECK(detail::look_at_clock(since, seen) == seen);
    CHECK(since == before);
}

TEST_CASE("look_at_clock: a wait of looks that are all far apart ends") {
    auto const begun = Clock::now();
    auto since = begun;
    for (int turn = 1; turn <= 5; ++turn) {
        auto seen = Clock::now() - 10s;
        since -= 10s;  // as if the wait had gone on for as long
        auto const now = detail::look_at_clock(since, seen);
        CHECK(now - since >= turn * 1s);
    }
}
