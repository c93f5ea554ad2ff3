// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/distribution.hpp>

#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <vector>

using namespace reshard;

namespace {

template <class D>
constexpr bool rows_are(D const& d, std::initializer_list<Index> sizes) {
    Index rank = 0;
    for (Index size : sizes) {
        if (d.local_shape(rank++).extent(0) != size) return false;
    }
    return rank == d.mesh().size();
}

// One axis: torch.chunk's examples.
static_assert(rows_are(distribution<Shard<0>>(Mesh<4>{}, Shape<5>{}), {2, 2, 1, 0}));
static_assert(rows_are(distribution<Shard<0>>(Mesh<8>{}, Shape<10>{}), {2, 2, 2, 2, 2, 0, 0, 0}));
static_assert(rows_are(distribution<Shard<0, Balanced>>(Mesh<6>{}, Shape<20>{}), {4, 4, 3, 3, 3, 3}));
static_assert(rows_are(distribution<Shard<0>>(Mesh<4>{}, Shape<0>{}), {0, 0, 0, 0}));
static_assert(rows_are(distribution<Shard<0>>(Mesh<1>{}, Shape<7>{}), {7}));

// Two axes on one dimension: nested chunk is not flat chunk.
static_assert(rows_are(distribution<Shard<0>, Shard<0>>(Mesh<2, 2>{}, Shape<5>{}), {2, 1, 1, 1}));
static_assert(rows_are(distribution<Shard<0>, Shard<0>>(Mesh<2, 2>{}, Shape<8>{}), {2, 2, 2, 2}));

// The default order is left to right: rows 0-1, 2-3, 4-5, 6-7 on ranks 0..3.
constexpr auto in_order = distribution<Shard<0>, Shard<0>>(Mesh<2, 2>{}, Shape<8>{});
static_assert(in_order.box(1) == Box{{2, 4}} && in_order.box(2) == Box{{4, 6}});
constexpr auto reversed = distribution<Shard<0>, Shard<0>>(Mesh<2, 2>{}, Shape<8>{}, AxisOrder<1, 0>{});
static_assert(reversed.box(1) == Box{{4, 6}} && reversed.box(2) == Box{{2, 4}});

// Static extents make constants.
constexpr Distribution<Mesh<2, 4>, Shape<8192, 1024>, AxisOrder<>, Shard<1>, Shard<0>> tiles;
static_assert(tiles.box(5) == Box{{2048, 4096}, {512, 1024}} && tiles.local_shape(5).size() == 1 << 20);
static_assert(!std::is_default_constructible_v<decltype(distribution<Shard<0>>(Mesh{4}, Shape{5}))>);

static_assert(TypedDistribution<decltype(tiles)> && AnyDistribution<DynamicDistribution> && !AnyDistribution<int>);
static_assert(!TypedDistribution<DynamicDistribution>);
static_assert(replicated(Mesh<2, 2>{}, Shape<5>{}) == distribution<Replicate, Replicate>(Mesh<2, 2>{}, Shape<5>{}));
static_assert(DynamicDistribution{}.mesh().size() == 1 && DynamicDistribution{}.box(0) == Box{},
              "the smallest distribution: a scalar on one rank");

Indices index(std::initializer_list<Index> values) {
    Indices result;
    for (Index value : values) result.push_back(value);
    return result;
}

template <class F>
std::string complaint(F make) {
    try {
        static_cast<void>(make());
    } catch (PlacementError const& error) {
        return error.message();
    }
    return "";
}

struct HalfFirst {  // a rule of a user's own: the first part gets half and one
    static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index extent, Index /*parts*/) const {
        return Boundaries{0, extent / 2 + 1, extent}.rule(0, 0);
    }
};
struct DealsBlocks {
    static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index /*extent*/, Index /*parts*/) const {
        return BlockCyclic{1}.rule(0, 0);
    }
};

}  // namespace

