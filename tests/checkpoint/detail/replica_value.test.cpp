// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_value.hpp.
#include <reshard/checkpoint/detail/replica_value.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::detail;

double value(DType dtype, std::uint64_t bits) {
    FloatFormat format;
    REQUIRE(float_format(dtype, format));
    return float_value(format, bits);
}
std::uint64_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
std::uint64_t bits_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }

/// The canonical form of one element.
std::uint64_t canonical(DType dtype, std::uint64_t bits) {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes(dtype)));
    std::memcpy(memory.data(), &bits, memory.size());
    canonicalise(dtype, memory);
    return load_bits(static_cast<int>(bytes(dtype)), memory.data());
}

TEST_CASE("every 16-bit float reads as the library's own conversion reads it") {
    for (std::uint32_t raw = 0; raw < 0x10000U; ++raw) {
        auto const half = static_cast<std::uint16_t>(raw);
        double const values[2] = {value(DType::f16, raw), value(DType::bf16, raw)};
        float const wanted[2] = {static_cast<float>(Float16::from_bits(half)),
                                 static_cast<float>(BFloat16::from_bits(half))};
        for (int i : {0, 1}) {
            bool const same = std::isnan(wanted[i]) ? std::isnan(values[i])
                                                    : values[i] == static_cast<double>(wanted[i]) &&
                                                          std::signbit(values[i]) == std::signbit(wanted[i]);
            if (!same) FAIL(raw);
        }
    }
}

TEST_CASE("the ends of the 8-bit formats are those of their specifications") {
    CHECK(value(DType::f8_e4m3, 0x7e) == 448.0);
    CHECK(value(DType::f8_e4m3, 0x01) == std::ldexp(1.0, -9));
    CHECK(std::isnan(value(DType::f8_e4m3, 0x7f)));
    CHECK(std::isnan(value(DType::f8_e4m3, 0xff)));
    CHECK(value(DType::f8_e5m2, 0x7b) == 57344.0);
    CHECK(value(DType::f8_e5m2, 0x01) == std::ldexp(1.0, -16));
    CHECK(std::isinf(value(DType::f8_e5m2, 0x7c)));
    CHECK(std::isnan(value(DType::f8_e5m2, 0x7d)));
    CHECK(value(DType::f8_e4m3fnuz, 0x7f) == 240.0);
    CHECK(value(DType::f8_e4m3fnuz, 0x01) == std::ldexp(1.0, -10));
    CHECK(std::isnan(value(DType::f8_e4m3fnuz, 0x80)));
    CHECK(value(DType::f8_e5m2fnuz, 0x7f) == 57344.0);
    CHECK(value(DType::f8_e5m2fnuz, 0x01) == std::ldexp(1.0, -17));
    CHECK(std::isnan(value(DType::f8_e5m2fnuz, 0x80)));
    CHECK(value(DType::f8_e8m0, 0x00) == std::ldexp(1.0, -127));
    CHECK(value(DType::f8_e8m0, 0x7f) == 1.0);
    CHECK(value(DType::f8_e8m0, 0xfe) == std::ldexp(1.0, 127));
    CHECK(std::isnan(value(DType::f8_e8m0, 0xff)));
}

TEST_CASE("floats and doubles read as themselves, subnormals and infinities too") {
    for (float x : {0.0F, 1.0F, -1.5F, 3.0e38F, 1.0e-45F, 1.17549421e-38F, -INFINITY}) {
        CHECK(value(DType::f32, bits_of(x)) == static_cast<double>(x));
    }
    for (double x : {0.0, 1.0, -1.5, 1.0e308, 5.0e-324, 2.2250738585072009e-308, double{INFINITY}}) {
        CHECK(value(DType::f64, bits_of(x)) == x);
    }
    CHECK(std::isnan(value(DType::f32, 0x7f800001U)));
}

TEST_CASE("values print with all their digits and their bits") {
    CHECK(value_text(DType::f32, bits_of(0.1F)) == "0.100000001 (0x3dcccccd)");
    CHECK(value_text(DType::f64, bits_of(0.1)) == "0.10000000000000001 (0x3fb999999999999a)");
    CHECK(value_text(DType::bf16, 0x8000) == "-0 (0x8000)");
    CHECK(value_text(DType::f16, 0x7e01) == "NaN (0x7e01)");
    CHECK(value_text(DType::f8_e4m3, 0x7e) == "448 (0x7e)");
    CHECK(value_text(DType::i8, 0xff) == "-1");
    CHECK(value_text(DType::i64, 0xffffffffffffffffU) == "-1");
    CHECK(value_text(DType::u64, 0xffffffffffffffffU) == "18446744073709551615");
    CHECK(value_text(DType::boolean, 1) == "1");
    CHECK(value_text(DType::c64, bits_of(1.0F) | bits_of(2.0F) << 32U) == "1+2i (0x400000003f800000)");
}

TEST_CASE("canonical bits are equal exactly where values are equal or both NaN") {
    auto const check_all = [](DType dtype, std::uint64_t count) {
        FloatFormat format;
        REQUIRE(float_format(dtype, format));
        for (std::uint64_t bits = 0; bits < count; ++bits) {
            std::uint64_t const one = canonical(dtype, bits);
            double const before = float_value(format, bits);
            double const after = float_value(format, one);
            bool const same = std::isnan(before) ? std::isnan(after) : before == after;
            if (!same || canonical(dtype, one) != one) FAIL(errors::concat(name(dtype), " ", bits));
            // One zero and one NaN; all other bits stay what they are.
            if (before == 0.0 && one != 0) FAIL(errors::concat(name(dtype), " zero ", bits));
            if (!std::isnan(before) && before != 0.0 && one != bits) FAIL(errors::concat(name(dtype), " ", bits));
            if (std::isnan(before) && one != canonical(dtype, format.one_nan ? bits : format.sign - 1)) FAIL(bits);
        }
    };
    for (DType dtype : {DType::f8_e5m2, DType::f8_e4m3, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::f8_e8m0}) {
        check_all(dtype, 0x100);
    }
    check_all(DType::f16, 0x10000);
    check_all(DType::bf16, 0x10000);
    CHECK(canonical(DType::f32, bits_of(-0.0F)) == 0);
    CHECK(canonical(DType::f32, 0x7f800001U) == canonical(DType::f32, 0xffc12345U));
    CHECK(canonical(DType::f32, bits_of(-INFINITY)) == bits_of(-INFINITY));
    CHECK(canonical(DType::f64, bits_of(-0.0)) == 0);
    CHECK(canonical(DType::f64, 0xfff8000000000001U) == canonical(DType::f64, 0x7ff0000000000001U));
    CHECK(canonical(DType::f64, bits_of(-2.5)) == bits_of(-2.5));
    CHECK(canonical(DType::c64, bits_of(-0.0F) | bits_of(-0.0F) << 32U) == 0);
    for (DType dtype : {DType::boolean, DType::u8, DType::i16, DType::u32, DType::i64}) {
        CHECK(canonical(dtype, 0x80) == 0x80);
    }
}

}  // namespace
