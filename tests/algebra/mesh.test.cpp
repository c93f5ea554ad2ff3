// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/mesh.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <type_traits>
#include <vector>

using namespace reshard;

namespace {

static_assert(std::is_same_v<decltype(Mesh{2, 4}), Mesh<dynamic, dynamic>>);
static_assert(Mesh<2, 4>::is_static && !Mesh<2, dynamic>::is_static);
static_assert(Mesh<2, 4>{}.size() == 8 && Mesh<2, dynamic>{2, 4}.size() == 8);
static_assert(!std::is_default_constructible_v<Mesh<dynamic>>);
static_assert(DynamicMesh{}.size() == 1 && DynamicMesh{}.axes() == 1, "the smallest mesh is one rank");

// Row-major: the last axis varies fastest.
static_assert(Mesh<2, 4>{}.coordinates(5)[0] == 1 && Mesh<2, 4>{}.coordinates(5)[1] == 1);
static_assert(Mesh<2, 4>{}.stride(0) == 4 && Mesh<2, 4>{}.stride(1) == 1);
static_assert(Mesh<2, 4>{first_rank(8)}.ordinal(13) == 5 && Mesh<2, 4>{first_rank(8)}.rank_at(5) == 13);
static_assert(!Mesh<2, 4>{first_rank(8)}.contains(7) && !Mesh<2, 4>{first_rank(8)}.contains(16));
static_assert(Mesh{3}.on({0, {4, 0, 2}}).ordinal(2) == 2 && Mesh{3}.on({0, {4, 0, 2}}).last_rank() == 4);
static_assert(Mesh{3}.on(listed_ranks({4, 0, 2})) == Mesh{3}.on({0, {4, 0, 2}}));

Indices list(std::initializer_list<Index> values) {
    Indices result;
    for (Index value : values) result.push_back(value);
    return result;
}

}  // namespace

TEST_CASE("names are labels: meshes that differ only in names are the same mesh") {
    auto const plain = Mesh{2, 4};
    auto const named = Mesh{2, 4}.named("dp", "tp");
    CHECK(plain == named);
    CHECK(named == Mesh{2, 4}.named("x", "y"));
    CHECK(named.axis("tp") == 1);
    CHECK(named.axis_name(0) == "dp");
    CHECK(plain.axis_name(0).empty());
    CHECK_THROWS_AS(static_cast<void>(named.axis("pp")), MeshError);
    CHECK_THROWS_AS(static_cast<void>(plain.axis("")), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.named("sixteen letters!")), MeshError);
    CHECK((Mesh{2}.named("fifteen_letters")).axis("fifteen_letters") == 0);
}