TEST_CASE("a rule of your own is asked about the piece that it cuts") {
    auto const nested = distribution<Shard<0>, Shard<0, HalfFirst>>(Mesh{2, 2}, Shape{12});
    CHECK(nested.box(0) == Box{{0, 4}});
    CHECK(nested.box(1) == Box{{4, 6}});
    CHECK(nested.box(2) == Box{{6, 10}});
    auto const first = distribution<Shard<0>, Shard<0, HalfFirst>>(Mesh{2, 2}, Shape{14}, AxisOrder<1, 0>{});
    CHECK(first.box(0) == Box{{0, 4}});
    CHECK(first.box(2) == Box{{4, 8}});
}

TEST_CASE("a rule of your own that deals out blocks is refused: its type is taken for boundaries") {
    CHECK_THROWS_AS(static_cast<void>(distribution<Shard<0, DealsBlocks>>(Mesh{2}, Shape{12})), PlacementError);
}

TEST_CASE("65 rows on 64 ranks leave 31 ranks empty, 224 on 20 leave one") {
    auto const empty_ranks = [](Index rows, Index ranks) {
        auto const d = distribution<Shard<0>>(Mesh{ranks}, Shape{rows});
        int count = 0;
        for (Index rank = 0; rank < ranks; ++rank) count += d.local_shape(rank).size() == 0 ? 1 : 0;
        return count;
    };
    CHECK(empty_ranks(65, 64) == 31);
    CHECK(empty_ranks(224, 20) == 1);
    CHECK(distribution<Shard<0>>(Mesh{20}, Shape{224}).local_shape(18).extent(0) == 8);
}

TEST_CASE("nested cuts differ from one flat cut for 95 of 128 extents on (2,4), for 80 when balanced") {
    auto const differ = [](auto rule) {
        using Rule = decltype(rule);
        int count = 0;
        for (Index rows = 1; rows <= 128; ++rows) {
            auto const nested = distribution<Shard<0, Rule>, Shard<0, Rule>>(Mesh{2, 4}, Shape{rows});
            auto const flat = distribution<Shard<0, Rule>>(Mesh{8}, Shape{rows});
            bool same = true;
            for (Index rank = 0; rank < 8; ++rank) same = same && nested.local_shape(rank) == flat.local_shape(rank);
            count += same ? 0 : 1;
            if (rows % 8 == 0) CHECK(same);
        }
        return count;
    };
    CHECK(differ(Chunk{}) == 95);
    CHECK(differ(Balanced{}) == 80);
}

TEST_CASE("the offset of an empty shard is the extent, never the offset of somebody else's shard") {
    auto const d = distribution<Shard<0>, Shard<0>>(Mesh{2, 4}, Shape{10});
    CHECK(d.local_shape(3).size() == 0);  // 5 rows on 4 ranks: 2,2,1,0
    CHECK(d.offset(3) == index({10}));    // not 5, where rank 4 begins
    CHECK(d.offset(4) == index({5}));
    CHECK(d.box(3) == Box{{10, 10}});
    CHECK(d.boxes(3).empty());

    auto const short_parent = distribution<Shard<0>, Shard<0>>(Mesh{4, 2}, Shape{3});  // 1,1,1 and an empty parent
    CHECK(short_parent.offset(0) == index({0}));
    CHECK(short_parent.offset(1) == index({3}));
    CHECK(short_parent.offset(6) == index({3}));
    CHECK(short_parent.offset(7) == index({3}));

    auto const exact = distribution<Shard<0>>(Mesh{4}, Shape{3});  // start == N exactly
    CHECK(exact.offset(3) == index({3}));
    CHECK(exact.local_shape(3).size() == 0);

    auto const other_dimension = distribution<Shard<0>, Shard<1>>(Mesh{2, 2}, Shape{1, 4});
    CHECK(other_dimension.offset(3) == index({1, 2}));

    auto const dealt = distribution(Mesh{4}, Shape{6}, Shard<0, BlockCyclic>{{4}});
    CHECK(dealt.offset(1) == index({4}));
    CHECK(dealt.offset(2) == index({6}));
}

