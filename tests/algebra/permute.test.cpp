// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/algebra/permute.hpp.
#include <reshard/algebra/permute.hpp>
#include <reshard/algebra/transition.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {
using namespace reshard;

constexpr auto rows = distribution<Replicate, Shard<0>>(Mesh<2, 4>{}, Shape<9, 6>{});
constexpr auto columns = permute<1, 0>(rows);
static_assert(
    std::same_as<decltype(columns), Distribution<Mesh<2, 4>, Shape<6, 9>, AxisOrder<>, Replicate, Shard<1>> const>);
static_assert(permute<1, 0>(columns) == rows && columns.box(1).begin(1) == 3 && columns.box(1).extent(0) == 6);
static_assert(permute(permute(rows, {1, 0}), {1, 0}) == rows);
static_assert(is_local<decltype(permute<1, 0>(distribution<Replicate>(Mesh<2>{}, Shape<4, 6>{}))),
                       decltype(permute<1, 0>(distribution<Shard<1>>(Mesh<2>{}, Shape<4, 6>{})))>);

Indices random_order(test::Random& random, int rank) {
    Indices order;
    for (int dim = 0; dim < rank; ++dim) order.push_back(dim);
    std::shuffle(order.begin(), order.end(), random.engine());
    return order;
}
}  // namespace

TEST_SUITE("algebra/permute") {
    TEST_CASE("law.inverse and law.boxes: random distributions") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Random random(seed);
            auto const d = random.distribution();
            int const rank = d.shape().rank();
            Indices const order = random_order(random, rank);
            INFO(test::reproduction(seed, d));
            CAPTURE(to_string(order));
            auto const permuted = permute(d, order);
            REQUIRE(permute(permuted, inverse_permutation(order)) == d);
            REQUIRE(inverse_permutation(inverse_permutation(order)) == order);
            for (Index ordinal = 0; ordinal < d.mesh().size(); ++ordinal) {
                Index const rank_number = d.mesh().rank_at(ordinal);
                REQUIRE(permuted.local_shape(rank_number) == permute(d.local_shape(rank_number), order));
                auto const coordinates = d.mesh().coordinates(rank_number);
                for (int dim = 0; dim < rank; ++dim) {
                    auto const a = permuted.index_set(coordinates, dim);
                    auto const b = d.index_set(coordinates, static_cast<int>(order[dim]));
                    REQUIRE(a.segments() == b.segments());
                    for (Index i = 0; i < a.segments(); ++i) REQUIRE(a.segment(i) == b.segment(i));
                }
            }
            Indices at;
            bool empty = false;
            for (int dim = 0; dim < rank; ++dim) {
                empty = empty || d.shape().extent(dim) == 0;
                at.push_back(empty ? 0 : random.between(0, d.shape().extent(dim) - 1));
            }
            if (!empty) REQUIRE(permuted.holders(detail::permuted(at, order)) == d.holders(at));
        }
    }

    TEST_CASE("types keep the numbers of their rules, their order of cuts and the labels of the mesh") {
        auto const mesh = Mesh{2, 2}.named("dp", "tp").on(first_rank(4));
        auto const d = distribution(mesh, Shape{7, 9}, AxisOrder<1, 0>{}, Shard<1, BlockCyclic>{{2}}, Shard<1>{});
        auto const permuted = permute<1, 0>(d);
        CHECK(permuted == permute(d, {1, 0}));
        CHECK(permuted.mesh() == d.mesh());
        CHECK(to_string(permuted).find("S0:cyc2") != std::string::npos);
        CHECK(permute<1, 0>(permuted) == d);
        static_assert(std::same_as<decltype(permute<1, 0>(permuted)), std::remove_const_t<decltype(d)>>);
        auto const cuts = distribution(Mesh{3}, Shape{2, 3, 9}, Shard<2, Boundaries>{{0, 3, 4, 9}});
        auto const moved = permute<2, 0, 1>(cuts);
        CHECK(moved.box(5 - 4).begin(0) == 3);
        CHECK(moved.shape() == permute(cuts.shape(), {2, 0, 1}));
        CHECK(permute<1, 2, 0>(moved) == cuts);
    }

    TEST_CASE("views: element (i, j, k) of the permuted view is where its dimensions came from") {
        std::vector<int> memory(2 * 3 * 4);
        for (std::size_t i = 0; i != memory.size(); ++i) memory[i] = static_cast<int>(i);
        TensorView<int> const view(memory.data(), Shape{2, 3, 4});
        auto const moved = permute(view, {2, 0, 1});
        CHECK(moved.shape() == DynamicShape(Indices(4, 2, 3)));
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 3; ++j)
                for (int k = 0; k < 4; ++k) CHECK(&moved(k, i, j) == &view(i, j, k));
        DynamicView const bytes = permute(DynamicView(view), {2, 0, 1});
        CHECK(bytes.strides() == moved.strides());
        CHECK(bytes.dtype() == DType::i32);
        ConstDynamicView const constant = permute(ConstDynamicView(view), {1, 2, 0});
        CHECK(constant.extent(0) == 3);
        CHECK(permute(TensorView<int const>(view), {0, 1, 2}).strides() == view.strides());
        int scalar = 5;
        CHECK(permute(TensorView<int>(&scalar, DynamicShape{}), {}).size() == 1);
    }

    TEST_CASE("a list that is no permutation is a ShapeError that shows it") {
        std::vector<int> memory(6);
        TensorView<int> const view(memory.data(), Shape{2, 3});
        for (Indices const& order :
             {Indices(0), Indices(0, 0), Indices(1, 2), Indices(-1, 0), Indices(0, 1, 2), Indices()}) {
            CAPTURE(to_string(order));
            CHECK_THROWS_AS(static_cast<void>(permute(view, order)), ShapeError);
            CHECK_THROWS_AS(static_cast<void>(permute(rows, order)), ShapeError);
            CHECK_THROWS_AS(static_cast<void>(permute(DynamicView(view), order)), ShapeError);
        }
        CHECK_THROWS_WITH_AS(static_cast<void>(inverse_permutation({1, 9})),
                             doctest::Contains("[1,9] is no permutation of 2 dimensions"), ShapeError);
    }
}