TEST_CASE("along: the part of a mesh that a rank sees, as slices of torch's DeviceMesh") {
    auto const mesh = Mesh{2, 3, 4}.named("pp", "dp", "tp");
    // As DeviceMesh("cpu", arange(24).view(2, 3, 4))["tp"] has them on rank 17 = (1, 1, 1).
    CHECK(to_string(mesh.along("tp", 17)) == "(tp=4)+16");
    CHECK(to_string(mesh.along("dp", 17)) == "(dp=3)[13,17,21]");
    CHECK(to_string(mesh.along({"pp", "tp"}, 17)) == "(pp=2,tp=4)[4,5,6,7,16,17,18,19]");
    CHECK(to_string(mesh.along({"tp", "pp"}, 17)) == "(tp=4,pp=2)[4,16,5,17,6,18,7,19]");
    CHECK(to_string(mesh.along({2}, 17)) == to_string(mesh.along(2, 17)));
    CHECK(mesh.along({0, 1, 2}, 5) == mesh);
    CHECK(to_string(Mesh{2, 2}.on({0, {7, 1, 4, 2}}).along(0, 4)) == "(2)[7,4]");
    CHECK_THROWS_WITH_AS(static_cast<void>(mesh.along("ep", 0)), doctest::Contains("no axis is called 'ep'"),
                         MeshError);
    CHECK_THROWS_WITH_AS(static_cast<void>(mesh.along({"tp", "tp"}, 0)),
                         "reshard::Mesh: axis 2 of a mesh with 3 axes does not exist, or is given twice. "
                         "Fix: axes count from 0.",
                         MeshError);
    CHECK_THROWS_AS(static_cast<void>(mesh.along({}, 0)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(mesh.along(3, 0)), MeshError);
    CHECK_THROWS_WITH_AS(static_cast<void>(mesh.along("tp", 24)), doctest::Contains("Fix: ranks count from 0"),
                         MeshError);
    for (std::uint64_t seed : test::seeds(300)) {
        test::Random random(seed);
        DynamicMesh const whole = random.mesh();
        std::vector<int> axes;
        for (int axis = 0; axis < whole.axes(); ++axis) axes.push_back(axis);
        std::shuffle(axes.begin(), axes.end(), random.engine());
        MeshAxes some(axes[0]);
        if (axes.size() > 1 && random.chance(50)) some.push_back(axes[1]);
        Index const rank = whole.rank_at(random.between(0, whole.size() - 1));
        INFO("seed ", seed, ": ", to_string(whole), ", rank ", rank);
        DynamicMesh const part = whole.along(some, rank);
        CHECK(part.contains(rank));
        Indices const mine = whole.coordinates(rank);
        for (Index ordinal = 0; ordinal < whole.size(); ++ordinal) {
            Index const other = whole.rank_at(ordinal);
            Indices const theirs = whole.coordinates(other);
            bool inside = true;
            for (int axis = 0; axis < whole.axes(); ++axis) {
                bool varies = false;
                for (AxisRef const& one : some) varies = varies || one.number == axis;
                inside = inside && (varies || mine[axis] == theirs[axis]);
            }
            CHECK(part.contains(other) == inside);
            for (int k = 0; inside && k < some.size(); ++k) {
                CHECK(part.coordinates(other)[k] == theirs[some[k].number]);
            }
        }
    }
}

TEST_CASE("a mesh is its extents and its ranks in order") {
    CHECK_FALSE(Mesh{2, 4} == Mesh{4, 2});
    CHECK_FALSE(Mesh{8} == Mesh{2, 4});
    CHECK_FALSE(Mesh{2, 4} == Mesh{2, 4}.on(first_rank(8)));
    DynamicMesh const named = Mesh{2, 4}.named("dp", "tp");
    CHECK(to_string(named.on(first_rank(8))) == "(dp=2,tp=4)+8");
    CHECK(named.on(first_rank(8)) == Mesh{2, 4}.on(first_rank(8)));
    CHECK_THROWS_AS(static_cast<void>(named.on({0, {1, 2}})), MeshError);
    CHECK(Mesh{3}.on({0, {4, 0, 2}}) == Mesh{3}.on({0, {4, 0, 2}}));
    CHECK_FALSE(Mesh{3}.on({0, {4, 0, 2}}) == Mesh{3}.on({0, {4, 2, 0}}));
    CHECK(Mesh{3}.on({0, {0, 1, 2}}) == Mesh{3});
    CHECK(Mesh{3}.on({0, {5, 6, 7}}) == Mesh{3}.on(first_rank(5)));
}

TEST_CASE("a list of consecutive ranks and their first rank are one mesh, printed alike") {
    CHECK(to_string(Mesh{3}.on({0, {5, 6, 7}})) == to_string(Mesh{3}.on(first_rank(5))));
    CHECK(to_string(Mesh{3}.on({0, {0, 1, 2}})) == "(3)");
    CHECK(to_string(Mesh{3}.on({0, {5, 7, 6}})) == "(3)[5,7,6]");
    CHECK(to_string(Mesh{1}.on({0, {4}})) == "(1)+4");
}

TEST_CASE("a mesh refuses axes below one and ranks that are negative, repeated, too many or beyond int") {
    CHECK_THROWS_WITH_AS((Mesh{2, 0}), "reshard::Mesh: axis 1 has extent 0. Fix: every axis has at least one rank.",
                         MeshError);
    CHECK_THROWS_AS((Mesh{-4}), MeshError);
    CHECK_THROWS_AS((DynamicMesh{Indices{}}), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.on(first_rank(-1))), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.on({0, {0, -1}})), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.on({0, {3, 3}})), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.on({0, {0, 1, 2}})), MeshError);
    CHECK_THROWS_AS((Mesh{65536, 65536}), MeshError);
    CHECK_THROWS_AS((Mesh{Index{1} << 40, Index{1} << 40}), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.on(first_rank(std::numeric_limits<int>::max()))), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.on(first_rank(std::numeric_limits<Index>::max()))), MeshError);
    CHECK_NOTHROW(static_cast<void>(Mesh{1}.on(first_rank(std::numeric_limits<int>::max()))));
    CHECK_THROWS_AS((Mesh<2, dynamic>{3, 4}), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.coordinates(2)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.coordinates(-1)), MeshError);
}

