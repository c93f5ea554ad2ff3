// SPDX-License-Identifier: Apache-2.0
#include <reshard/plan/box_table.hpp>

#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {
using namespace reshard;

std::vector<Box> boxes_of(BoxTable const& table, Index rank) {
    std::vector<Box> boxes;
    for (HeldBox const& held : table.boxes_of(rank)) boxes.push_back(held.box);
    return boxes;
}
template <class Body>
std::string message_of(ErrorCode code, Body const& body) {
    try {
        static_cast<void>(body());
    } catch (Error const& error) {
        CHECK(error.code() == code);
        CHECK(error.message().find("Fix: ") != std::string::npos);
        return error.message();
    }
    FAIL("nothing was thrown");
    return {};
}
bool says(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("boxes are by rank, those of a rank as they were given") {
    Box const a{{0, 4}, {0, 2}};
    Box const b{{4, 8}, {0, 2}};
    Box const none{{3, 3}, {0, 2}};
    BoxTable const table(Shape{8, 2}, {{2, b}, {0, a}, {2, none}, {2, a}});
    CHECK(boxes_of(table, 0) == std::vector<Box>{a});
    CHECK(boxes_of(table, 1).empty());
    CHECK(boxes_of(table, 2) == std::vector<Box>{b, none, a});
    CHECK(table.last_rank() == 2);
    CHECK(BoxTable(Shape{8, 2}, {}).last_rank() == -1);

    std::vector<std::pair<Box, std::size_t>> near;
    table.for_each_near(Box{{3, 5}, {0, 1}}, [&](Box const& box, std::span<std::size_t const> copies) {
        near.emplace_back(box, copies.size());
    });
    CHECK(near == std::vector<std::pair<Box, std::size_t>>{{a, 2}, {b, 1}});
}

TEST_CASE("a distribution as a table: a box a rank, or a box a block") {
    auto const rows = parse("(2,2):(S0,R)", Shape{5, 3});
    BoxTable const table(rows);
    CHECK(table.boxes().size() == 4);
    CHECK(boxes_of(table, 1) == std::vector<Box>{Box{{0, 3}, {0, 3}}});
    CHECK(boxes_of(table, 2) == std::vector<Box>{Box{{3, 5}, {0, 3}}});

    BoxTable const dealt(parse("(2):(S0:cyc2)", Shape{7}));
    CHECK(boxes_of(dealt, 0) == std::vector<Box>{Box{{0, 2}}, Box{{4, 6}}});
    CHECK(boxes_of(dealt, 1) == std::vector<Box>{Box{{2, 4}}, Box{{6, 7}}});

    CHECK(says(message_of(ErrorCode::placement, [] { return BoxTable(parse("(2):(P+)", Shape{7})); }), "addends"));
}

TEST_CASE("copies take turns, and nobody asks others for what it has") {
    Box const all{{0, 6}};
    BoxTable const from(Shape{6}, {{0, all}, {1, all}});
    BoxTable const to(Shape{6}, {{1, all}, {2, all}, {3, Box{{1, 3}}}, {3, Box{{2, 5}}}});
    CHECK(exchange(from, to, 1).kept == std::vector<planning::BoxMessage>{{1, all, 1, 0}});
    CHECK(exchange(from, to, 1).receives.empty());
    CHECK(exchange(from, to, 2).receives == std::vector<planning::BoxMessage>{{1, all, 1, 1}});
    // What a rank asks for twice it gets twice.
    CHECK(exchange(from, to, 3).receives ==
          std::vector<planning::BoxMessage>{{0, Box{{1, 3}}, 0, 2}, {1, Box{{2, 5}}, 1, 3}});
    CHECK(exchange(from, to, 0).sends == std::vector<planning::BoxMessage>{{3, Box{{1, 3}}, 0, 2}});
    CHECK(exchange(from, to, 1).sends == std::vector<planning::BoxMessage>{{2, all, 1, 1}, {3, Box{{2, 5}}, 1, 3}});
    CHECK(cost(from, to, 1).sent == 9);
    CHECK(cost(from, to, 3).received == 5);
    CHECK(cost(from, to, 3).messages_received == 2);
}

TEST_CASE("who wants all of it, beside ranks that want parts, has them all") {
    std::vector<HeldBox> parts;
    for (Index rank = 0; rank < 100; ++rank) parts.push_back({rank, Box{{3 * rank, 3 * rank + 3}}});
    BoxTable const from(Shape{300}, parts);
    Box const all{{0, 300}};
    parts.push_back({100, all});
    parts.push_back({50, all});
    BoxTable const to(Shape{300}, parts);
    CHECK(exchange(from, to, 100).receives.size() == 100);
    CHECK(exchange(from, to, 50).receives.size() == 99);
    CHECK(exchange(from, to, 50).kept.size() == 2);
    CHECK(exchange(from, to, 7).sends ==
          std::vector<planning::BoxMessage>{{50, Box{{21, 24}}, 7, 51}, {100, Box{{21, 24}}, 7, 101}});
    CHECK(cost(from, to, 7).received == 0);
}

TEST_CASE("of copies on ranks a power of two apart each sends its share") {
    auto const held = parse("(4,8):(R,S0)", Shape{64, 4});
    DynamicMesh const behind(Indices{4, 8}, first_rank(32));
    BoxTable const from(held);
    BoxTable const to(distribution(behind, Shape{64, 4}, "R,S0"));
    for (Index rank = 0; rank < 32; ++rank) CHECK(cost(from, to, rank).sent == 32);
}

TEST_CASE("addends: whoever needs an element gets it from all that have it") {
    Shape const shape{4};
    BoxTable const from(shape, {{0, Box{{0, 3}}}, {1, Box{{2, 4}}}, {1, Box{{2, 4}}}});
    BoxTable const to(shape, {{0, Box{{2, 4}}}, {2, Box{{0, 3}}}});
    Cost const first = cost(from, to, 0, Overlap::addends);
    CHECK(first.received == 4);
    CHECK(first.messages_received == 2);
    CHECK(first.sent == 3);
    planning::BoxExchange const mine = exchange(from, to, 0, Overlap::addends);
    CHECK(mine.kept.size() == 1);
    REQUIRE(mine.cells.size() == 2);
    CHECK(mine.cells[0].box == Box{{2, 3}});
    CHECK(mine.cells[0].from == std::vector<std::size_t>{0, 1, 2});
    CHECK(mine.cells[1].from == std::vector<std::size_t>{1, 2});
    CHECK(mine.scratch() == 4 + 3 + 2);
    CHECK(exchange(from, to, 1, Overlap::addends).scratch() == 0);
    CHECK(cost(from, to, 1, Overlap::addends).sent == 6);
    CHECK(cost(from, to, 2, Overlap::addends).received == 5);
    CHECK(says(message_of(ErrorCode::placement,
                          [&] {
                              return exchange(BoxTable(shape, {{0, Box{{0, 3}}}}), to, 0, Overlap::addends);
                          }),
               "[3:4] of it no rank holds"));
}

TEST_CASE("a scalar, and tables without elements") {
    BoxTable const one(Shape{}, {{0, Box{}}});
    BoxTable const other(Shape{}, {{1, Box{}}});
    CHECK(exchange(one, other, 1).receives.size() == 1);
    CHECK(exchange(one, other, 0).sends.size() == 1);
    BoxTable const empty(Shape{0, 4}, {{0, Box{{0, 0}, {0, 4}}}});
    CHECK(exchange(empty, empty, 0).kept.empty());
    CHECK(exchange(BoxTable(Shape{4}, {}), BoxTable(Shape{4}, {}), 0).sends.empty());
}

TEST_CASE("what is wrong is said, with the box") {
    CHECK(says(message_of(ErrorCode::placement,
                          [] {
                              return BoxTable(Shape{4, 4}, {{3, Box{{0, 5}, {0, 4}}}});
                          }),
               "[0:5,0:4] of rank 3"));
    message_of(ErrorCode::placement, [] { return BoxTable(Shape{4, 4}, {{0, Box{{0, 4}}}}); });
    message_of(ErrorCode::placement, [] { return BoxTable(Shape{4}, {{0, Box{{3, 2}}}}); });
    message_of(ErrorCode::mesh, [] { return BoxTable(Shape{4}, {{-1, Box{{0, 2}}}}); });
    message_of(ErrorCode::mesh, [] { return BoxTable(Shape{4}, {{Index{1} << 31, Box{{0, 2}}}}); });

    BoxTable const to(Shape{8}, {{0, Box{{1, 7}}}});
    message_of(ErrorCode::shape, [&] { return exchange(BoxTable(Shape{9}, {}), to, 0); });
    std::string const gap = message_of(ErrorCode::placement, [&] {
        return exchange(BoxTable(Shape{8}, {{1, Box{{0, 3}}}, {2, Box{{5, 8}}}}), to, 0);
    });
    CHECK(says(gap, "rank 0 needs [1:7]"));
    CHECK(says(gap, "[3:5] of it no rank holds"));
    std::string const twice = message_of(ErrorCode::placement, [&] {
        return exchange(BoxTable(Shape{8}, {{1, Box{{0, 5}}}, {2, Box{{4, 8}}}}), to, 0);
    });
    CHECK(says(twice, "[4:5] is held by [4:8] of rank 2 and by [0:5] of rank 1, which overlap"));
    // Where nobody needs it, a hole or an overlap is nobody's trouble.
    CHECK(exchange(BoxTable(Shape{8}, {{1, Box{{0, 8}}}, {2, Box{{7, 8}}}}), BoxTable(Shape{8}, {{0, Box{{1, 7}}}}), 0)
              .receives.size() == 1);
}

TEST_CASE("both sides of every pair list the same boxes in the same order, and each element comes once") {
    for (std::uint64_t const seed : test::seeds(1'500)) {
        CAPTURE(seed);
        test::Random random(seed, {.max_dims = 3, .max_extent = 12, .max_elements = 300, .partial = false});
        DynamicShape const shape = random.shape();
        Index const ranks = random.between(1, 6);
        auto const cut = [&](bool copies) {
            std::vector<HeldBox> boxes;
            for (Box const& box : test::guillotine(random, Box(shape), static_cast<int>(random.between(0, 10)))) {
                boxes.push_back({random.between(0, ranks - 1), box});
                while (copies && random.chance(30)) boxes.push_back({random.between(0, ranks - 1), box});
            }
            std::shuffle(boxes.begin(), boxes.end(), random.engine());
            return boxes;
        };
        BoxTable const from(shape, cut(true));
        std::vector<HeldBox> wanted = cut(true);
        for (HeldBox const& more : cut(false)) wanted.push_back(more);  // that overlap the others
        BoxTable const to(shape, wanted);
        using Pair = std::pair<Index, Index>;
        std::map<Pair, std::vector<std::string>> sent;
        std::map<Pair, std::vector<std::string>> received;
        for (Index rank = 0; rank < ranks; ++rank) {
            planning::BoxExchange const mine = exchange(from, to, rank);
            auto const text = [](planning::BoxMessage const& m) {
                return errors::concat(to_string(m.box), " ", m.from, " ", m.to);
            };
            for (planning::BoxMessage const& m : mine.sends) sent[{rank, m.peer}].push_back(text(m));
            for (planning::BoxMessage const& m : mine.receives) received[{m.peer, rank}].push_back(text(m));
            std::vector<Index> arrived(wanted.size(), 0);
            for (auto const* messages : {&mine.receives, &mine.kept}) {
                for (planning::BoxMessage const& m : *messages) {
                    REQUIRE(contains(from.boxes()[m.from].box, m.box));
                    REQUIRE(contains(to.boxes()[m.to].box, m.box));
                    REQUIRE(from.boxes()[m.from].rank == m.peer);
                    REQUIRE(to.boxes()[m.to].rank == rank);
                    arrived[m.to] += m.box.size();
                }
            }
            for (std::size_t i = 0; i < to.boxes().size(); ++i)
                REQUIRE(arrived[i] == (to.boxes()[i].rank == rank ? to.boxes()[i].box.size() : 0));
        }
        REQUIRE(sent == received);
    }
}

TEST_CASE("between distributions it moves what their plan moves") {
    for (std::uint64_t const seed : test::seeds(1'500)) {
        test::Random random(seed,
                            {.max_ranks = 8, .max_dims = 3, .max_extent = 12, .max_elements = 300, .partial = false});
        DynamicMesh const mesh = random.mesh();
        DynamicShape const shape = random.shape();
        auto const from = random.distribution(mesh, shape);
        auto const to = random.distribution(mesh, shape);
        INFO(test::reproduction(seed, from, to));
        Plan<> const closed = plan(from, to);
        BoxTable const a(from);
        BoxTable const b(to);
        for (Index i = 0; i < mesh.size(); ++i) {
            Index const rank = mesh.rank_at(i);
            REQUIRE(cost(a, b, rank).received == closed.cost(rank).received);
        }
    }
}
