// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/algebra/bound.hpp: the table of its header, row by row, as constants.
#include <reshard/algebra/bound.hpp>
#include <reshard/algebra/total_bound.hpp>

#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace {
using namespace reshard;

using R = Replicate;
using S0 = Shard<0>;
using S1 = Shard<1>;
using Sum = Partial<>;
using Max = Partial<Reduce::max>;
using Product = Partial<Reduce::product>;

constexpr Index T = 64 * 64;

template <Index N, class P>
constexpr DynamicDistribution on = distribution<P>(Mesh<N>{}, Shape<64, 64>{});
/// The whole tensor on the last of N ranks.
template <Index N>
constexpr DynamicDistribution root = distribution<R>(Mesh<1>{first_rank(N - 1)}, Shape<64, 64>{});

/// The most any rank must receive, by receive_bound(); -1 when one is not known.
constexpr Index most(DynamicDistribution const& from, DynamicDistribution const& to, bool across = false) {
    Index result = 0;
    for (Index rank = 0; rank <= detail::larger(from.mesh().last_rank(), to.mesh().last_rank()); ++rank) {
        Bound const bound = receive_bound(from, to, rank, across);
        if (!bound.known) return -1;
        result = detail::larger(result, bound.elements);
    }
    return result;
}

template <Index N, class From, class To>
constexpr bool row(Index received, Index sent, Index total) {
    return total_bound(on<N, From>, on<N, To>) == TotalBound{true, received, sent, total} &&
           most(on<N, From>, on<N, To>) == received;
}
constexpr bool row_across(DynamicDistribution const& from, DynamicDistribution const& to, Index received, Index sent,
                          Index total) {
    return total_bound(from, to, true) == TotalBound{true, received, sent, total} && most(from, to, true) == received;
}

template <Index N>
constexpr bool table() {
    // Nothing moves.
    static_assert(row<N, R, R>(0, 0, 0) && row<N, S0, S0>(0, 0, 0) && row<N, Sum, Sum>(0, 0, 0));
    static_assert(row<N, R, S0>(0, 0, 0) && row<N, R, S1>(0, 0, 0));
    static_assert(row<N, R, Sum>(0, 0, 0) && row<N, R, Max>(0, 0, 0) && row<N, R, Product>(0, 0, 0));
    static_assert(row<N, S0, Sum>(0, 0, 0) && row<N, S1, Max>(0, 0, 0));
    // Sets of elements.
    static_assert(row<N, S0, R>((N - 1) * T / N, T / N, (N - 1) * T));
    static_assert(row<N, S1, R>((N - 1) * T / N, T / N, (N - 1) * T));
    static_assert(row<N, S0, S1>((N - 1) * T / (N * N), (N - 1) * T / (N * N), (N - 1) * T / N));
    static_assert(row<N, S1, S0>((N - 1) * T / (N * N), (N - 1) * T / (N * N), (N - 1) * T / N));
    // Folds.
    static_assert(row<N, Sum, S0>((N - 1) * T / N, (N - 1) * T / N, (N - 1) * T));
    static_assert(row<N, Max, S1>((N - 1) * T / N, (N - 1) * T / N, (N - 1) * T));
    static_assert(row<N, Sum, R>(2 * (N - 1) * T / N, 2 * (N - 1) * T / N, 2 * (N - 1) * T));
    static_assert(row<N, Sum, Max>((N - 1) * T / N, (N - 1) * T / N, (N - 1) * T));
    static_assert(row<N, Product, Sum>((N - 1) * T / N, (N - 1) * T / N, (N - 1) * T));
    // One rank on one side.
    static_assert(row_across(on<N, S0>, root<N>, (N - 1) * T / N, T / N, (N - 1) * T / N));
    static_assert(row_across(root<N>, on<N, S0>, T / N, (N - 1) * T / N, (N - 1) * T / N));
    static_assert(row_across(root<N>, on<N, R>, T, T, (N - 1) * T));
    static_assert(row_across(root<N>, on<N, Sum>, 0, 0, 0));
    static_assert(total_bound(on<N, Sum>, root<N>, true) == TotalBound{true, T, T, (N - 1) * T});
    static_assert(receive_bound(on<N, Sum>, root<N>, N - 1, true) == Bound{true, T});
    return true;
}
static_assert(table<2>() && table<4>() && table<8>());

// The figures of 8 ranks, in 64ths of the tensor.
static_assert(total_bound(on<8, S0>, on<8, R>).received * 64 == 56 * T);
static_assert(total_bound(on<8, S0>, on<8, S1>).received * 64 == 7 * T);
static_assert(total_bound(on<8, Sum>, on<8, S0>).received * 64 == 56 * T);
static_assert(total_bound(on<8, Sum>, on<8, R>).received * 64 == 112 * T);

// One rank is a group too: nothing to exchange with.
static_assert(row<1, Sum, R>(0, 0, 0) && row<1, S0, R>(0, 0, 0) && row<1, Sum, S0>(0, 0, 0));
static_assert(total_bound(on<1, Sum>, root<1>, true) == TotalBound{true, 0, 0, 0});

