// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/dtype.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace reshard;

namespace {

static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);
static_assert(std::is_trivially_copyable_v<Float16> && std::is_trivially_copyable_v<BFloat16>);
static_assert(dtype_of<float> == DType::f32 && dtype_of<float const> == DType::f32);
static_assert(dtype_of<BFloat16> == DType::bf16 && dtype_of<std::byte> == DType::u8 &&
              dtype_of<bool> == DType::boolean);
static_assert(dtype_of<long> == dtype_of<std::int64_t> && dtype_of<long long> == DType::i64);
static_assert(Element<float> && Element<double const> && Element<Float16>);
static_assert(!Element<long double> && !Element<void*> && !Element<char32_t>);
static_assert(static_cast<float>(BFloat16(1.5F)) == 1.5F && static_cast<float>(Float16(-2.25F)) == -2.25F);

/// A 16-bit format written as its definition: value of every pattern in double, where all of them are exact.
struct Format {
    int exponent_bits;
    int mantissa_bits;

    [[nodiscard]] double value(std::uint16_t bits) const {
        int const bias = (1 << (exponent_bits - 1)) - 1;
        int const exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
        int const mantissa = bits & ((1 << mantissa_bits) - 1);
        double magnitude = 0;
        if (exponent == (1 << exponent_bits) - 1) {
            magnitude =
                mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
        } else if (exponent == 0) {
            magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
        } else {
            magnitude = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
        }
        return (bits >> 15) != 0 ? -magnitude : magnitude;
    }
    /// Nearest pattern, ties to the even one. Infinity stands at the place of the next power of two, as IEEE says.
    /// Patterns of one sign ascend with their value, so the neighbours are found by bisection.
    [[nodiscard]] std::uint16_t nearest(double x) const {
        auto const sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
        double const magnitude = std::fabs(x);
        auto const infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
        double const beyond = std::ldexp(1.0, 1 << (exponent_bits - 1));
        auto const place = [&](std::uint16_t bits) { return bits == infinity ? beyond : value(bits); };
        if (magnitude >= beyond) return static_cast<std::uint16_t>(sign | infinity);
        std::uint16_t low = 0;
        std::uint16_t high = infinity;  // place(low) <= magnitude < place(high)
        while (high - low > 1) {
            auto const middle = static_cast<std::uint16_t>((low + high) / 2);
            (place(middle) <= magnitude ? low : high) = middle;
        }
        double const below = magnitude - place(low);
        double const above = place(high) - magnitude;
        bool const up = above < below || (above == below && (low & 1) != 0);
        return static_cast<std::uint16_t>(sign | (up ? high : low));
    }
};
constexpr Format half{5, 10};
constexpr Format brain{8, 7};

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

/// Every pattern to float and back; then rounding of floats on, beside and between all patterns, and of random ones.
template <class T>
void check_format(Format format) {
    int wrong_values = 0;
    int wrong_round_trips = 0;
    std::vector<float> inputs{0.0F,
                              -0.0F,
                              std::numeric_limits<float>::min(),
                              std::numeric_limits<float>::denorm_min(),
                              std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::lowest(),
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              65504.0F,
                              65519.996F,
                              65520.0F,
                              65536.0F,
                              0x1p-24F,
                              0x1p-25F,
                              0x1.000002p-25F,
                              0x1p-26F};
    for (unsigned bits = 0; bits < 0x10000U; ++bits) {
        auto const pattern = static_cast<std::uint16_t>(bits);
        auto const value = static_cast<float>(T::from_bits(pattern));
        double const expected = format.value(pattern);
        if (std::isnan(expected)) {
            wrong_values += std::isnan(value) ? 0 : 1;
            wrong_round_trips += std::isnan(static_cast<float>(T(value))) ? 0 : 1;
            continue;
        }
        wrong_values += same_bits(value, static_cast<float>(expected)) ? 0 : 1;
        wrong_round_trips += T(value).bits == pattern ? 0 : 1;
        inputs.push_back(value);
        inputs.push_back(std::nextafter(value, std::numeric_limits<float>::infinity()));
        inputs.push_back(std::nextafter(value, -std::numeric_limits<float>::infinity()));
        double const next = format.value(static_cast<std::uint16_t>(pattern + 1));
        if (std::isfinite(expected) && std::isfinite(next)) {
            auto const middle = static_cast<float>((expected + next) / 2);  // a tie
            inputs.push_back(middle);
            inputs.push_back(std::nextafter(middle, std::numeric_limits<float>::infinity()));
            inputs.push_back(std::nextafter(middle, -std::numeric_limits<float>::infinity()));
        }
    }
    CHECK(wrong_values == 0);
    CHECK(wrong_round_trips == 0);

    std::mt19937 rng(20);
    for (int left = test::tries(200'000); left > 0; --left)
        inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng())));
    int wrong_roundings = 0;
    for (float input : inputs) {
        std::uint16_t const bits = T(input).bits;
        bool right = false;
        if (std::isnan(input)) {
            right = std::isnan(format.value(bits)) && (bits >> 15) == (std::bit_cast<std::uint32_t>(input) >> 31);
        } else {
            right = bits == format.nearest(static_cast<double>(input));
        }
        if (!right && ++wrong_roundings < 5) {
            CAPTURE(input);
            CHECK(bits == format.nearest(static_cast<double>(input)));
        }
    }
    CHECK(wrong_roundings == 0);
}

}  // namespace

