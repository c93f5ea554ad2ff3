// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace reshard;

namespace {

/// Text -> distribution -> the same text.
void check_round_trip(char const* text, DynamicShape const& shape) {
    CAPTURE(text);
    CHECK(to_string(parse(text, shape)) == text);
}

std::string complaint(char const* text) {
    try {
        static_cast<void>(parse(text, Shape{8, 8}));
    } catch (NotationError const& error) {
        return error.message();
    } catch (MeshError const& error) {  // of names
        return error.message();
    } catch (PlacementError const& error) {
        return error.message();
    }
    return "no error";
}

}  // namespace

TEST_CASE("types print as the notation shows") {
    Shape const shape{8, 8};
    CHECK(to_string(distribution<Replicate, Shard<0>>(Mesh{2, 4}, shape)) == "(2,4):(R,S0)");
    CHECK(to_string(distribution<Partial<>>(Mesh<8>{}, shape)) == "(8):(P+)");
    CHECK(to_string(distribution<Shard<0>, Shard<0>>(Mesh{2, 4}, shape, AxisOrder<1, 0>{})) == "(2,4):(S0,S0)@1,0");
    CHECK(to_string(distribution<Shard<0, Balanced>>(Mesh{8}, shape)) == "(8):(S0:bal)");
    CHECK(to_string(distribution(Mesh{8}, shape, Shard<1, BlockCyclic>{{64}})) == "(8):(S1:cyc64)");
    CHECK(to_string(distribution(Mesh{8}, shape, Shard<1, Strided>{{3}})) == "(8):(S1:str3)");
    CHECK(to_string(distribution(Mesh{2}, shape, Shard<0, Boundaries>{{0, 3, 8}})) == "(2):(S0[0,3,8])");
    CHECK(to_string(distribution<Replicate>(Mesh{2}.on(first_rank(8)), shape)) == "(2)+8:(R)");
    CHECK(to_string(distribution<Replicate>(Mesh{3}.on({0, {4, 0, 2}}), shape)) == "(3)[4,0,2]:(R)");
    CHECK(to_string(Mesh{2, 4}) == "(2,4)");
    CHECK(to_string(Placement::partial(Reduce::avg)) == "Pavg");
}

TEST_CASE("messages name 16 of many listed ranks, and how many there are; what is parsed names all") {
    auto const ring = [](Index size) {
        std::vector<Index> ranks;
        for (Index i = 0; i < size; ++i) ranks.push_back(size - 1 - i);
        return DynamicMesh({size}, listed_ranks(ranks));
    };
    CHECK(detail::brief(ring(400)) ==
          "(400)[399,398,397,396,395,394,393,392,391,390,389,388,387,386,385,384,... (400 ranks)]");
    CHECK(detail::brief(ring(16)) == to_string(ring(16)));
    CHECK(detail::brief(DynamicMesh({400}, first_rank(7))) == "(400)+7");
    DynamicDistribution const rows = distribution(ring(400), Shape{800}, "S0");
    CHECK(detail::brief(rows) == detail::brief(ring(400)) + ":(S0)");
    CHECK(parse(to_string(rows), Shape{800}) == rows);
}

