// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/relabel.hpp.
#include <reshard/plan/plan.hpp>
#include <reshard/plan/relabel.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>  // next_permutation
#include <vector>

namespace {
using namespace reshard;

DynamicMesh on(std::initializer_list<Index> ranks) {
    return DynamicMesh(Indices{static_cast<Index>(ranks.size())}, RankList{0, IndexList(ranks)});
}

/// Elements that all ranks receive when the plan is carried out.
Index received(DynamicDistribution const& from, DynamicDistribution const& to) {
    Plan<> const move = plan_across(from, to);
    Index sum = 0;
    for (Index rank : oracle::ranks(to)) sum += move.cost(rank).received;
    return sum;
}

}  // namespace

TEST_SUITE("plan/relabel") {
    TEST_CASE("owners in a cycle of four: nothing has to move, where pairs of owners can mend only half") {
        DynamicShape const shape(Indices{100, 100});
        auto const from = distribution(DynamicMesh(Indices{4}), shape, "S0");
        auto const to = distribution(on({1, 2, 3, 0}), shape, "S0");
        Relabelling const result = relabel(from, to, DType::f64);
        CHECK(result.bytes_before == 8 * 10000);
        CHECK(result.bytes_after == 0);
        CHECK(result.saved() == 8 * 10000);
        CHECK(result.ranks == std::vector<Index>{0, 1, 2, 3});
        CHECK(received(from, on_mesh(to, result.mesh)) == 0);
    }

    TEST_CASE("the axes keep their names, whether anything is saved or not") {
        DynamicShape const shape(Indices{64});
        auto const from = parse("(dp=4)[1,2,3,0]:(S0)", shape);
        auto const to = parse("(dp=4):(S0)", shape);
        CHECK(to_string(relabel(from, to, DType::f32).mesh) == "(dp=4)[1,2,3,0]");
        CHECK(to_string(relabel(to, to, DType::f32).mesh) == "(dp=4)");
        CHECK(on_mesh(to, relabel(from, to, DType::f32).mesh).mesh().axis("dp") == 0);
    }

    TEST_CASE("owners in a cycle of three: 7500 elements become none") {
        DynamicShape const shape(Indices{100, 100});
        auto const from = distribution(DynamicMesh(Indices{4}), shape, "S0");
        auto const to = distribution(on({1, 2, 0, 3}), shape, "S0");
        Relabelling const result = relabel(from, to, DType::u8);
        CHECK(result.bytes_before == 7500);
        CHECK(result.bytes_after == 0);
    }

    TEST_CASE("any permutation of owners costs nothing") {
        for (std::uint64_t seed : test::seeds(100)) {
            CAPTURE(seed);
            test::Random random(seed);
            std::vector<Index> ranks(24);
            for (Index i = 0; i < 24; ++i) ranks[static_cast<std::size_t>(i)] = i;
            std::shuffle(ranks.begin(), ranks.end(), random.engine());
            DynamicShape const shape(Indices{random.between(24, 60), random.between(24, 60)});
            auto const from = distribution(DynamicMesh(Indices{4, 6}), shape, "S0,S1");
            auto const to = on_mesh(from, DynamicMesh(Indices{4, 6}, RankList{0, IndexList(ranks.data(), 24)}));
            CHECK(relabel(from, to, DType::bf16).bytes_after == 0);
        }
    }

    TEST_CASE("no order of up to seven ranks moves less, whatever the placements") {
        for (std::uint64_t seed : test::seeds(200)) {
            test::Limits limits;
            limits.max_ranks = 7;
            limits.partial = false;
            limits.max_dims = 3;
            limits.max_elements = 2000;
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(random.mesh(), shape);
            auto const to = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            Relabelling const result = relabel(from, to, DType::i16);
            REQUIRE(result.bytes_before == 2 * received(from, to));
            REQUIRE(result.bytes_after == 2 * received(from, on_mesh(to, result.mesh)));
            std::vector<Index> ranks = oracle::ranks(to);
            std::sort(ranks.begin(), ranks.end());
            auto const elements = [](DynamicDistribution const& d, Index rank) {
                return oracle::coordinates(d, rank).empty() ? oracle::Elements{} : oracle::elements(d, rank);
            };
            std::vector<std::vector<Index>> missing(ranks.size());  // per place and rank
            std::vector<Index> const places = oracle::ranks(to);
            for (std::size_t place = 0; place != places.size(); ++place) {
                oracle::Elements const wanted = elements(to, places[place]);
                for (Index rank : ranks) {
                    oracle::Elements const held = elements(from, rank);
                    Index count = 0;
                    for (Index element : wanted) count += std::binary_search(held.begin(), held.end(), element) ? 0 : 1;
                    missing[place].push_back(count);
                }
            }
            std::vector<std::size_t> order(ranks.size());
            for (std::size_t i = 0; i != order.size(); ++i) order[i] = i;
            Index best = INT64_MAX;
            do {
                Index sum = 0;
                for (std::size_t place = 0; place != order.size(); ++place) sum += missing[place][order[place]];
                best = std::min(best, sum);
            } while (std::next_permutation(order.begin(), order.end()));
            REQUIRE(result.bytes_after == 2 * best);
        }
    }

    TEST_CASE("nothing to gain: everybody stays") {
        DynamicShape const shape(Indices{64, 64});
        auto const from = distribution(DynamicMesh(Indices{4}), shape, "S0");
        auto const to = distribution(on({2, 0, 3, 1}), shape, "S1");
        Relabelling const result = relabel(from, to, DType::u8);
        CHECK(result.saved() == 0);
        CHECK(result.mesh == to.mesh());
    }

    TEST_CASE("four of eight ranks: those who hold what is kept") {
        DynamicShape const shape(Indices{64, 64});
        auto const from = distribution(DynamicMesh(Indices{8}), shape, "S0");
        auto const to = distribution(DynamicMesh(Indices{4}), shape, "S0");
        CHECK(relabel(from, to, DType::u8).bytes_before == 64 * 64 - 8 * 64);
        CHECK(relabel(from, to, DType::u8).bytes_after == 64 * 64 - 2 * 8 * 64);
        Relabelling const result = relabel({{from, to, DType::u8}}, {0, 1, 2, 3, 4, 5, 6, 7});
        CHECK(result.bytes_after == 64 * 64 - 4 * 8 * 64);  // each of the four holds half of what it needs
        CHECK(received(from, on_mesh(to, result.mesh)) == result.bytes_after);
    }

    TEST_CASE("several tensors share one order: the heavier one decides") {
        DynamicShape const shape(Indices{64});
        auto const from = distribution(DynamicMesh(Indices{2}), shape, "S0");
        auto const light = distribution(on({0, 1}), shape, "S0");
        auto const back =
            DynamicDistribution(DynamicMesh(Indices{2}, RankList{0, {1, 0}}), shape, Placements{Placement::shard(0)});
        std::vector<Relabelled> const tensors{{from, light, DType::u8}, {back, light, DType::f64}};
        Relabelling const result = relabel(tensors, {0, 1});
        CHECK(result.bytes_before == 8 * 64);
        CHECK(result.bytes_after == 64);
        CHECK(result.ranks == std::vector<Index>{1, 0});
    }

    TEST_CASE("a ring: the rank at place i of the list gets what place i holds, and axes cut in the same order") {
        DynamicMesh const mesh(Indices{2, 2});
        auto const held = parse("(2,2):(S0,S0)@1,0", Shape{9, 4});
        auto const turned = on_mesh(held, mesh.on(listed_ranks({1, 2, 3, 0})));
        for (Index rank = 0; rank < 4; ++rank) CHECK(turned.box((rank + 1) % 4) == held.box(rank));
        CHECK(DynamicDistribution(mesh, held.shape(), held.placements(), held.order()) == held);
        CHECK(!(DynamicDistribution(mesh, held.shape(), held.placements()) == held));
    }

    TEST_CASE("what has no meaning is refused with a typed error") {
        DynamicShape const shape(Indices{8, 8});
        DynamicMesh const mesh(Indices{4});
        auto const rows = distribution(mesh, shape, "S0");
        auto const owed = distribution(mesh, shape, "P+");
        auto const other = distribution(mesh, DynamicShape(Indices{8}), "S0");
        auto const elsewhere = distribution(DynamicMesh(Indices{4}, first_rank(4)), shape, "S0");
        CHECK_THROWS_AS(static_cast<void>(relabel(rows, other, DType::u8)), MismatchError);
        CHECK_THROWS_AS(static_cast<void>(relabel(rows, owed, DType::u8)), TransitionError);
        CHECK_THROWS_AS(static_cast<void>(relabel(owed, rows, DType::u8)), TransitionError);
        CHECK_THROWS_AS(static_cast<void>(relabel(rows, rows, DType::f4)), DTypeError);
        CHECK_THROWS_AS(static_cast<void>(relabel({}, {0, 1, 2, 3})), MismatchError);
        CHECK_THROWS_AS(static_cast<void>(relabel({{rows, rows, DType::u8}}, {0, 1, 2})), MeshError);
        CHECK_THROWS_AS(static_cast<void>(relabel({{rows, rows, DType::u8}}, {0, 1, 2, 2})), MeshError);
        CHECK_THROWS_AS(static_cast<void>(relabel({{rows, rows, DType::u8}}, {0, 1, 2, -1})), MeshError);
        CHECK_THROWS_AS(
            static_cast<void>(relabel(rows, distribution(DynamicMesh(Indices{4097}), shape, "S0"), DType::u8)),
            MeshError);
        CHECK_THROWS_AS(
            static_cast<void>(relabel({{rows, rows, DType::u8}, {rows, elsewhere, DType::u8}}, {0, 1, 2, 3})),
            MismatchError);
        CHECK_THROWS_AS(static_cast<void>(on_mesh(rows, DynamicMesh(Indices{2, 2}))), MeshError);
    }
}
