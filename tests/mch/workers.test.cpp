// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/workers.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <new>
#include <thread>
#include <vector>

using namespace reshard;

TEST_CASE("workers: every part runs once, whatever the number of threads") {
    for (int threads : {1, 2, 5}) {
        Workers workers(threads);
        CHECK(workers.threads() == threads);
        for (int parts : {0, 1, 3, 5, 40}) {
            std::vector<int> calls(static_cast<std::size_t>(parts), 0);
            for (int round = 0; round < 20; ++round) {
                workers(parts, [&](int part) { ++calls[static_cast<std::size_t>(part)]; });
            }
            CAPTURE(threads);
            CHECK(calls == std::vector<int>(static_cast<std::size_t>(parts), 20));
        }
    }
}

TEST_CASE("workers: what a body throws, on whatever thread, is thrown when all have ended; the next round is as ever") {
    Workers workers(3);
    for (int failing : {0, 1, 2, 4}) {
        CAPTURE(failing);
        std::vector<int> calls(6, 0);
        auto const round = [&] {
            workers(6, [&](int part) {
                if (part == failing) throw std::bad_alloc();
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                calls[static_cast<std::size_t>(part)] = 1;
            });
        };
        CHECK_THROWS_AS(round(), std::bad_alloc);
        for (int part = 0; part < failing; ++part) CHECK(calls[static_cast<std::size_t>(part)] == 1);
        std::vector<int> again(6, 0);
        workers(6, [&](int part) { again[static_cast<std::size_t>(part)] = 1; });
        CHECK(again == std::vector<int>(6, 1));
    }
}

TEST_CASE("workers: no threads is an error") {
    CHECK_THROWS_WITH_AS(Workers(0), "reshard::Workers: 0 threads. Fix: give at least 1, the calling thread.",
                         MeshError);
}
