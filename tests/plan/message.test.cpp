// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/message.hpp: what block-cyclic transitions send, in how few messages.
#include <reshard/plan/message.hpp>

#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/messages.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace {
using namespace reshard;

Plan<> square(Index extent, char const* from, char const* to) {
    DynamicMesh const grid = Mesh{2, 2};
    DynamicShape const shape = Shape{extent, extent};
    return plan(distribution(grid, shape, from), distribution(grid, shape, to));
}

Index most_messages_to_a_peer(std::vector<planning::Message> const& messages) {
    std::map<Index, Index> count;
    Index most = 0;
    for (planning::Message const& message : messages) most = std::max(most, ++count[message.peer]);
    return most;
}
Index most_messages(Plan<> const& plan) {
    Index most = 0;
    for (Index rank = 0; rank < plan.from().mesh().size(); ++rank) {
        planning::Exchange const exchange = plan.exchange(rank);
        for (auto const* list : {&exchange.sends, &exchange.receives, &exchange.kept}) {
            most = std::max(most, most_messages_to_a_peer(*list));
        }
    }
    return most;
}

/// What arrives and what is kept is the rank's part, each element once.
void check_covers(Plan<> const& plan, Index rank) {
    planning::Exchange const exchange = plan.exchange(rank);
    std::vector<bool> found(static_cast<std::size_t>(plan.to().shape().size()), false);
    Index count = 0;
    for (auto const* list : {&exchange.receives, &exchange.kept})
        for (planning::Message const& message : *list)
            for (Index position : test::positions(message, plan.to().shape())) {
                bool const twice = found[static_cast<std::size_t>(position)];
                REQUIRE_FALSE(twice);
                found[static_cast<std::size_t>(position)] = true;
                ++count;
            }
    REQUIRE(count == plan.to().local_shape(rank).size());
}

}  // namespace

TEST_SUITE("plan/message") {
    TEST_CASE("blocks that divide each other are one message per peer, whatever the extent") {
        CHECK(most_messages(square(4096, "S0:cyc64,S1:cyc64", "S0:cyc256,S1:cyc256")) == 1);
        CHECK(most_messages(square(4096, "S0:cyc8,S1:cyc8", "S0:cyc32,S1:cyc32")) == 1);
        CHECK(most_messages(square(1 << 20, "S0:cyc8,S1:cyc8", "S0:cyc32,S1:cyc32")) == 1);
        CHECK(most_messages(square(4096, "S0:cyc32,S1:cyc32", "S1:cyc8,S0:cyc8")) == 1);
        CHECK(most_messages(square(4096, "S0,S1", "S0:cyc8,S1:cyc8")) == 1);
        CHECK(most_messages(square(4096, "S0:cyc1,S1:cyc1", "S0:cyc1024,S1:cyc1024")) == 1);
    }

    TEST_CASE("ragged ends cost a message each") {
        CHECK(most_messages(square(4099, "S0:cyc64,S1:cyc64", "S0:cyc256,S1:cyc256")) <= 4);
        CHECK(most_messages(square(4000, "S0:cyc8,S1:cyc8", "S0:cyc32,S1:cyc32")) <= 4);
        CHECK(most_messages(square(4099, "S0,S1", "S0:cyc8,S1:cyc8")) <= 9);
    }

    TEST_CASE("blocks that have nothing in common cost what one common period has, not what the extent has") {
        Index const some = most_messages(square(100 * 60, "S0:cyc3,S1:cyc3", "S0:cyc5,S1:cyc5"));
        CHECK(some == most_messages(square(1000 * 60, "S0:cyc3,S1:cyc3", "S0:cyc5,S1:cyc5")));
        CHECK(some <= 16);
    }

    TEST_CASE("the elements of a message travel in ascending order along every dimension") {
        Plan<> const p = square(256, "S0:cyc4,S1:cyc2", "S0:cyc16,S1:cyc8");
        planning::Exchange const exchange = p.exchange(1);
        REQUIRE_FALSE(exchange.sends.empty());
        for (planning::Message const& message : exchange.sends) {
            CHECK(message.repeats.size() == 4);
            for (int dim = 0; dim < 2; ++dim) {
                auto const indices = test::indices(message, dim);
                CHECK(std::is_sorted(indices.begin(), indices.end()));
                CHECK(static_cast<Index>(indices.size()) == message.extent(dim));
            }
        }
    }

    TEST_CASE("a message has room for a few repeats; the others are listed") {
        // 2 x 2 x 2 ranks, three block-cyclic dimensions of two repeats each: six, where a message takes four.
        DynamicMesh const cube = Mesh{2, 2, 2};
        DynamicShape const shape = Shape{32, 32, 32};
        auto const p = plan(distribution(cube, shape, "S0:cyc1,S1:cyc1,S2:cyc1"),
                            distribution(cube, shape, "S0:cyc4,S1:cyc4,S2:cyc4"));
        for (Index rank = 0; rank < 8; ++rank) check_covers(p, rank);
        CHECK(most_messages(p) == 4);

        // A strided box of a tensor of eight dimensions has one dimension to spare, one of seven has two.
        DynamicShape const flat = Shape{32, 32, 1, 1, 1, 2, 1, 1};
        DynamicMesh const grid = Mesh{2, 2};
        auto const eight =
            plan(distribution(grid, flat, "S0:cyc2,S1:cyc2"), distribution(grid, flat, "S0:cyc8,S1:cyc8"));
        for (Index rank = 0; rank < 4; ++rank) {
            check_covers(eight, rank);
            for (planning::Message const& message : eight.exchange(rank).receives) CHECK(message.repeats.size() <= 1);
        }
        CHECK(most_messages(eight) == 2 * 4);
    }

    TEST_CASE("forms: two repeats per block-cyclic dimension, as long as there is room") {
        auto const levels = [](int rank, std::string const& cyclic) {
            auto const forms = detail::dim_forms(rank, static_cast<int>(cyclic.size()),
                                                 [&](int dim) { return cyclic[static_cast<std::size_t>(dim)] == 'c'; });
            std::string text;
            for (auto const& form : forms) text += static_cast<char>('0' + form.levels);
            return text;
        };
        CHECK(levels(2, "cc") == "22");
        CHECK(levels(2, "-c") == "02");
        CHECK(levels(3, "ccc") == "211");
        CHECK(levels(5, "ccccc") == "11110");
        CHECK(levels(8, "cc------") == "10000000");
        CHECK(levels(7, "c-c----") == "1010000");
    }

    TEST_CASE("a message of one box has as many elements as the box") {
        planning::Message const message{3, {Interval{2, 5}, Interval{0, 4}}};
        CHECK(message.elements() == 12);
        CHECK(message.extent(0) == 3);
        CHECK(planning::Message{0, {Interval{2, 5}}, {planning::BoxRepeat{0, 10, 4}}}.elements() == 12);
        CHECK(planning::Message{}.elements() == 1);
    }
}