/// Elements of a piece that somebody lacks leave one of its copies at least once: the most, over all pieces.
Index busiest_sender(DynamicDistribution const& from, DynamicDistribution const& to) {
    std::map<oracle::Elements, Index> copies;
    for (Index rank : oracle::ranks(from)) ++copies[oracle::elements(from, rank)];
    Index most = 0;
    for (auto const& [piece, count] : copies) {
        std::set<Index> lacking;
        for (Index rank : oracle::ranks(to)) {
            if (oracle::elements(from, rank) == piece) continue;
            for (Index i : oracle::elements(to, rank))
                if (std::binary_search(piece.begin(), piece.end(), i)) lacking.insert(i);
        }
        most = std::max(most, detail::ceil_div(static_cast<Index>(lacking.size()), count));
    }
    return most;
}

DynamicDistribution of(char const* text, DynamicShape const& shape) { return parse(text, shape); }

}  // namespace

TEST_SUITE("algebra/bound") {
    TEST_CASE("uneven all-gather: each rank receives all but its own shard") {
        DynamicShape const shape = Shape{5, 3};
        auto const from = of("(4):(S0)", shape);  // 2 2 1 0 rows
        auto const to = of("(4):(R)", shape);
        for (Index rank = 0; rank < 4; ++rank) {
            CHECK(receive_bound(from, to, rank) == Bound{true, 15 - from.local_shape(rank).size()});
        }
        CHECK(receive_bound(from, to, 3).elements == 15);
        CHECK(total_bound(from, to) == TotalBound{true, 15, 6, 9 + 9 + 12 + 15});
    }

    TEST_CASE("uneven reduce-scatter: each rank receives the other addends of its shard") {
        DynamicShape const shape = Shape{5, 3};
        auto const from = of("(4):(P+)", shape);
        auto const to = of("(4):(S0)", shape);
        Index const wanted[] = {3 * 6, 3 * 6, 3 * 3, 0};
        for (Index rank = 0; rank < 4; ++rank) CHECK(receive_bound(from, to, rank) == Bound{true, wanted[rank]});
        CHECK(total_bound(from, to).total == 3 * 15);
    }

    TEST_CASE("uneven all-to-all: each rank receives what its new part shares with the parts of others") {
        DynamicShape const shape = Shape{5, 7};
        auto const from = of("(3):(S0)", shape);  // rows 2 2 1
        auto const to = of("(3):(S1)", shape);    // columns 3 3 1
        Index const wanted[] = {3 * 3, 3 * 3, 4 * 1};
        for (Index rank = 0; rank < 3; ++rank) CHECK(receive_bound(from, to, rank) == Bound{true, wanted[rank]});
        CHECK(total_bound(from, to) == TotalBound{true, 9, 8, 22});
    }

    TEST_CASE("a dimension cut again: each rank receives its new interval without the overlap with the old") {
        DynamicShape const ten = Shape{10};
        auto const chunk = of("(4):(S0)", ten);         // 0 3 6 9 10
        auto const balanced = of("(4):(S0:bal)", ten);  // 0 3 6 8 10
        Index const wanted[] = {0, 0, 0, 1};
        for (Index rank = 0; rank < 4; ++rank) CHECK(receive_bound(chunk, balanced, rank) == Bound{true, wanted[rank]});

        DynamicShape const twelve = Shape{12};
        auto const four = of("(4):(S0)", twelve);  // 0 3 6 9 12
        auto const six = of("(6):(S0)", twelve);   // 0 2 4 6 8 10 12
        Index const resized[] = {0, 1, 2, 2, 2, 2};
        for (Index rank = 0; rank < 6; ++rank)
            CHECK(receive_bound(four, six, rank, true) == Bound{true, resized[rank]});
        CHECK(total_bound(four, six, true).total == 9);
    }

    TEST_CASE("copies on the source side share what leaves them") {
        DynamicShape const shape = Shape{8, 8};
        auto const rows = of("(2,4):(R,S0)", shape);
        auto const columns = of("(2,4):(S1,S0)", shape);
        CHECK(total_bound(rows, columns) == TotalBound{true, 0, 0, 0});  // a view
        auto const whole = of("(2,4):(R,R)", shape);
        // Each of the 4 pieces of 16 elements lies on 2 ranks; everybody else needs it.
        CHECK(total_bound(rows, whole) == TotalBound{true, 48, 8, 8 * 48});
    }

    TEST_CASE("the axes that fold form groups; the others divide the tensor beforehand") {
        DynamicShape const shape = Shape{8, 8};
        CHECK(receive_bound(of("(2,4):(P+,S0)", shape), of("(2,4):(R,S0)", shape), 3) == Bound{true, 2 * 16 / 2, true});
        CHECK(receive_bound(of("(2,4):(P+,P+)", shape), of("(2,4):(R,R)", shape), 3) ==
              Bound{true, 2 * 7 * 64 / 8, true});
        CHECK(receive_bound(of("(2,4):(S0,P+)", shape), of("(2,4):(S0,S0)", shape), 3) == Bound{true, 3 * 8});
        CHECK(total_bound(of("(2,4):(S0,P+)", shape), of("(2,4):(S0,S0)", shape)).total == 3 * 64);
        DynamicShape const odd = Shape{7};  // groups of 4 and 3 elements, which n does not divide
        CHECK(total_bound(of("(2,5):(S0,P+)", odd), of("(2,5):(S0,S0)", odd)).total == 4 * 7);
    }

    TEST_CASE("no bound is claimed where folds and moves mix, nor for the wrong cutting order") {
        DynamicShape const shape = Shape{8, 8};
        struct Case {
            char const* from;
            char const* to;
        };
        for (Case const& c : {Case{"(2,2):(P+,S0)", "(2,2):(S0,R)"}, Case{"(2,2):(P+,P+)", "(2,2):(R,S0)"},
                              Case{"(2,2):(P+,S0)", "(2,2):(S0,S0)"}, Case{"(2,2):(P+,R)", "(2,2):(R,P+)"},
                              Case{"(2,2):(S0,S0)", "(2,2):(P+,S0)"}, Case{"(4,4):(S0,P+)", "(4,4):(R,P+)"},
                              Case{"(2,2):(P+,P+)", "(2,2):(R,P+)"}, Case{"(2,2):(P+,S0)", "(2,2):(Pavg,R)"}}) {
            CAPTURE(c.from);
            CAPTURE(c.to);
            CHECK(receive_bound(of(c.from, shape), of(c.to, shape), 1) == Bound{false, 0});
            CHECK(total_bound(of(c.from, shape), of(c.to, shape)) == TotalBound{});
        }
        // Behind the cut that stays, the same fold has a bound.
        CHECK(receive_bound(of("(2,2):(P+,S0)", shape), of("(2,2):(S0,S0)@1,0", shape), 1).known);
    }

    TEST_CASE("between meshes a partial source has a bound for ranks that hold nothing, none for the others") {
        DynamicShape const shape = Shape{6};
        auto const from = of("(2):(P+)", shape);
        auto const to = of("(3)+1:(S0)", shape);
        CHECK(receive_bound(from, to, 0, true) == Bound{false, 0});
        CHECK(receive_bound(from, to, 1, true) == Bound{false, 0});
        CHECK(receive_bound(from, to, 2, true) == Bound{true, 2});
        CHECK(receive_bound(from, to, 9, true) == Bound{true, 0});
        CHECK_FALSE(receive_bound(of("(2):(S0)", shape), of("(3):(P+)", shape), 0, true).known);
        // What the one rank has it may owe alone, but not hold for others as well.
        auto const one = of("(1):(R)", shape);
        CHECK(receive_bound(one, of("(2,1):(P+,S0)", shape), 1, true) == Bound{true, 0});
        CHECK_FALSE(receive_bound(one, of("(2,2):(P+,S0)", shape), 1, true).known);
        CHECK_FALSE(receive_bound(one, of("(2,2):(P+,R)", shape), 1, true).known);
        CHECK_FALSE(total_bound(from, to, true).known);
        CHECK_FALSE(total_bound(of("(2):(S0)", shape), of("(3):(P+)", shape), true).known);
    }

    TEST_CASE("a rank outside the mesh receives nothing; empty tensors move nothing") {
        auto const from = of("(2):(S0)", DynamicShape(Shape{4}));
        auto const to = of("(2):(R)", DynamicShape(Shape{4}));
        CHECK(receive_bound(from, to, 7) == Bound{true, 0});
        auto const none = of("(4):(S0)", DynamicShape(Shape{0, 3}));
        auto const all = of("(4):(R)", DynamicShape(Shape{0, 3}));
        CHECK(total_bound(none, all) == TotalBound{true, 0, 0, 0});
        CHECK(receive_bound(none, all, 2) == Bound{true, 0});
    }

    TEST_CASE("random sets of elements: the bound is what a rank needs and does not hold") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Limits limits;
            limits.partial = false;
            limits.max_elements = 400;
            limits.max_ranks = 12;
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            Index total = 0;
            Index received = 0;
            for (Index rank : oracle::ranks(from)) {
                Index const missing = oracle::missing(from, to, rank);
                REQUIRE(receive_bound(from, to, rank) == Bound{true, missing});
                total += missing;
                received = std::max(received, missing);
            }
            TotalBound const bound = total_bound(from, to);
            REQUIRE(bound.total == total);
            REQUIRE(bound.received == received);
            REQUIRE(bound.sent == busiest_sender(from, to));
            for (Index rank : oracle::ranks(away)) {
                REQUIRE(receive_bound(from, away, rank, true) == Bound{true, oracle::missing(from, away, rank)});
            }
        }
    }
}