TEST_CASE("dtypes are in safetensors' order, from the least aligned to the most: it decides where tensors lie") {
    std::string all;
    for (int i = 0; i < dtype_count; ++i) all += errors::concat(name(static_cast<DType>(i)), " ");
    CHECK(all ==
          "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 "
          "F32 C64 F64 I64 U64 ");
}

TEST_CASE("binary16: every pattern has its value, and floats round to the nearest, ties to even") {
    check_format<Float16>(half);
}

TEST_CASE("bfloat16: every pattern has its value, and floats round to the nearest, ties to even") {
    check_format<BFloat16>(brain);
}

TEST_CASE("16-bit floats compare as numbers: zeros are equal, NaN is not") {
    CHECK(Float16(0.0F) == Float16(-0.0F));
    CHECK(Float16(0.0F).bits != Float16(-0.0F).bits);
    CHECK(BFloat16(0.0F) == BFloat16(-0.0F));
    float const nan = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(Float16(nan) == Float16(nan));
    CHECK_FALSE(BFloat16(nan) == BFloat16(nan));
    // A NaN whose payload lives in the low bits only must not become an infinity.
    float const low_payload = std::bit_cast<float>(0x7f800001U);
    CHECK(std::isnan(static_cast<float>(BFloat16(low_payload))));
    CHECK(std::isnan(static_cast<float>(Float16(low_payload))));
}

TEST_CASE("the 22 names of safetensors are distinct and parse to themselves") {
    std::set<std::string> names;
    for (int i = 0; i < dtype_count; ++i) {
        auto const dtype = static_cast<DType>(i);
        names.emplace(name(dtype));
        DType parsed = DType::boolean;
        REQUIRE(parse_dtype(name(dtype), parsed));
        CHECK(parsed == dtype);
    }
    CHECK(names.size() == dtype_count);
    DType untouched = DType::i16;
    for (char const* text : {"", "f32", "BF", "BF160", "F32 ", "F128"}) CHECK_FALSE(parse_dtype(text, untouched));
    CHECK(untouched == DType::i16);
}

TEST_CASE("sizes: three are below a byte, the rest are what their names say") {
    CHECK(bits(DType::f4) == 4);
    CHECK(bits(DType::f6_e2m3) == 6);
    CHECK(bits(DType::f6_e3m2) == 6);
    int below = 0;
    for (int i = 0; i < dtype_count; ++i) below += is_byte_sized(static_cast<DType>(i)) ? 0 : 1;
    CHECK(below == 3);
    CHECK(bytes(DType::boolean) == 1);
    CHECK(bytes(DType::f8_e8m0) == 1);
    CHECK(bytes(DType::bf16) == 2);
    CHECK(bytes(DType::u32) == 4);
    CHECK(bytes(DType::c64) == 8);
    CHECK(bytes(DType::u64) == 8);
    // Alignment order: the size never falls along the enumeration.
    for (int i = 1; i < dtype_count; ++i)
        CHECK(bits(static_cast<DType>(i)) >= (i == 1 ? 4 : bits(static_cast<DType>(i - 1))));
}

TEST_CASE("floats and integers are told apart; the rest is neither") {
    int floats = 0;
    int integers = 0;
    for (int i = 0; i < dtype_count; ++i) {
        auto const dtype = static_cast<DType>(i);
        CHECK_FALSE((is_floating(dtype) && is_integer(dtype)));
        floats += is_floating(dtype) ? 1 : 0;
        integers += is_integer(dtype) ? 1 : 0;
    }
    CHECK(floats == 4);
    CHECK(integers == 8);
}
