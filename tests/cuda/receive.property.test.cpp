// SPDX-License-Identifier: Apache-2.0
#include <reshard/cuda/receive_report.hpp>

#include "cuda/support/emulated_receive.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

using namespace reshard;
using namespace reshard::test;

TEST_CASE("device receiver: its kernel bodies rebuild the shard of a sort and a list of free slots") {
    std::vector<std::uint64_t> const masks{~std::uint64_t{0}, 0xffff, 0xffff00, 0x7fffffffffffffff, 0xff00000000000000};
    for (std::uint64_t seed : seeds(60)) {
        Random random(seed);
        Index const slots = random.pick(std::vector<Index>{0, 1, 31, 32, 33, 100, random.between(0, 4000)});
        Index const entries = random.chance(20) ? slots : random.between(0, slots);
        auto const given = random_receive(random, slots, entries, static_cast<int>(random.between(1, 9)),
                                          static_cast<int>(random.between(2, 5)), random.pick(masks), false);
        for (ThreadOrder order : {ThreadOrder::up, ThreadOrder::shuffled}) {
            CAPTURE(seed);
            CAPTURE(slots);
            CAPTURE(entries);
            EmulatedReceive device(given);
            HostBlocks run{order};
            device.inspect(run);
            CHECK(same(device.faults, receive_faults(given)));
            Index words[ReceiveReport::words];
            std::memcpy(words, &device.faults, sizeof(device.faults));
            ReceiveReport const report(words);
            CHECK(report.none());
            device.sort(run, report.bits());
            CHECK(device.faults.duplicate_ids == 0);
            CHECK((device.rebuild(run) == receive_oracle(given)));
        }
    }
}

TEST_CASE("device receiver: slots of others, slots taken twice, ids of empty places and ids that repeat are counted") {
    for (std::uint64_t seed : seeds(30)) {
        Random random(seed);
        CAPTURE(seed);
        auto const given = random_receive(random, 2000, 1500, 5, 3, ~std::uint64_t{0}, true);
        EmulatedReceive device(given);
        HostBlocks run{ThreadOrder::shuffled};
        device.inspect(run);
        auto const expected = receive_faults(given);
        CHECK(same(device.faults, expected));
        Index words[ReceiveReport::words];
        std::memcpy(words, &device.faults, sizeof(device.faults));
        CHECK_FALSE(ReceiveReport(words).none());
        CHECK_THROWS_AS(ReceiveReport(words).check(), MismatchError);
        device.sort(run, detail::sort_bits(device.faults.ids_or, device.faults.ids_and));
        CHECK(device.faults.duplicate_ids == (expected.empty_ids == 0 ? 0 : expected.empty_ids - 1));
    }
    Index few[1] = {};
    CHECK_THROWS_AS(static_cast<void>(ReceiveReport(few)), BufferError);
}

TEST_CASE("device receiver: a sort looks at the bits that vary and no others") {
    auto const bits = [](std::vector<Index> const& ids) {
        std::uint64_t all_or = 0;
        std::uint64_t all_and = ~std::uint64_t{0};
        for (Index id : ids) {
            all_or |= static_cast<std::uint64_t>(id);
            all_and &= static_cast<std::uint64_t>(id);
        }
        auto const found = detail::sort_bits(all_or, all_and);
        return std::vector<int>{found.begin, found.end};
    };
    CHECK(bits({}) == std::vector<int>{0, 0});
    CHECK(bits({5}) == std::vector<int>{0, 0});
    CHECK(bits({-5, -5}) == std::vector<int>{0, 0});
    CHECK(bits({0, 1}) == std::vector<int>{0, 1});
    CHECK(bits({0, 255}) == std::vector<int>{0, 8});
    CHECK(bits({0, 256}) == std::vector<int>{8, 9});
    CHECK(bits({-1, 0}) == std::vector<int>{0, 64});
    CHECK(bits({-1, -2}) == std::vector<int>{0, 1});
    CHECK(bits({INT64_MIN, INT64_MAX}) == std::vector<int>{0, 64});
    CHECK(bits({INT64_MIN, 0}) == std::vector<int>{63, 64});
}