TEST_CASE("tp before dp on nine rows is the true reversed order, not a strided imitation of it") {
    auto const d = distribution<Shard<0>, Shard<0>>(Mesh{4, 2}.named("dp", "tp"), Shape{9}, AxisOrder<1, 0>{});
    auto const rank = [](Index dp, Index tp) { return dp * 2 + tp; };
    CHECK(d.box(rank(3, 1)) == Box{{8, 9}});
    CHECK(d.local_shape(rank(3, 0)).size() == 0);
    CHECK(d.box(rank(0, 0)) == Box{{0, 2}});
    CHECK(d.box(rank(2, 0)) == Box{{4, 5}});
    CHECK(d.box(rank(0, 1)) == Box{{5, 6}});
}

TEST_CASE("equal placements in another order are another distribution") {
    auto const a = parse("(2,2):(S0,S0)", Shape{8});
    auto const b = parse("(2,2):(S0,S0)@1,0", Shape{8});
    CHECK_FALSE(a == b);
    CHECK(a == parse("(2,2):(S0,S0)@0,1", Shape{8}));
    // The order of axes that cut different dimensions changes nothing.
    CHECK(parse("(2,2):(S0,S1)@1,0", Shape{8, 8}) == parse("(2,2):(S0,S1)", Shape{8, 8}));
}

TEST_CASE("the same ranks under other axis names are the same distribution") {
    auto const a = distribution<Replicate, Shard<0>>(Mesh{2, 4}.named("dp", "tp"), Shape{8});
    auto const b = distribution<Replicate, Shard<0>>(Mesh{2, 4}.named("x", "y"), Shape{8});
    CHECK(a == b);
    CHECK(a == distribution<Replicate, Shard<0>>(Mesh{2, 4}, Shape{8}));
    CHECK_FALSE(a == distribution<Replicate, Shard<0>>(Mesh{2, 4}.on(first_rank(8)), Shape{8}));
}

TEST_CASE("coinciding numbers are not equality: chunk and balanced cuts of a divisible extent") {
    auto const a = parse("(4):(S0)", Shape{8});
    auto const b = parse("(4):(S0:bal)", Shape{8});
    for (Index rank = 0; rank < 4; ++rank) CHECK(a.box(rank) == b.box(rank));
    CHECK_FALSE(a == b);
}

TEST_CASE("boundaries of any sizes, empty parts included, cut where they say") {
    auto const d = distribution(Mesh{3}, Shape{9, 4}, Shard<0, Boundaries>{{0, 3, 3, 9}});
    CHECK(d.box(0) == Box{{0, 3}, {0, 4}});
    CHECK(d.offset(1) == index({9, 0}));
    CHECK(d.box(2) == Box{{3, 9}, {0, 4}});
    CHECK(d.holders(index({3, 0})) == std::vector<Index>{2});
}

TEST_CASE("boundaries may cut pieces of an even cut, or be cut again themselves") {
    auto const inside = parse("(2,2):(S0,S0[0,1,4])", Shape{8});
    CHECK(inside.box(0) == Box{{0, 1}});
    CHECK(inside.box(3) == Box{{5, 8}});
    auto const outside = parse("(2,2):(S0[0,1,8],S0)", Shape{8});
    CHECK(outside.box(1) == Box{{8, 8}});
    CHECK(outside.box(2) == Box{{1, 5}});
    CHECK(outside.box(3) == Box{{5, 8}});
    CHECK_THROWS_AS(static_cast<void>(parse("(2,2):(S0,S0[0,1,4])", Shape{9})), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(parse("(2,2,2):(S0[0,1,8],S0,S0[0,1,4])", Shape{8})), PlacementError);
    CHECK_NOTHROW(static_cast<void>(parse("(2,2,2):(S0[0,4,8],S0,S0[0,1,2])", Shape{8})));
}