TEST_CASE("every form of the notation parses and prints as itself") {
    for (char const* text :
         {"(8):(P+)", "(8):(P*)", "(8):(P<)", "(8):(P>)", "(8):(P&)", "(8):(P|)", "(8):(P^)", "(8):(Pavg)", "(1):(R)",
          "(2,4):(R,S0)", "(2,4):(S0,S0)@1,0", "(8):(S0:bal)", "(8):(S1:cyc64)", "(2):(S0[0,3,8])", "(2)+8:(R)",
          "(3)[4,0,2]:(S1)", "(2,2,2):(S0,S1,S0)@2,0", "(2,2,2,2):(S0,S1,S0,S1)@2,0,3,1",
          "(2,2,2,2,2,2,2,2):(R,R,R,R,P+,P+,S0,S1)"}) {
        check_round_trip(text, Shape{8, 8});
    }
    check_round_trip("(10):(S0[0,1,2,3,4,5,6,7,8,9,10])", Shape{10});
    check_round_trip("(1):(S7)", Shape{1, 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("an order that changes nothing is not printed") {
    Shape const shape{8, 8};
    CHECK(to_string(parse("(2,2):(S0,S1)@1,0", shape)) == "(2,2):(S0,S1)");
    CHECK(to_string(parse("(2,2):(S0,S0)@0,1", shape)) == "(2,2):(S0,S0)");
    CHECK(to_string(parse("(2,2):(R,S0)@0,1", shape)) == "(2,2):(R,S0)");
    // Two dimensions with orders of their own: one spelling, however they were interleaved.
    CHECK(to_string(parse("(2,2,2,2):(S0,S1,S0,S1)@3,1,2,0", shape)) == "(2,2,2,2):(S0,S1,S0,S1)@2,0,3,1");
}

TEST_CASE("spaces are ignored, brackets around placements are optional") {
    Shape const shape{8, 8};
    CHECK(parse(" ( 2 , 4 ) : ( R , S 0 [ 0, 1, 2, 3, 8 ] ) ", shape) == parse("(2,4):(R,S0[0,1,2,3,8])", shape));
    CHECK(parse("(2,4):R,S0", shape) == parse("(2,4):(R,S0)", shape));
    CHECK(distribution(Mesh{2, 4}, shape, "S0,R") == parse("(2,4):(S0,R)", shape));
    CHECK(distribution(Mesh{2, 4}, shape, "(S0,R)") == parse("(2,4):(S0,R)", shape));
    CHECK(distribution(Mesh{2, 4}, shape, "S0,S0@1,0") == parse("(2,4):(S0,S0)@1,0", shape));
}

TEST_CASE("axes have names where the mesh has them") {
    Shape const shape{8, 8};
    auto const mesh = Mesh{2, 4}.named("dp", "tp");
    CHECK(to_string(distribution<Replicate, Shard<0>>(mesh, shape)) == "(dp=2,tp=4):(R,S0)");
    CHECK(to_string(mesh.on(first_rank(8))) == "(dp=2,tp=4)+8");
    auto const read = parse(" ( dp = 2 , tp=4 ) + 8:(S0,S0)@tp,dp", shape);
    CHECK(read.mesh().axis("tp") == 1);
    CHECK(to_string(read) == "(dp=2,tp=4)+8:(S0,S0)@1,0");
    CHECK(parse("(dp=2,4):(R,S0)", shape).mesh().axis("dp") == 0);
    CHECK(to_string(parse("(dp=2,4):(R,S0)", shape)) == "(dp=2,4):(R,S0)");
    CHECK(parse("(dp=2,tp=4):(R,S0)", shape) == parse("(2,4):(R,S0)", shape));
    CHECK(complaint("(dp=2,tp=4):[tq]").find("the mesh (dp=2,tp=4) has no axis tq at position 15") !=
          std::string::npos);
    CHECK_THROWS_WITH_AS(static_cast<void>(distribution(Mesh{4}, shape, "[dp]")),
                         "reshard::parse: the mesh (4) has no axis dp at position 3 of '[dp]'. "
                         "Fix: write for example (2,4):(R,S0), (8):(P+) or (2,4):(S0,S0)@1,0.",
                         NotationError);
    CHECK(complaint("(dp=2,dp=4):(R,R)") ==
          "reshard::Mesh: two axes are called 'dp'. Fix: give each a name of its own.");
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.named("d p")), MeshError);
    CHECK_THROWS_AS(static_cast<void>(Mesh{2}.named("2d")), MeshError);
}

TEST_CASE("cuts may be listed by dimension, as JAX's PartitionSpec does, and dimensions counted from the end") {
    Shape const shape{8, 8};
    auto const same = [&](char const* text, char const* printed) {
        CAPTURE(text);
        CHECK(to_string(parse(text, shape)) == printed);
    };
    same("(dp=2,tp=4):[tp,-]", "(dp=2,tp=4):(R,S0)");
    same("(dp=2,tp=4):[-,tp]", "(dp=2,tp=4):(R,S1)");
    same("(dp=2,tp=4):[tp]", "(dp=2,tp=4):(R,S0)");
    same("(dp=2,tp=4):[]", "(dp=2,tp=4):(R,R)");
    same("(dp=2,tp=4):[tp,dp]", "(dp=2,tp=4):(S1,S0)");
    same("(dp=2,tp=4):[(dp,tp)]", "(dp=2,tp=4):(S0,S0)");
    same("(dp=2,tp=4):[(tp,dp),-]", "(dp=2,tp=4):(S0,S0)@1,0");
    same("(2,2,2):[ 1 , ( 2 , 0 ) ]", "(2,2,2):(S1,S0,S1)@2,0");
    same("(2,4):(S-2,S-1)", "(2,4):(S0,S1)");
    CHECK(distribution(Mesh{2, 4}.named("dp", "tp"), shape, "[tp,-]") == parse("(2,4):(R,S0)", shape));
    CHECK(complaint("(2,4):[0,0]").find("an axis cuts twice") != std::string::npos);
    CHECK(complaint("(2,4):[-,-,0]").find("more than the 2 dimensions") != std::string::npos);
}

TEST_CASE("a complaint shows the text, the position and an example") {
    CHECK(complaint("(2,4):(R,X)") ==
          "reshard::parse: expected R, S or P at position 9 of '(2,4):(R,X)'. "
          "Fix: write for example (2,4):(R,S0), (8):(P+) or (2,4):(S0,S0)@1,0.");
    CHECK(complaint("(2,4):(R,P)").find("expected one of + avg < > * & | ^ after P") != std::string::npos);
    CHECK(complaint("(2):(S-3)") ==
          "reshard::parse: no dimension S-3 in a tensor of 2 at position 8 of '(2):(S-3)'. "
          "Fix: S-1 is the last dimension, S0 the first.");
    for (char const* torch : {"(2):(Shard(0))", "(2):(Replicate())", "(2):(Partial())"}) {
        CHECK(complaint(torch) ==
              errors::concat("reshard::parse: a placement is spelt as in PyTorch at position 5 of '", torch,
                             "'. Fix: write S0 for Shard(0), R for Replicate() and P+ for Partial(), as in "
                             "R,S0."));
    }
    CHECK(complaint("(2,4):(R,S8)").find("no dimension S8 in a tensor of 2") != std::string::npos);
    CHECK(complaint("(2,4):(R,S0:foo)").find("no such split rule at position 11") != std::string::npos);
    CHECK(complaint("(2,4):(R,S0:foo)").find("Fix: write S0:bal, S0:cycN, S0:strN, S0[0,3,9]") != std::string::npos);
    CHECK(complaint("(dp=2,tp=4):[pp]").find("the mesh (dp=2,tp=4) has no axis pp at position 15") !=
          std::string::npos);
    CHECK(complaint("(2,4):[pp]").find("the mesh (2,4) has no axis pp at position") != std::string::npos);
    CHECK_THROWS_WITH_AS(static_cast<void>(distribution(Mesh{2, 4}, Shape{8, 4}, "(2,4):(R,S0)")),
                         "reshard::parse: the placements begin with a mesh at position 0 of '(2,4):(R,S0)'. "
                         "Fix: give placements alone, such as R,S0; parse() reads all of it.",
                         NotationError);
    CHECK(complaint("(1,1,1,1,1,1,1,1,1):(R)").find("at most 8 axes") != std::string::npos);
    CHECK(complaint("(1):(R,R,R,R,R,R,R,R,R)").find("at most 8 axes") != std::string::npos);
    CHECK(complaint("(2,4):(S0,S0)@2").find("the mesh (2,4) has no axis 2 ") != std::string::npos);
    CHECK(complaint("(9999999999999999999):(R)").find("does not fit 64 bits") != std::string::npos);
}

TEST_CASE("text that is not the notation is refused") {
    for (char const* text : {"",
                             " ",
                             "R",
                             "(2,4)",
                             "(2,4):",
                             "(2,4):()",
                             "(2,4):(R,)",
                             "(2,4):(R,S0",
                             "(2,4):(R,S)",
                             "2,4:(R,R)",
                             "(2,4):(R,S0))",
                             "(2,4):(R,S0)@",
                             "(2,4):(R,S0)@0,",
                             "(2,4):(R,S0) x",
                             "(2,,4):(R,R)",
                             "(-2):(R)",
                             "(2):(S-0)",
                             "(2):(S-9)",
                             "(2):(S--1)",
                             "(2):[",
                             "(2):[]]",
                             "(2):[0",
                             "(2):[0,]",
                             "(2):[0,-,-]",
                             "(2):[1]",
                             "(2):[0,0]",
                             "(2):[(0,0)]",
                             "(2):[()]",
                             "(2):[(0]",
                             "(2):[x]",
                             "(x=2):[y]",
                             "(x=2,x=2):[x]",
                             "(x=):(R)",
                             "(=2):(R)",
                             "(x 2):(R)",
                             "(x):(R)",
                             "(sixteen_letters_=2):(R)",
                             "(2,2):(S0,S0)@x",
                             "(2):(S0:)",
                             "(2):(S0:cyc)",
                             "(2):(S0:bal2)",
                             "(2):(S0[])",
                             "(2):(S0[0,4,8)",
                             "(2)+:(R)",
                             "(2)[]:(R)",
                             "(2)[0:(R)",
                             "(2):(r)",
                             "(2):(Pavg+)",
                             "(8):(P++)"}) {
        CAPTURE(text);
        CHECK(complaint(text) != "no error");
    }
}

TEST_CASE("well written but impossible meshes and placements get their own error") {
    Shape const shape{8, 8};
    CHECK_THROWS_AS(static_cast<void>(parse("(0):(R)", shape)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(parse("(2)[1,1]:(R)", shape)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(parse("(2)+9223372036854775799:(R)", shape)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(parse("(99999,99999):(R,R)", shape)), MeshError);
    CHECK_THROWS_AS(static_cast<void>(parse("(2):(S2)", shape)), PlacementError);
    CHECK_THROWS_AS(static_cast<void>(parse("(2):(R,R)", shape)), PlacementError);
}

TEST_CASE("shapes parse as they print") {
    for (DynamicShape const& shape : std::initializer_list<DynamicShape>{DynamicShape{}, Shape{7}, Shape{8192, 0, 1024},
                                                                         Shape{1, 2, 3, 4, 5, 6, 7, 8}}) {
        CHECK(parse_shape(to_string(shape)) == shape);
    }
    CHECK(parse_shape(" [ 3, 4 ] ") == Shape{3, 4});
    for (char const* text : {"", "[", "[3", "[3,]", "[,3]", "3,4", "[3,4]]", "[-1]", "[3 4]", "[1,1,1,1,1,1,1,1,1]"}) {
        CAPTURE(text);
        CHECK_THROWS_WITH_AS(static_cast<void>(parse_shape(text)),
                             doctest::Contains("Fix: write for example [8192,1024], or [] for a scalar."),
                             NotationError);
    }
    CHECK_THROWS_AS(static_cast<void>(parse_shape("[9223372036854775807,9223372036854775807]")), ShapeError);
}
