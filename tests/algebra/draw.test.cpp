// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/algebra/draw.hpp.
#include <reshard/algebra/draw.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {
using namespace reshard;

std::string drawn(char const* text, DynamicShape const& shape) { return draw(parse(text, shape)); }
}  // namespace

TEST_SUITE("algebra/draw") {
    TEST_CASE("a matrix: rows and columns are the parts, cells name the ranks") {
        CHECK(drawn("(2,2):(S0,S1)", Shape{6, 4}) ==
              "(2,2):(S0,S1)  shape [6,4]\n"
              "      | 0:2 | 2:4\n"
              "  0:3 | 0   | 1\n"
              "  3:6 | 2   | 3\n");
    }

    TEST_CASE("copies: runs of ranks are shortened") {
        CHECK(drawn("(2,4):(S0,R)", Shape{8, 8}) ==
              "(2,4):(S0,R)  shape [8,8]\n"
              "      | 0:8\n"
              "  0:4 | 0-3\n"
              "  4:8 | 4-7\n");
        CHECK(drawn("(2,4):(R,S0)", Shape{8, 1}) ==
              "(2,4):(R,S0)  shape [8,1]\n"
              "      | 0:1\n"
              "  0:2 | 0,4\n"
              "  2:4 | 1,5\n"
              "  4:6 | 2,6\n"
              "  6:8 | 3,7\n");
        CHECK(drawn("(3):(R)", Shape{2}) == "(3):(R)  shape [2]\n  0:2 | 0-2\n");
        CHECK(drawn("(2):(R)", Shape{2}) == "(2):(R)  shape [2]\n  0:2 | 0,1\n");
    }

    TEST_CASE("a vector: uneven, block-cyclic and owed parts") {
        CHECK(drawn("(4):(S0)", Shape{5}) ==
              "(4):(S0)  shape [5]\n"
              "  0:2 | 0\n"
              "  2:4 | 1\n"
              "  4:5 | 2\n");
        CHECK(drawn("(2):(S0:cyc2)", Shape{7}) ==
              "(2):(S0:cyc2)  shape [7]\n"
              "  0:2 | 0\n"
              "  2:4 | 1\n"
              "  4:6 | 0\n"
              "  6:7 | 1\n");
        CHECK(drawn("(2):(P+)", Shape{3}) == "(2):(P+)  shape [3]\n  0:3 | 0,1\n");
    }

    TEST_CASE("cutting order, shifted and listed ranks") {
        CHECK(drawn("(2,2):(S0,S0)@1,0", Shape{8}) ==
              "(2,2):(S0,S0)@1,0  shape [8]\n"
              "  0:2 | 0\n"
              "  2:4 | 2\n"
              "  4:6 | 1\n"
              "  6:8 | 3\n");
        CHECK(drawn("(3)[11,4,5]:(S0)", Shape{3}) ==
              "(3)[11,4,5]:(S0)  shape [3]\n"
              "  0:1 | 11\n"
              "  1:2 | 4\n"
              "  2:3 | 5\n");
        // Ranks of one cell follow the mesh's order: only neighbours in it form runs.
        CHECK(drawn("(3)[11,4,5]:(R)", Shape{3}) == "(3)[11,4,5]:(R)  shape [3]\n  0:3 | 11,4,5\n");
    }

    TEST_CASE("scalars, empty tensors and dimensions behind the second") {
        CHECK(drawn("(2):(R)", DynamicShape()) == "(2):(R)  shape []\n  scalar | 0,1\n");
        CHECK(drawn("(2):(S0)", Shape{0}) == "(2):(S0)  shape [0]\n");
        CHECK(drawn("(2):(S1)", Shape{2, 0}) == "(2):(S1)  shape [2,0]\n\n  0:2\n");
        CHECK(drawn("(2):(S0)", Shape{2, 2, 5}) ==
              "(2):(S0)  shape [2,2,5]\n"
              "      | 0:2\n"
              "  0:1 | 0\n"
              "  1:2 | 1\n");
        CHECK(drawn("(2,2):(S2,S0)", Shape{4, 2, 5}) ==
              "(2,2):(S2,S0)  shape [4,2,5]\n"
              "      | 0:2\n"
              "  0:2 | 0,2\n"
              "  2:4 | 1,3\n"
              "  dimension 2 is cut by axis 0, and is not drawn\n");
        CHECK(drawn("(3):(S2)", Shape{1, 1, 2}) ==
              "(3):(S2)  shape [1,1,2]\n      | 0:1\n  0:1 | 0,1\n"
              "  dimension 2 is cut by axis 0, and is not drawn\n");
        CHECK(drawn("(2):(S2)", Shape{1, 1, 0}) ==
              "(2):(S2)  shape [1,1,0]\n      | 0:1\n  0:1 | 0,1\n"
              "  dimension 2 is cut by axis 0, and is not drawn\n");
        CHECK(drawn("(1,2):(S2,R)", Shape{1, 1, 2}) == "(1,2):(S2,R)  shape [1,1,2]\n      | 0:1\n  0:1 | 0,1\n");
        CHECK(draw_svg(parse("(2):(S2)", Shape{1, 1, 2})).find(">dimension 2 is cut by axis 0, and is not drawn<") !=
              std::string::npos);
    }

    TEST_CASE("columns are as wide as their widest cell") {
        CHECK(drawn("(2,2):(S0,S1)", Shape{4, 2000}) ==
              "(2,2):(S0,S1)  shape [4,2000]\n"
              "      | 0:1000 | 1000:2000\n"
              "  0:2 | 0      | 1\n"
              "  2:4 | 2      | 3\n");
    }

    TEST_CASE("typed distributions are drawn too") {
        CHECK(draw(distribution<Shard<0>>(Mesh<2>{}, Shape<2>{})) == "(2):(S0)  shape [2]\n  0:1 | 0\n  1:2 | 1\n");
    }

    TEST_CASE("an SVG picture has a cell for each part, with the ranks of the text, and is well-formed") {
        std::string const svg = draw_svg(parse("(2,2):(P<,S1)", Shape{6, 4}));
        CHECK(svg.starts_with("<svg xmlns="));
        CHECK(svg.ends_with("</svg>\n"));
        CHECK(svg.find("(2,2):(P&lt;,S1)  shape [6,4]") != std::string::npos);
        for (char const* text : {">0,2</text>", ">1,3</text>", ">0:6</text>", ">0:2</text>", ">2:4</text>"}) {
            CAPTURE(text);
            CHECK(svg.find(text) != std::string::npos);
        }
        std::size_t cells = 0;
        for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) ++cells;
        CHECK(cells == 2);
    }

    TEST_CASE("what nobody can look at is refused, and what has no parts is drawn") {
        CHECK_THROWS_WITH_AS((void)drawn("(1048576):(S0)", Shape{1 << 20}),
                             "reshard::draw: more than 16384 ranks, or ends of parts. Fix: draw a smaller mesh, or a "
                             "smaller tensor cut alike.",
                             ShapeError);
        CHECK_THROWS_AS((void)drawn("(2):(S0:cyc1)", Shape{Index{1} << 40}), ShapeError);
        CHECK(drawn("(2,2):(S0,S1)", Shape{0, 4}) == "(2,2):(S0,S1)  shape [0,4]\n   | 0:2 | 2:4\n");
    }
}