TEST_CASE("a block-cyclic rank holds several boxes, and box() says so") {
    auto const d = distribution(Mesh{2}, Shape{7, 2}, Shard<0, BlockCyclic>{{2}});
    CHECK(d.boxes(0) == std::vector<Box>{Box{{0, 2}, {0, 2}}, Box{{4, 6}, {0, 2}}});
    CHECK(d.boxes(1) == std::vector<Box>{Box{{2, 4}, {0, 2}}, Box{{6, 7}, {0, 2}}});
    CHECK(d.local_shape(1) == Shape{3, 2});
    CHECK(complaint([&] { return d.box(0); }) ==
          "reshard::distribution: rank 0 holds 2 pieces of dimension 0, not one box. Fix: ask boxes(rank).");
    CHECK(distribution(Mesh{2}, Shape{3}, Shard<0, BlockCyclic>{{2}}).box(1) == Box{{2, 3}});
    CHECK(distribution(Mesh{1}, Shape{9}, Shard<0, BlockCyclic>{{2}}).box(0) == Box{{0, 9}});
    CHECK(distribution(Mesh{2}, Shape{9}, Shard<0, Strided>{{2}}).boxes(1) ==
          std::vector<Box>{Box{{3, 5}}, Box{{7, 9}}});  // pieces of 5 and 4
}

TEST_CASE("boxes of two block-cyclic dimensions come in row-major order") {
    auto const d = distribution(Mesh{2, 2}, Shape{4, 4}, Shard<0, BlockCyclic>{{1}}, Shard<1, BlockCyclic>{{1}});
    CHECK(d.boxes(3) ==
          std::vector<Box>{Box{{1, 2}, {1, 2}}, Box{{1, 2}, {3, 4}}, Box{{3, 4}, {1, 2}}, Box{{3, 4}, {3, 4}}});
}

TEST_CASE("blocks longer than any tensor are legal") {
    auto const d = parse("(3):(S0:cyc9223372036854775807)", Shape{10});
    CHECK(d.box(0) == Box{{0, 10}});
    CHECK(d.local_shape(1).size() == 0);
    CHECK(d.offset(2) == index({10}));
    CHECK(d.holds(0, Box{{0, 10}}));
    CHECK_FALSE(d.holds(2, Box{{9, 10}}));
}

TEST_CASE("holders are all replicas, ascending by position in the mesh") {
    auto const d = distribution<Replicate, Shard<0>>(Mesh{2, 4}, Shape{8, 3});
    CHECK(d.holders(Box{{2, 4}, {0, 3}}) == std::vector<Index>{1, 5});
    CHECK(d.holders(Box{{1, 3}, {0, 3}}).empty());  // no rank holds all of it
    CHECK(d.holders(index({7, 2})) == std::vector<Index>{3, 7});
    CHECK(d.holders(Box{{0, 9}, {0, 3}}).empty());      // beyond the tensor
    CHECK(d.holders(Box{{4, 4}, {0, 3}}).size() == 8);  // everybody holds nothing
    CHECK_THROWS_AS(static_cast<void>(d.holders(Box{{0, 2}})), ShapeError);
    CHECK_THROWS_AS(static_cast<void>(d.holds(0, Box{{0, 2}})), ShapeError);

    auto const listed = distribution<Replicate>(Mesh{3}.on({0, {4, 0, 2}}), Shape{2});
    CHECK(listed.holders(Box{{0, 2}}) == std::vector<Index>{4, 0, 2});
    auto const addends = distribution<Partial<>>(Mesh{2}, Shape{2});
    CHECK(addends.holders(Box{{0, 2}}) == std::vector<Index>{0, 1});
}

