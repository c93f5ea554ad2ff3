// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/explain.hpp. The texts are documentation: they are compared whole.
#include <reshard/plan/explain.hpp>

#include <reshard/core/detail/explain_text.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {
using namespace reshard;

std::string within(char const* from, char const* to, DynamicShape const& shape, Index rank, DType dtype) {
    return explain(plan(parse(from, shape), parse(to, shape)), rank, dtype);
}
std::string between(char const* from, char const* to, DynamicShape const& shape, Index rank, DType dtype) {
    return explain(plan_across(parse(from, shape), parse(to, shape)), rank, dtype);
}
}  // namespace

TEST_SUITE("plan/explain") {
    TEST_CASE("a view") {
        CHECK(within("(2,4):(R,R)", "(2,4):(R,S0)", Shape{8192, 1024}, 5, DType::f32) ==
              "(2,4):(R,R) -> (2,4):(R,S0)  shape [8192,1024] F32, rank 5: view\n"
              "  because: axis 0 R->R stays; axis 1 R->S0 keeps a part of its copy\n"
              "  a view of local memory: no copy, no communicator, 0 B\n");
    }

    TEST_CASE("a local copy") {
        CHECK(within("(2):(S0)", "(2):(P+)", Shape{8}, 1, DType::bf16) ==
              "(2):(S0) -> (2):(P+)  shape [8] BF16, rank 1: copy\n"
              "  because: axis 0 S0->P+ is filled\n"
              "  a copy within the rank: no communicator, 0 B\n");
        CHECK(within("(2):(P+)", "(2):(Pavg)", Shape{8}, 1, DType::f64) ==
              "(2):(P+) -> (2):(Pavg)  shape [8] F64, rank 1: copy\n"
              "  because: axis 0 P+->Pavg is scaled\n"
              "  a copy within the rank: no communicator, 0 B\n");
    }

    TEST_CASE("one exchange, shared by the copies of what is sent") {
        CHECK(within("(2,4):(R,S0)", "(2,4):(S0,R)", Shape{8192, 1024}, 5, DType::f32) ==
              "(2,4):(R,S0) -> (2,4):(S0,R)  shape [8192,1024] F32, rank 5: collective\n"
              "  because: axis 0 R->S0 keeps a part of its copy; axis 1 S0->R is gathered\n"
              "  phase 1: exchange; sends 16.0 MiB in 2 messages to 2 peers; receives 16.0 MiB in 2 messages from 2 "
              "peers\n"
              "  receives 16.0 MiB, lower bound 16.0 MiB\n");
        CHECK(
            within("(4):(S0)", "(4):(S1)", Shape{64, 64}, 1, DType::bf16) ==
            "(4):(S0) -> (4):(S1)  shape [64,64] BF16, rank 1: collective\n"
            "  because: axis 0 S0->S1 is cut another way\n"
            "  phase 1: exchange; sends 1.5 KiB in 3 messages to 3 peers; receives 1.5 KiB in 3 messages from 3 peers\n"
            "  receives 1.5 KiB, lower bound 1.5 KiB\n");
    }

    TEST_CASE("exchange, fold, exchange") {
        CHECK(within("(4):(P+)", "(4):(R)", Shape{64}, 2, DType::f32) ==
              "(4):(P+) -> (4):(R)  shape [64] F32, rank 2: collective\n"
              "  because: axis 0 P+->R is folded\n"
              "  phase 1: exchange and fold of 4 addends (sum, in mesh order) as (4):(S0:bal); "
              "sends 192 B in 3 messages to 3 peers; receives 192 B in 3 messages from 3 peers\n"
              "  phase 2: exchange; sends 192 B in 3 messages to 3 peers; receives 192 B in 3 messages from 3 peers\n"
              "  receives 384 B, lower bound 384 B for the busiest rank\n");
    }

    TEST_CASE("an even share is a bound on the busiest rank: others may stay below it") {
        std::string const second = within("(4):(P+)", "(4):(R)", Shape{5}, 1, DType::f32);
        CAPTURE(second);
        CHECK(second.find("  receives 28 B, lower bound 32 B for the busiest rank\n") != std::string::npos);
    }

    TEST_CASE("one Partial becomes another: folded, then the identity elsewhere") {
        CHECK(within("(4):(P>)", "(4):(P+)", Shape{64}, 3, DType::i32) ==
              "(4):(P>) -> (4):(P+)  shape [64] I32, rank 3: collective\n"
              "  because: axis 0 P>->P+ is folded\n"
              "  the destination starts as the identity of sum\n"
              "  phase 1: exchange and fold of 4 addends (max, in mesh order) as (4):(S0:bal); "
              "sends 192 B in 3 messages to 3 peers; receives 192 B in 3 messages from 3 peers\n"
              "  receives 192 B, lower bound 192 B for the busiest rank\n");
    }

    TEST_CASE("where folds and moves mix, no bound is known, and that is said") {
        CHECK(
            within("(2,4):(P+,S0)", "(2,4):(S1,R)", Shape{8192, 1024}, 3, DType::bf16) ==
            "(2,4):(P+,S0) -> (2,4):(S1,R)  shape [8192,1024] BF16, rank 3: collective\n"
            "  because: axis 0 P+->S1 is folded; axis 1 S0->R is gathered\n"
            "  phase 1: exchange and fold of 2 addends (sum, in mesh order) as (2,4):(S1,S0) in 16 chunks; "
            "sends 2.0 MiB in 16 messages to 1 peer; receives 2.0 MiB in 16 messages from 1 peer\n"
            "  phase 2: exchange; sends 6.0 MiB in 3 messages to 3 peers; receives 6.0 MiB in 3 messages from 3 peers\n"
            "  receives 8.0 MiB, no bound is known for this combination of Partial axes\n");
    }

    TEST_CASE("a factor between sum and average is named") {
        std::string const text = within("(2,2):(P+,P+)", "(2,2):(Pavg,R)", Shape{64}, 3, DType::f32);
        CAPTURE(text);
        CHECK(text.find("axis 0 P+->Pavg is scaled; axis 1 P+->R is folded") != std::string::npos);
        CHECK(text.find("  then scaled by 2/1\n") != std::string::npos);
    }

    TEST_CASE("a mesh of many listed ranks is named by some of them") {
        std::vector<Index> ranks;
        for (Index i = 0; i < 400; ++i) ranks.push_back(i ^ 1);
        DynamicMesh const ring({400}, listed_ranks(ranks));
        std::string const text = explain(
            plan(distribution(ring, Shape{400, 400}, "S0"), distribution(ring, Shape{400, 400}, "S1")), 0, DType::f32);
        CHECK(text.starts_with("(400)[1,0,3,2,5,4,7,6,9,8,11,10,13,12,15,14,... (400 ranks)]:(S0) -> (400)[1,0,"));
        CHECK(text.size() < 600);
    }

    TEST_CASE("an op that the element type does not have is said, as prepare() refuses it") {
        auto const sums = plan(parse("(2):(P+)", Shape{4}), parse("(2):(R)", Shape{4}));
        auto const refused = [&](DType dtype) {
            return explain(sums, 0, dtype).find("  prepare() refuses it: sum is not defined for BOOL\n") !=
                   std::string::npos;
        };
        CHECK(refused(DType::boolean));
        CHECK(!refused(DType::f32));
    }

    TEST_CASE("between meshes: givers, takers and ranks that are neither") {
        CHECK(between("(4):(P+)", "(2)+4:(S0)", Shape{24}, 1, DType::f32) ==
              "(4):(P+) -> (2)+4:(S0)  shape [24] F32, rank 1: collective\n"
              "  because: the two sides are different meshes\n"
              "  phase 1: exchange and fold of 4 addends (sum, in mesh order) as (4):(S0:bal); "
              "sends 72 B in 3 messages to 3 peers; receives 72 B in 3 messages from 3 peers\n"
              "  phase 2: exchange; sends 24 B in 1 message to 1 peer; receives nothing\n"
              "  receives 72 B, no bound is known for this combination of Partial axes\n");
        CHECK(between("(4):(P+)", "(2)+4:(S0)", Shape{24}, 5, DType::f32) ==
              "(4):(P+) -> (2)+4:(S0)  shape [24] F32, rank 5: collective\n"
              "  because: the two sides are different meshes\n"
              "  phase 2: exchange; sends nothing; receives 48 B in 2 messages from 2 peers\n"
              "  receives 48 B, lower bound 48 B\n");
        CHECK(between("(4):(P+)", "(2)+4:(S0)", Shape{24}, 9, DType::f32) ==
              "(4):(P+) -> (2)+4:(S0)  shape [24] F32, rank 9: collective\n"
              "  because: the two sides are different meshes\n"
              "  the rank is in neither mesh: 0 B\n");
        CHECK(between("(4):(P+)", "(4):(S0)", Shape{24}, 1, DType::f32)
                  .find("  because: plan_across() was asked for; ") != std::string::npos);
        CHECK(between("(1):(R)", "(4):(P+)", Shape{24}, 0, DType::f32) ==
              "(1):(R) -> (4):(P+)  shape [24] F32, rank 0: collective\n"
              "  because: the two sides are different meshes\n"
              "  the destination starts as the identity of sum\n"
              "  phase 1: exchange; sends nothing; receives nothing\n"
              "  receives 0 B, lower bound 0 B\n");
    }

    TEST_CASE("types know more than values: an axis of one") {
        auto const typed = plan(distribution<Shard<0>, Replicate>(Mesh<1, 4>{}, Shape<8>{}),
                                distribution<Replicate, Shard<0>>(Mesh<1, 4>{}, Shape<8>{}));
        std::string const text = explain(typed, 2, dtype_of<float>);
        CAPTURE(text);
        CHECK(text.find("rank 2: view\n") != std::string::npos);
        CHECK(text.find("a view of local memory") != std::string::npos);
    }

    TEST_CASE("elements smaller than a byte are counted in bits") {
        std::string const text = within("(2):(S0)", "(2):(R)", Shape{16}, 0, DType::f4);
        CAPTURE(text);
        CHECK(text.find("  receives 4 B, lower bound 4 B\n") != std::string::npos);
    }

    TEST_CASE("bytes are printed in binary units with one digit") {
        CHECK(detail::bytes_text(0) == "0 B");
        CHECK(detail::bytes_text(1023) == "1023 B");
        CHECK(detail::bytes_text(1024) == "1.0 KiB");
        CHECK(detail::bytes_text(1536) == "1.5 KiB");
        CHECK(detail::bytes_text(Index{1} << 20) == "1.0 MiB");
        CHECK(detail::bytes_text((Index{1} << 30) * 5 / 2) == "2.5 GiB");
        CHECK(detail::bytes_text(Index{3} << 40) == "3.0 TiB");
        CHECK(detail::bytes_text(Index{1} << 62) == "4.0 EiB");
        CHECK(detail::bytes_text(Index{1} << 61, DType::u8) == "2.0 EiB");
        CHECK(detail::bytes_text(INT64_MAX, DType::u8) == "7.9 EiB");
        CHECK(detail::bytes_text(INT64_MAX, DType::f4) == "4.0 EiB");
        CHECK(detail::bytes_text(INT64_MAX, DType::bf16) == "9223372036854775807 elements");
        CHECK(detail::bytes_text(3, DType::f4) == "2 B");
    }
}
