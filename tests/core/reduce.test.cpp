// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/reduce.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace reshard;

namespace {

constexpr Reduce all[] = {Reduce::sum,     Reduce::avg,  Reduce::min, Reduce::max,
                          Reduce::product, Reduce::band, Reduce::bor, Reduce::bxor};
static_assert(sizeof(all) / sizeof(Reduce) == reduce_count);

static_assert(!has_identity(Reduce::avg) && has_identity(Reduce::sum) && has_identity(Reduce::product) &&
              has_identity(Reduce::min) && has_identity(Reduce::max) && has_identity(Reduce::band) &&
              has_identity(Reduce::bor) && has_identity(Reduce::bxor));
static_assert(is_linear(Reduce::sum) && is_linear(Reduce::avg) && !is_linear(Reduce::max) &&
              !is_linear(Reduce::product));
static_assert(is_ordered(Reduce::min) && is_ordered(Reduce::max) && !is_ordered(Reduce::sum) &&
              !is_ordered(Reduce::band));
static_assert(supports(Reduce::sum, DType::bf16) && supports(Reduce::sum, DType::u8) &&
              supports(Reduce::max, DType::i64));
static_assert(!supports(Reduce::band, DType::f32) && !supports(Reduce::bxor, DType::bf16),
              "bits of floats mean nothing");
static_assert(supports(Reduce::bor, DType::boolean) && supports(Reduce::bxor, DType::u64));
static_assert(!supports(Reduce::avg, DType::i32), "it would round, and silently");
static_assert(supports(Reduce::avg, DType::f16));

}  // namespace

TEST_CASE("symbols and names are distinct, and no symbol begins another") {
    std::set<std::string> symbols;
    std::set<std::string> names;
    for (Reduce op : all) {
        symbols.emplace(symbol(op));
        names.emplace(name(op));
        for (Reduce other : all) {
            if (op != other) CHECK(symbol(other).substr(0, symbol(op).size()) != symbol(op));
        }
    }
    CHECK(symbols == std::set<std::string>{"+", "avg", "<", ">", "*", "&", "|", "^"});
    CHECK(names.size() == reduce_count);
    CHECK(name(Reduce::product) == "product");
    CHECK(symbol(Reduce::product) == "*");
    CHECK(symbol(Reduce::min) == "<");
    CHECK(symbol(Reduce::max) == ">");
}

TEST_CASE("an op is idempotent exactly when folding a number with itself changes nothing") {
    auto const fold = [](Reduce op, int a, int b) {
        switch (op) {
            case Reduce::sum: return a + b;
            case Reduce::avg: return (a + b) / 2;
            case Reduce::min: return a < b ? a : b;
            case Reduce::max: return a < b ? b : a;
            case Reduce::product: return a * b;
            case Reduce::band: return a & b;
            case Reduce::bor: return a | b;
            case Reduce::bxor: return a ^ b;
        }
        return 0;
    };
    for (Reduce op : all) {
        CAPTURE(name(op));
        bool unchanged = true;
        for (int x : {0, 1, 2, 5, 255}) unchanged = unchanged && fold(op, x, x) == x;
        CHECK(is_idempotent(op) == unchanged);
        CHECK(is_bitwise(op) == (op == Reduce::band || op == Reduce::bor || op == Reduce::bxor));
    }
}

TEST_CASE("the ops that messages list are those that are supported") {
    for (DType dtype :
         {DType::f4, DType::f8_e4m3, DType::boolean, DType::u8, DType::i64, DType::bf16, DType::f64, DType::c64}) {
        CAPTURE(name(dtype));
        std::string const listed = std::string(supported_ops(dtype)) + ",";
        for (Reduce op : all) {
            CAPTURE(name(op));
            CHECK(supports(op, dtype) == (listed.find(std::string(name(op)) + ",") != std::string::npos));
        }
    }
}

TEST_CASE("no op is defined on types that cannot be computed with") {
    for (Reduce op : all) {
        for (DType dtype : {DType::f4, DType::f8_e4m3, DType::f8_e8m0}) CHECK_FALSE(supports(op, dtype));
        CHECK(supports(op, DType::c64) == (op == Reduce::sum || op == Reduce::avg));  // floats, two by two
    }
}