TEST_CASE("ranks, ordinals and coordinates are three names of one position") {
    for (std::uint64_t seed : test::seeds(300)) {
        test::Random random(seed);
        DynamicMesh const mesh = random.mesh();
        INFO("seed ", seed, ": ", to_string(mesh));
        std::set<Index> seen;
        Index last = 0;
        for (Index ordinal = 0; ordinal < mesh.size(); ++ordinal) {
            Index const rank = mesh.rank_at(ordinal);
            CHECK(mesh.ordinal(rank) == ordinal);
            CHECK(mesh.contains(rank));
            Indices const position = mesh.coordinates(rank);
            Index folded = 0;
            for (int axis = 0; axis < mesh.axes(); ++axis) {
                CHECK(position[axis] < mesh.extent(axis));
                folded += position[axis] * mesh.stride(axis);
            }
            CHECK(folded == ordinal);
            seen.insert(rank);
            last = std::max(last, rank);
        }
        CHECK(static_cast<Index>(seen.size()) == mesh.size());
        CHECK(mesh.last_rank() == last);
        CHECK_FALSE(mesh.contains(-1));
        CHECK_FALSE(mesh.contains(last + 1));
    }
}

TEST_CASE("a long list of ranks is searched both ways, and keeps its order under other extents") {
    std::vector<Index> ranks;
    for (Index i = 0; i < 3000; ++i) ranks.push_back((i * 7919 + 13) % 3001);  // 3001 is prime: one number is left out
    DynamicMesh const mesh(list({3, 1000}), RankList{0, IndexList(ranks.data(), 3000)});
    Index absent = 0;
    for (Index rank = -1; rank <= 3001; ++rank) {
        Index const ordinal = mesh.ordinal(rank);
        if (ordinal < 0) ++absent;
        bool const right = ordinal < 0 || ranks[static_cast<std::size_t>(ordinal)] == rank;
        CHECK(right);
    }
    CHECK(absent == 3);  // -1, the one left out, 3001
    CHECK(mesh.lowest_rank() == 0);
    CHECK(mesh.last_rank() == 3000);
    CHECK(mesh.reshaped(list({3000})) == DynamicMesh(list({3000}), mesh.ranks()));
    CHECK(mesh.reshaped(list({50, 60})).ordinal(ranks[77]) == 77);
    CHECK_THROWS_AS(static_cast<void>(mesh.reshaped(list({50, 61}))), MeshError);
    CHECK(DynamicMesh(list({8}), first_rank(4)).reshaped(list({2, 4})) == DynamicMesh(list({2, 4}), first_rank(4)));
    ranks[2999] = ranks[0];
    CHECK_THROWS_AS(static_cast<void>(DynamicMesh(list({3000}), RankList{0, IndexList(ranks.data(), 3000)})),
                    MeshError);
}

TEST_CASE("a mesh of a million ranks answers without listing them") {
    DynamicMesh const mesh(list({1024, 1024}), first_rank(7));
    CHECK(mesh.size() == 1 << 20);
    CHECK(mesh.coordinates(7 + (1 << 20) - 1) == list({1023, 1023}));
    CHECK_FALSE(mesh.contains(7 + (1 << 20)));
}

TEST_CASE("a list of integers is a mesh whose number of axes is known at run time") {
    CHECK(DynamicMesh(std::vector<int>{2, 4}) == Mesh{2, 4});
    static_assert(DynamicMesh({7}) == Mesh{7} && DynamicMesh({2, 4U}) == Mesh{2, 4});
    static_assert(DynamicMesh({7U}, first_rank(8)) == Mesh{7}.on(first_rank(8)));
    CHECK(DynamicMesh(std::vector<Index>{2, 4}, first_rank(8)) == Mesh{2, 4}.on(first_rank(8)));
    CHECK_THROWS_AS(DynamicMesh(std::vector<int>{}), MeshError);
    CHECK_THROWS_AS(DynamicMesh(std::vector<int>{2, 0}), MeshError);
}