TEST_CASE("a scalar can be replicated or partial, and has one box without dimensions") {
    auto const d = distribution<Replicate, Partial<Reduce::max>>(Mesh{2, 2}, Shape{});
    for (Index rank = 0; rank < 4; ++rank) {
        CHECK(d.box(rank) == Box{});
        CHECK(d.boxes(rank).size() == 1);
        CHECK(d.local_shape(rank).size() == 1);
        CHECK(d.offset(rank).empty());
    }
    CHECK(d.holders(Box{}).size() == 4);
    CHECK_THROWS_AS(static_cast<void>(parse("(2):(S0)", Shape{})), PlacementError);
}

TEST_CASE("a rank outside the mesh has no box") {
    auto const d = distribution<Shard<0>>(Mesh{4}.on(first_rank(8)), Shape{8});
    CHECK_FALSE(d.contains(0));
    CHECK(d.contains(8));
    CHECK(d.box(8) == Box{{0, 2}});
    CHECK_THROWS_AS(static_cast<void>(d.box(0)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(d.boxes(12)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(d.local_shape(7)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(d.offset(-1)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(d.holds(0, Box{{0, 1}})), MeshError);
}

TEST_CASE("what is wrong with placements is said at run time in words") {
    Shape const shape{8, 4};
    Placements three;
    for (int i = 0; i < 3; ++i) three.push_back(Placement::replicate());
    CHECK(complaint([&] {
              return distribution(Mesh{2, 4}, shape, three);
          }).find("3 placements for a mesh of 2 axes") != std::string::npos);
    auto const says = [&](char const* text, char const* words) {
        CAPTURE(text);
        std::string const message = complaint([&] { return parse(text, shape); });
        CAPTURE(message);
        CHECK(message.find(words) != std::string::npos);
        CHECK(message.find("Fix: ") != std::string::npos);
    };
    says("(2,4):(R)", "1 placements for a mesh of 2 axes");
    says("(2,4):(R,S2)", "a tensor of shape [8,4] has no dimension 2 to shard. Fix: dimensions count from 0 to 1.");
    says("(2,4):(P+,P>)", "two different reductions in one tensor");
    says("(2,4):(P+,Pavg)", "two different reductions in one tensor");
    says("(2,4):(S0,S0)@0,0", "the axis order names an axis twice");
    says("(2,2,2):(S0,S0,S0)@2,0", "only some of the axes");
    says("(2,4):(S0:cyc2,S0)", "a block-cyclic or strided cut is not the last of its dimension");
    says("(2,4):(S0:cyc2,S0:cyc1)", "two block-cyclic or strided cuts of one dimension");
    says("(2,4):(S0:str3,S0)", "a block-cyclic or strided cut is not the last of its dimension");
    says("(2):(S0:cyc0)", "blocks of 0");
    says("(2):(S0:str0)", "the strided rule of mesh axis 0 makes 0 pieces");
    says("(2):(S0[0,8])", "2 boundaries on mesh axis 0 of 2 ranks");
    says("(2):(S0[0,3,7])", "do not ascend from 0 to 8");
    says("(2):(S0[1,3,8])", "do not ascend from 0 to 8");
    says("(3):(S0[0,5,3,8])", "do not ascend from 0 to 8");
    says("(2,2):(S0:bal,S0[0,1,2])@0,1", "do not ascend from 0 to 4");
    CHECK(complaint([&] {
              Placements one;
              one.push_back(Placement::shard(256));
              return distribution(Mesh{2}, shape, one);
          }).find("has no dimension 256") != std::string::npos);
}

TEST_CASE("a million ranks are answered in closed form") {
    Index const ranks = Index{1} << 20;
    auto const d = distribution<Shard<0>, Shard<1>>(Mesh{1024, 1024}, Shape{Index{1} << 30, Index{1} << 30});
    CHECK(d.box(ranks - 1) ==
          Box{{(Index{1} << 30) - (1 << 20), Index{1} << 30}, {(Index{1} << 30) - (1 << 20), Index{1} << 30}});
    CHECK(d.local_shape(0).size() == Index{1} << 40);
}

TEST_CASE("placements come as types, as arguments, with an order, as values and as text: one distribution") {
    Mesh const mesh{2, 2};
    Shape const shape{9, 4};
    AxisOrder<1, 0> const order;
    auto const expected = distribution(mesh, shape, "S0,S0@1,0");
    CHECK(distribution<Shard<0>, Shard<0>>(mesh, shape, order) == expected);
    CHECK(distribution(mesh, shape, order, Shard<0>{}, Shard<0>{}) == expected);
    Placements two;
    two.push_back(Placement::shard(0));
    two.push_back(Placement::shard(0));
    CHECK(distribution(mesh, shape, two, AxisOrder<1, 0>::list()) == expected);
    CHECK(parse("(2,2):(S0,S0)@1,0", shape) == expected);

    auto const cuts = distribution(mesh, shape, Shard<0, Boundaries>{{0, 3, 9}}, Replicate{});
    CHECK(cuts == distribution(mesh, shape, "S0[0,3,9],R"));
}

namespace {
/// A rule of a user's own: the first part takes two thirds.
struct FrontHeavy {
    static constexpr bool is_static = true;
    [[nodiscard]] constexpr SplitRule rule(Index extent, Index parts) const {
        Index list[IndexList::inline_capacity]{};
        for (Index i = 1; i < parts; ++i) list[i] = extent * 2 / 3;
        list[parts] = extent;
        return {SplitKind::boundaries, 0, IndexList(list, parts + 1)};
    }
};
}  // namespace

TEST_CASE("a rule of one's own becomes boundaries") {
    auto const d = distribution<Shard<0, FrontHeavy>>(Mesh{2}, Shape{9});
    CHECK(d.box(0) == Box{{0, 6}});
    CHECK(d.box(1) == Box{{6, 9}});
    CHECK(to_string(d) == "(2):(S0[0,6,9])");
}

TEST_CASE("typed placements on a mesh, or of a shape, that is known at run time make a run-time distribution") {
    DynamicMesh const mesh = Mesh{2, 3};
    DynamicShape const shape = Shape{14, 9};
    static_assert(std::same_as<decltype(distribution<Shard<0>>(mesh, shape)), DynamicDistribution>);
    static_assert(TypedDistribution<decltype(distribution<Shard<0>>(Mesh{2}, Shape{4}))>);
    CHECK(distribution<Replicate, Shard<1>>(mesh, shape) == distribution(mesh, shape, "R,S1"));
    CHECK(distribution<Partial<>, Shard<1>>(mesh, Shape{14, 9}) == distribution(mesh, shape, "P+,S1"));
    CHECK(distribution<Shard<0>, Shard<0>>(Mesh{2, 3}, shape, AxisOrder<1, 0>{}) ==
          distribution(mesh, shape, "S0,S0@1,0"));
    CHECK(distribution(mesh, shape, Replicate{}, Shard<1, Boundaries>{{0, 2, 5, 9}}) ==
          distribution(mesh, shape, "R,S1[0,2,5,9]"));
    CHECK(distribution(mesh, shape, AxisOrder<1, 0>{}, Shard<0, BlockCyclic>{{2}}, Shard<0>{}) ==
          distribution(mesh, shape, "S0:cyc2,S0@1,0"));
    DynamicMesh const square = Mesh{2, 2};
    CHECK(distribution<Shard<0>, Shard<0, HalfFirst>>(square, shape, AxisOrder<1, 0>{}) ==
          distribution<Shard<0>, Shard<0, HalfFirst>>(Mesh{2, 2}, Shape{14, 9}, AxisOrder<1, 0>{}));
    CHECK_THROWS_AS(static_cast<void>(distribution<Shard<0>>(mesh, shape)), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(distribution<Shard<0>, Shard<2>>(mesh, shape)), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(distribution<Shard<0>, Shard<0>>(mesh, shape, AxisOrder<1>{})), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(distribution<Replicate, Shard<0, DealsBlocks>>(mesh, shape)), PlacementError);
}
