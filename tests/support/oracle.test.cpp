// SPDX-License-Identifier: Apache-2.0
#include "support/oracle.hpp"

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;

namespace {

template <class T>
void check_round_trip(std::vector<Reduce> const& ops, int cases) {
    test::Limits limits;
    limits.max_elements = 500;
    limits.ops = ops;
    for (std::uint64_t seed : test::seeds(cases)) {
        test::Random random(seed, limits);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        std::vector<T> const global = random.values<T>(d.shape().size());
        oracle::Locals<T> const locals = oracle::scatter(global, d, random.engine());
        CHECK(oracle::gather(locals, d) == global);
    }
}

}  // namespace

TEST_CASE("scattered local arrays mean the tensor they were made from, for every op and kind of number") {
    std::vector<Reduce> const bits{Reduce::sum,  Reduce::min, Reduce::max, Reduce::product,
                                   Reduce::band, Reduce::bor, Reduce::bxor};
    std::vector<Reduce> const arithmetic{Reduce::sum, Reduce::avg, Reduce::min, Reduce::max, Reduce::product};
    check_round_trip<std::int32_t>(bits, 150);
    check_round_trip<std::uint8_t>(bits, 150);
    check_round_trip<std::int8_t>(bits, 150);
    check_round_trip<std::int64_t>(bits, 150);
    check_round_trip<double>(arithmetic, 100);
    check_round_trip<float>(arithmetic, 100);
    check_round_trip<Float16>(arithmetic, 100);
    check_round_trip<BFloat16>(arithmetic, 100);
}

TEST_CASE("addends of several ranks are not the value itself") {
    std::mt19937_64 rng(7);
    for (Reduce op : {Reduce::sum, Reduce::min, Reduce::max, Reduce::band, Reduce::bor, Reduce::bxor}) {
        CAPTURE(name(op));
        int different = 0;
        for (int i = 0; i < 50; ++i) {
            auto const addends = oracle::random_addends<std::int32_t>(op, 37, 4, rng);
            CHECK(oracle::fold(op, addends) == 37);
            for (std::int32_t addend : addends) different += addend != 37 ? 1 : 0;
        }
        CHECK(different > test::of_seeds(50));
    }
}

TEST_CASE("the definitions cut as the documents say") {
    oracle::Elements const five{0, 1, 2, 3, 4};
    using Pieces = std::vector<oracle::Elements>;
    CHECK(oracle::cut(five, {}, 4) == Pieces{{0, 1}, {2, 3}, {4}, {}});
    CHECK(oracle::cut(five, {SplitKind::balanced, 0, {}}, 4) == Pieces{{0, 1}, {2}, {3}, {4}});
    CHECK(oracle::cut(five, {SplitKind::boundaries, 0, {0, 0, 4, 5}}, 3) == Pieces{{}, {0, 1, 2, 3}, {4}});
    CHECK(oracle::cut(five, {SplitKind::cyclic, 2, {}}, 2) == Pieces{{0, 1, 4}, {2, 3}});
    CHECK(oracle::cut({}, {}, 2) == Pieces{{}, {}});
}

TEST_CASE("gather notices a wrong size, a differing replica and an element nobody holds") {
    std::mt19937_64 rng(1);
    auto const d = parse("(2,2):(R,S0)", Shape{4});
    std::vector<int> const global{1, 2, 3, 4};
    auto locals = oracle::scatter(global, d, rng);
    CHECK(locals == oracle::Locals<int>{{1, 2}, {3, 4}, {1, 2}, {3, 4}});

    auto shorter = locals;
    shorter[3].pop_back();
    CHECK_THROWS_WITH_AS(static_cast<void>(oracle::gather(shorter, d)), "oracle: rank 3 has 1 elements, not 2",
                         std::runtime_error);
    auto differing = locals;
    differing[2][1] = 9;
    CHECK_THROWS_WITH_AS(static_cast<void>(oracle::gather(differing, d)),
                         "oracle: ranks 0 and 2 hold different copies of element 1", std::runtime_error);
}

TEST_CASE("missing counts what a rank needs and does not hold, other meshes included") {
    Shape const shape{8, 6};
    auto const rows = parse("(4):(S0)", shape);
    auto const columns = parse("(4):(S1)", shape);  // 2,2,2,0
    for (Index rank = 0; rank < 3; ++rank) CHECK(oracle::missing(rows, columns, rank) == 2 * 8 - 2 * 2);
    CHECK(oracle::missing(rows, columns, 3) == 0);
    CHECK(oracle::missing(rows, rows, 1) == 0);
    CHECK(oracle::missing(rows, parse("(4):(R)", shape), 1) == 48 - 12);
    auto const elsewhere = parse("(2)+3:(S0)", shape);
    CHECK(oracle::missing(rows, elsewhere, 0) == 0);
    CHECK(oracle::missing(rows, elsewhere, 3) == 24);
    CHECK(oracle::missing(rows, elsewhere, 4) == 24);
}
