// SPDX-License-Identifier: Apache-2.0
// Tensors near the end of 64 bits, with copies: a count that does not fit is an error, one that fits is right. What
// overflows in between is seen by the build with -fsanitize=undefined.
#include <reshard/algebra/total_bound.hpp>
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/bound.hpp>
#include <reshard/plan/explain.hpp>
#include <reshard/plan/relabel.hpp>
#include <reshard/plan/relay.hpp>
#include <reshard/plan/simulate.hpp>

#include <string>

namespace {
using namespace reshard;

constexpr Index two_to(int exponent) { return Index{1} << exponent; }

DynamicShape vector_of(Index extent) { return DynamicShape(Indices{extent}); }
DynamicDistribution of(char const* text, Index extent) { return parse(text, vector_of(extent)); }
Plan<> plan_of(char const* from, char const* to, Index extent) { return plan(of(from, extent), of(to, extent)); }
/// One rank of each axis of 4 has everything.
DynamicDistribution uneven(char const* before, Index extent, char const* after) {
    std::string const n = std::to_string(extent);
    return parse(before + ("S0[0," + n + "," + n + "," + n + "," + n + "]") + after, vector_of(extent));
}

}  // namespace

TEST_SUITE("plan/large_counts") {
    TEST_CASE("2^20 ranks that need 2^44 elements each of two copies: refused, where it was a division by zero") {
        auto const across = plan_across(distribution(Mesh{2}, Shape{two_to(44)}, "R"),
                                        distribution(Mesh{1 << 20}.on(first_rank(2)), Shape{two_to(44)}, "R"));
        CHECK_THROWS_WITH_AS(
            static_cast<void>(across.cost(5)),
            "reshard::plan: what one rank sends, receives or folds is more elements than 64 bits count. "
            "Fix: plan a smaller tensor of the same placements and scale.",
            ShapeError);
        CHECK_THROWS_AS(static_cast<void>(across.exchange(0)), ShapeError);
        auto const smaller = plan_across(distribution(Mesh{2}, Shape{two_to(42)}, "R"),
                                         distribution(Mesh{1 << 20}.on(first_rank(2)), Shape{two_to(42)}, "R"));
        CHECK(smaller.cost(5).received == two_to(42));
        CHECK(smaller.cost(1).sent == two_to(61));
    }

    TEST_CASE("what is refused in the end overflows nothing on the way") {
        auto const copies = plan_across(of("(10):(R)", two_to(62)), of("(15):(R)", two_to(62)));
        CHECK_THROWS_AS(static_cast<void>(copies.cost(0)), ShapeError);  // what is at home with ten ranks is more, too
        std::string const n = std::to_string(two_to(61));
        std::string const ends = "," + n + "," + n + "," + n + "," + n + "," + n + "," + n + "," + n;
        auto const two_have_it = of(("(8):(S0[0," + std::to_string(two_to(60)) + ends + "])").c_str(), two_to(61));
        Topology const nodes({{"node", 2, 1e-6, 1e9, 0}, {"cluster", 0, 1e-6, 1e9, 0}});
        // The first two ranks send more than 2^63 bytes, of which they receive few.
        CHECK_THROWS_AS(static_cast<void>(simulate(plan(two_have_it, of("(8):(R)", two_to(61))), nodes, DType::u8,
                                                   {.classes = false})),
                        ShapeError);
    }

    TEST_CASE("copies of uneven pieces, on one mesh and served by their own nodes") {
        Index const extent = two_to(62);
        Plan<> const direct = plan(uneven("(2,4):(R,", extent, ")"), of("(2,4):(S0,R)", extent));
        CHECK_THROWS_AS(static_cast<void>(direct.cost(5)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(direct.cost(0)), ShapeError);
        Plan<> const near = plan(uneven("(2,4,2):(R,", extent, ",R)"), of("(2,4,2):(S0,R,R)", extent)).relayed(2);
        CHECK_THROWS_AS(static_cast<void>(near.cost(0)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(near.cost(15)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(explain(direct, 5, dtype_of<float>)), ShapeError);
    }

    TEST_CASE("the end of a long line: everything that is needed is sent once") {
        Plan<> const p = plan_of("(2,2):(R,S0)", "(2,2):(S0,R)", 3 * two_to(61));
        Index sent = 0;
        Index received = 0;
        for (Index rank = 0; rank < 4; ++rank) {
            Cost const cost = p.cost(rank);
            CHECK(cost.received == receive_bound(p.from(), p.to(), rank).elements);
            sent += cost.sent;  // 3 * 2^61 in all
            received += cost.received;
        }
        CHECK(sent == received);
        // As long as 64 bits count: the last copy's share ends there.
        DynamicShape const column(Indices{INT64_MAX, 1});
        std::string const n = std::to_string(INT64_MAX);
        auto const check = [&](Plan<> const& plan) {
            Index balance = 0;
            Index most = 0;
            for (Index rank = 0; rank < 6; ++rank) {
                planning::Exchange const exchange = plan.exchange(rank);
                for (planning::Message const& message : exchange.sends) balance += message.elements();
                for (planning::Message const& message : exchange.receives) balance -= message.elements();
                for (planning::Message const& message : exchange.receives)
                    most = detail::larger(most, message.elements());
            }
            CHECK(balance == 0);
            CHECK(most >= INT64_MAX / 2);
        };
        check(plan_across(parse("(2):(R)", column), parse("(1)+5:(R)", column)));
        check(plan(parse("(2,2):(R,S0[0," + n + "," + n + "])", column),
                   parse("(2,2):(S0[0,0," + n + "],S1[0,0,1])", column)));
    }

    TEST_CASE("one rank that folds all: its addends are counted, or refused") {
        Index const extent = two_to(60);
        Plan<> const fits = plan(of("(4):(P+)", extent), uneven("(4):(", extent, ")"));
        CHECK(fits.cost(0).received == 3 * extent);
        CHECK(fits.cost(0).workspace == 4 * extent / 64);  // in 64 chunks
        CHECK(receive_bound(fits.from(), fits.to(), 0) == Bound{true, 3 * extent});
        Plan<> const more = plan(of("(4):(P+)", 4 * extent), uneven("(4):(", 4 * extent, ")"));
        CHECK_THROWS_AS(static_cast<void>(more.cost(0)), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(receive_bound(more.from(), more.to(), 0)), ShapeError);
        CHECK(more.cost(1).received == 0);
    }

    TEST_CASE("bounds of all ranks together") {
        auto const owed = of("(4):(P+)", two_to(61));
        auto const whole = of("(4):(R)", two_to(61));
        CHECK(receive_bound(owed, whole, 1) == Bound{true, 3 * two_to(60), true});
        CHECK_THROWS_AS(static_cast<void>(total_bound(owed, whole)), ShapeError);
        auto const rows = of("(4):(S0)", two_to(62));
        CHECK(receive_bound(rows, of("(4):(R)", two_to(62)), 1).elements == 3 * two_to(60));
        CHECK_THROWS_AS(static_cast<void>(total_bound(rows, of("(4):(R)", two_to(62)))), ShapeError);
        CHECK_THROWS_AS(static_cast<void>(total_bound(of("(8):(P+)", two_to(61)), of("(1):(R)", two_to(61)), true)),
                        ShapeError);
        // What n ranks hold together is more than 64 bits count, or n times the total is: the total is not.
        CHECK(total_bound(of("(2):(P+)", two_to(62)), of("(2):(S0)", two_to(62))).total == two_to(62));
        CHECK(total_bound(of("(4096):(P+)", two_to(39)), of("(4096):(R)", two_to(39))).total == 4095 * two_to(40));
    }

    TEST_CASE("relabelling weighs all ranks together") {
        auto const rows = of("(4):(S0)", two_to(60));
        auto const whole = of("(4):(R)", two_to(60));
        CHECK(relabel(rows, rows, DType::u8).bytes_after == 0);
        CHECK_THROWS_AS(static_cast<void>(relabel(rows, whole, DType::f32)), ShapeError);
        CHECK_THROWS_AS(
            static_cast<void>(
                relabel({{rows, rows, DType::f32}, {rows, rows, DType::f32}, {rows, rows, DType::f32}}, {0, 1, 2, 3})),
            ShapeError);
    }
}
