// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/detail/parts.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <new>
#include <thread>
#include <vector>

using namespace reshard;
using reshard::detail::run_parts;

TEST_CASE("parts: every part runs once, whatever the number of threads") {
    for (int threads : {1, 2, 5}) {
        for (int parts : {0, 1, 3, 5, 40}) {
            std::vector<int> calls(static_cast<std::size_t>(parts), 0);
            for (int round = 0; round < 20; ++round) {
                run_parts(threads, parts, [&](int part) { ++calls[static_cast<std::size_t>(part)]; });
            }
            CAPTURE(threads);
            CHECK(calls == std::vector<int>(static_cast<std::size_t>(parts), 20));
        }
    }
}

TEST_CASE("parts: what a body throws, on whatever thread, is thrown when all have ended; the next round is as ever") {
    for (int failing : {0, 1, 2, 4}) {
        CAPTURE(failing);
        std::vector<int> calls(6, 0);
        auto const round = [&] {
            run_parts(3, 6, [&](int part) {
                if (part == failing) throw std::bad_alloc();
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                calls[static_cast<std::size_t>(part)] = 1;
            });
        };
        CHECK_THROWS_AS(round(), std::bad_alloc);
        for (int part = 0; part < failing; ++part) CHECK(calls[static_cast<std::size_t>(part)] == 1);
        std::vector<int> again(6, 0);
        run_parts(3, 6, [&](int part) { again[static_cast<std::size_t>(part)] = 1; });
        CHECK(again == std::vector<int>(6, 1));
    }
}
