// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/convert.hpp.
#include <reshard/memory/convert.hpp>

#include "boxes.hpp"

#include <doctest/doctest.h>

#include <support/random.hpp>

#include <algorithm>
#include <cmath>  // frexp, ldexp, nextafter
#include <cstring>
#include <limits>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;

/// The oracle: values as sign * digits * 2^exponent with up to 128 digits, rounded by comparing remainders. It shares
/// nothing with the library but the meaning of the formats.
__extension__ using Digits = unsigned __int128;

struct Exact {
    enum class Class { number, infinity, nan } kind = Class::number;
    bool negative = false;
    Digits digits = 0;
    int exponent = 0;
};

struct Format {
    int precision;  ///< binary digits of a normal number
    int last;       ///< exponent of the last digit of subnormal numbers
    int limit;      ///< numbers of this power of two and above are beyond it
    int exponent_bits;
    int mantissa_bits;
};
Format format_of(DType dtype) {
    switch (dtype) {
        case DType::f16: return {11, -24, 16, 5, 10};
        case DType::bf16: return {8, -133, 128, 8, 7};
        case DType::f32: return {24, -149, 128, 8, 23};
        default: return {53, -1074, 1024, 11, 52};
    }
}

Exact of_bits(Format format, std::uint64_t bits) {
    Exact value;
    value.negative = ((bits >> (format.exponent_bits + format.mantissa_bits)) & 1U) != 0;
    std::uint64_t const mantissa = bits & ((std::uint64_t{1} << format.mantissa_bits) - 1);
    auto const exponent = static_cast<int>((bits >> format.mantissa_bits) & ((1U << format.exponent_bits) - 1));
    if (exponent == (1 << format.exponent_bits) - 1) {
        value.kind = mantissa != 0 ? Exact::Class::nan : Exact::Class::infinity;
    } else {
        value.digits = exponent == 0 ? mantissa : mantissa + (std::uint64_t{1} << format.mantissa_bits);
        value.exponent = format.last + (exponent == 0 ? 0 : exponent - 1);
    }
    return value;
}

Exact read(DType dtype, std::byte const* from) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, static_cast<std::size_t>(bytes(dtype)));
    if (is_floating(dtype)) return of_bits(format_of(dtype), bits);
    Exact value;
    bool const is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
    int const width = reshard::enums::bits(dtype);
    value.negative = is_signed && ((bits >> (width - 1)) & 1U) != 0;
    if (dtype == DType::boolean) bits = bits != 0 ? 1 : 0;
    if (value.negative) {
        std::uint64_t const mask = width == 64 ? ~std::uint64_t{} : (std::uint64_t{1} << width) - 1;
        bits = (~bits + 1) & mask;
    }
    value.digits = bits;
    return value;
}

int length_of(Digits digits) {
    int length = 0;
    for (; digits != 0; digits >>= 1) ++length;
    return length;
}

/// digits * 2^exponent in units of 2^last, to the nearest, ties to even. \pre the result is below 2^127
Digits in_units(Digits digits, int exponent, int last) {
    if (digits == 0) return 0;
    if (exponent >= last) return digits << (exponent - last);
    int const drop = last - exponent;
    if (drop > 127) return 0;
    Digits const unit = Digits{1} << drop;
    Digits const rest = digits & (unit - 1);
    Digits const whole = digits >> drop;
    bool const up = rest > unit / 2 || (rest == unit / 2 && (whole & 1) != 0);
    return whole + (up ? 1 : 0);
}

/// The bytes convert() must leave, and whether any NaN of that sign will do.
struct Expected {
    std::uint64_t bits = 0;
    bool any_nan = false;
};
Expected expected(Exact value, double factor, DType to) {
    std::uint64_t factor_bits = 0;
    std::memcpy(&factor_bits, &factor, 8);
    Exact const by = of_bits(format_of(DType::f64), factor_bits);
    bool const times = factor != 1.0;
    if (times) {
        value.negative = value.negative != by.negative;
        if (value.kind == Exact::Class::infinity && by.digits == 0) value.kind = Exact::Class::nan;
        value.digits *= by.digits;
        value.exponent += by.exponent;
    }
    if (to == DType::boolean) {
        return {value.kind != Exact::Class::number || value.digits != 0 ? 1U : 0U};
    }
    if (is_floating(to)) {
        Format const format = format_of(to);
        std::uint64_t const sign = static_cast<std::uint64_t>(value.negative)
                                   << (format.exponent_bits + format.mantissa_bits);
        std::uint64_t const infinity = ((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
        if (value.kind == Exact::Class::nan) return {sign | infinity, true};
        if (value.kind == Exact::Class::infinity) return {sign | infinity};
        if (value.digits == 0) return {sign};
        int const top = length_of(value.digits) + value.exponent;  // below 2^top
        int last = std::max(format.last, top - format.precision);
        if (top > format.limit) return {sign | infinity};
        Digits units = in_units(value.digits, value.exponent, last);
        if (length_of(units) > format.precision) {
            units >>= 1;
            ++last;
        }
        if (length_of(units) + last > format.limit) return {sign | infinity};
        // The encoding of a number is its digits plus the steps of its exponent above the lowest.
        auto const steps = static_cast<std::uint64_t>(last - format.last);
        return {sign | (static_cast<std::uint64_t>(units) + (steps << format.mantissa_bits))};
    }
    bool const is_signed = to == DType::i8 || to == DType::i16 || to == DType::i32 || to == DType::i64;
    int const width = bits(to);
    std::uint64_t const mask = width == 64 ? ~std::uint64_t{} : (std::uint64_t{1} << width) - 1;
    std::uint64_t const highest = is_signed ? mask >> 1 : mask;
    std::uint64_t const lowest_size = is_signed ? highest + 1 : 0;
    if (value.kind == Exact::Class::nan) return {0};
    bool const beyond =
        value.kind == Exact::Class::infinity || (value.digits != 0 && length_of(value.digits) + value.exponent > 66);
    Digits const size = beyond ? Digits{1} << 100 : in_units(value.digits, value.exponent, 0);
    if (value.negative) {
        auto const kept = size > lowest_size ? lowest_size : static_cast<std::uint64_t>(size);
        return {(~kept + 1) & mask};
    }
    return {size > highest ? highest : static_cast<std::uint64_t>(size)};
}

std::vector<DType> const numbers{DType::boolean, DType::u8,  DType::i8,  DType::i16, DType::u16,
                                 DType::i32,     DType::u32, DType::i64, DType::u64, DType::f16,
                                 DType::bf16,    DType::f32, DType::f64};
std::vector<DType> const floats{DType::f16, DType::bf16, DType::f32, DType::f64};

transport::StridedBox row_of(DType dtype, Index count) {
    transport::StridedBox box;
    box.element_bytes = bytes(dtype);
    box.dims.push_back({count, bytes(dtype)});
    return box;
}

bool agrees(DType from, std::byte const* source, double factor, DType to, std::byte const* result) {
    Expected const want = expected(read(from, source), factor, to);
    std::uint64_t got = 0;
    std::memcpy(&got, result, static_cast<std::size_t>(bytes(to)));
    if (!want.any_nan) return got == want.bits;
    int const sign = bits(to) - 1;
    return read(to, result).kind == Exact::Class::nan && (factor != 1.0 || (got >> sign) == (want.bits >> sign));
}

/// Converts one dense row and compares every element.
void check_row(DType from, std::vector<std::byte> const& source, double factor, DType to) {
    Index const count = static_cast<Index>(source.size()) / bytes(from);
    std::vector<std::byte> result(static_cast<std::size_t>(count * bytes(to)));
    transport::convert(source.data(), row_of(from, count), from, result.data(), row_of(to, count), to, factor);
    int wrong = 0;
    for (Index i = 0; i < count; ++i) {
        std::byte const* in = source.data() + i * bytes(from);
        std::byte const* out = result.data() + i * bytes(to);
        if (from == to && factor == 1.0) {
            wrong += std::memcmp(in, out, static_cast<std::size_t>(bytes(from))) == 0 ? 0 : 1;
        } else if (!agrees(from, in, factor, to, out) && ++wrong < 4) {
            std::uint64_t bits_in = 0;
            std::uint64_t bits_out = 0;
            std::memcpy(&bits_in, in, static_cast<std::size_t>(bytes(from)));
            std::memcpy(&bits_out, out, static_cast<std::size_t>(bytes(to)));
            std::uint64_t const bits_want = expected(read(from, in), factor, to).bits;
            CAPTURE(bits_in);
            CHECK(bits_out == bits_want);
        }
    }
    CHECK(wrong == 0);
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
    std::size_t const end = bytes.size();
    bytes.resize(end + sizeof(T));
    std::memcpy(bytes.data() + end, &value, sizeof(T));
}

/// Values that are on, beside or between values of the narrower formats, each format's ends, and random patterns.
std::vector<std::byte> interesting(std::mt19937_64& rng, DType dtype, int random) {
    std::vector<std::byte> list;
    auto const add = [&](double value) {
        if (dtype == DType::f64) append(list, value);
        if (dtype == DType::f32) append(list, static_cast<float>(value));
    };
    if (dtype == DType::f64 || dtype == DType::f32) {
        for (DType narrow : {DType::f16, DType::bf16, DType::f32}) {
            Format const format = format_of(narrow);
            for (int i = 0; i < random; ++i) {
                // A random number of the format, in its lowest range every other time, plus half a last digit.
                std::uint64_t bits = rng() & ((std::uint64_t{1} << (format.exponent_bits + format.mantissa_bits)) - 1);
                if (i % 2 == 0) bits &= (std::uint64_t{4} << format.mantissa_bits) - 1;
                Exact const value = of_bits(format, bits);
                if (value.kind != Exact::Class::number) continue;
                double const middle =
                    std::ldexp(static_cast<double>(value.digits) + (i % 3 == 0 ? 0.5 : 0.0), value.exponent);
                for (double x : {middle, -middle}) {
                    add(x);
                    add(std::nextafter(x, HUGE_VAL));
                    add(std::nextafter(x, -HUGE_VAL));
                    add(static_cast<double>(std::nextafter(static_cast<float>(x), HUGE_VALF)));
                }
            }
        }
        for (double edge : {0.0,     65504.0, 65520.0,  0x1.fep127, 0x1.ffp127, 0x1.fffffep127, 0x1.ffffffp127,
                            0x1p-24, 0x1p-25, 0x1p-133, 0x1p-134,   0x1p-149,   0x1p-150,       0x1p-1074,
                            0.5,     1.5,     2.5,      127.5,      255.5,      32767.5,        0x1p31,
                            0x1p32,  0x1p51,  0x1.8p51, 0x1p52,     0x1p53,     0x1p63,         0x1p64,
                            0x1p1023}) {
            for (double x : {edge, -edge}) {
                add(x);
                add(std::nextafter(x, HUGE_VAL));
                add(std::nextafter(x, -HUGE_VAL));
                add(x + 0.5);
            }
        }
        add(HUGE_VAL);
        add(-HUGE_VAL);
        add(std::numeric_limits<double>::quiet_NaN());
        add(-std::numeric_limits<double>::quiet_NaN());
    }
    if (dtype == DType::i64 || dtype == DType::u64) {
        for (int power = 0; power < 64; ++power) {
            for (std::uint64_t near : {0U, 1U, 2U, 3U}) {
                std::uint64_t const size = (std::uint64_t{1} << power) + near - 2;
                for (std::uint64_t odd :
                     {std::uint64_t{0}, (std::uint64_t{1} << power) >> 8, (std::uint64_t{1} << power) >> 24}) {
                    append(list, size + odd);
                    append(list, ~(size + odd) + 1);
                }
            }
        }
    }
    auto const width = static_cast<std::size_t>(bytes(dtype));
    for (int i = 0; i < random; ++i) {
        std::uint64_t const value = rng() >> (rng() % 64);
        std::size_t const end = list.size();
        list.resize(end + width);
        std::memcpy(list.data() + end, &value, width);
    }
    return list;
}
}  // namespace

TEST_SUITE("memory/convert") {
    TEST_CASE("convert: all 65,536 values of the 16-bit types, to every type and with factors") {
        for (DType from : {DType::f16, DType::bf16, DType::i16, DType::u16}) {
            std::vector<std::byte> all;
            for (unsigned bits = 0; bits < 0x10000U; ++bits) {
                // Where fewer are tried: powers of two of both floats with their neighbours, and some of all others.
                if (bits % step() == 0 || (bits + 1) % 128 < 3) append(all, static_cast<std::uint16_t>(bits));
            }
            for (DType to : numbers) {
                CAPTURE(name(from));
                CAPTURE(name(to));
                check_row(from, all, 1.0, to);
                for (double factor : {0.5, -3.0, 1.0 / 3.0, 0x1p-130, 0x1.fffffffffffffp100, 0.0, 1 + 0x1p-25,
                                      -1 - 0x1p-28, 0x1p-1074}) {
                    CAPTURE(factor);
                    if (transport::can_convert(from, to, factor)) check_row(from, all, factor, to);
                }
            }
        }
    }

    TEST_CASE("convert: ties, neighbours of ties, subnormals, ends and random values of every pair of types") {
        auto const seed = 20260917U;
        CAPTURE(seed);
        std::mt19937_64 rng(seed);
        for (DType from : numbers) {
            auto const list = interesting(rng, from, tries(3000));
            for (DType to : numbers) {
                CAPTURE(name(from));
                CAPTURE(name(to));
                check_row(from, list, 1.0, to);
            }
        }
    }

    TEST_CASE("convert: a product is rounded once, with factors of all 53 digits too") {
        auto const seed = 31U;
        CAPTURE(seed);
        std::mt19937_64 rng(seed);
        for (DType from : floats) {
            auto const list = interesting(rng, from, tries(400));
            for (DType to : floats) {
                CAPTURE(name(from));
                CAPTURE(name(to));
                for (int trial = 0; trial < 20; ++trial) {
                    double factor = std::ldexp(static_cast<double>(rng()), static_cast<int>(rng() % 80) - 100);
                    if (trial % 4 == 0) factor = std::ldexp(1.0, static_cast<int>(rng() % 60) - 30);
                    if (trial % 4 == 1) factor = static_cast<double>(static_cast<float>(factor));
                    if (trial % 2 == 1) factor = -factor;
                    if (trial == 18) factor = 1 + 0x1p-52;
                    if (trial == 19) factor = 1 - 0x1p-53;
                    CAPTURE(factor);
                    check_row(from, list, factor, to);
                }
            }
        }
    }

    TEST_CASE("convert: values that would be rounded twice by way of another type are not") {
        // Just above a tie of bf16, and so near that float rounds it onto the tie.
        double const above_tie = 1.0 + 0x1p-8 + 0x1p-40;
        BFloat16 brain;
        transport::convert(reinterpret_cast<std::byte const*>(&above_tie), row_of(DType::f64, 1), DType::f64,
                           reinterpret_cast<std::byte*>(&brain), row_of(DType::bf16, 1), DType::bf16);
        CHECK(static_cast<float>(brain) == 1.0F + 0x1p-7F);
        CHECK(static_cast<float>(BFloat16(static_cast<float>(above_tie))) == 1.0F);
        // A product just below a tie, which the nearest double is on: 0.3 is a little less than three tenths.
        float const factor_case = 125 * 1.37F;
        transport::convert(reinterpret_cast<std::byte const*>(&factor_case), row_of(DType::f32, 1), DType::f32,
                           reinterpret_cast<std::byte*>(&brain), row_of(DType::bf16, 1), DType::bf16, 0.3);
        CHECK(brain.bits == 0x424d);
        CHECK(BFloat16(static_cast<float>(static_cast<double>(factor_case) * 0.3)).bits == 0x424e);
        // As an integer.
        std::int64_t const wide = (std::int64_t{1} << 62) + (std::int64_t{1} << 38) + 1;
        float single = 0;
        transport::convert(reinterpret_cast<std::byte const*>(&wide), row_of(DType::i64, 1), DType::i64,
                           reinterpret_cast<std::byte*>(&single), row_of(DType::f32, 1), DType::f32);
        CHECK(single == 0x1.000002p62F);
        CHECK(static_cast<float>(static_cast<double>(wide)) == 0x1p62F);
    }

    TEST_CASE("convert: random strided boxes of rank 0 to 9 equal the element loop, and nothing beyond is touched") {
        auto const seed = 4711U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (int trial = 0; trial < tries(3000); ++trial) {
            CAPTURE(trial);
            std::vector<Index> extents(rng() % 10);
            Index elements = 1;
            for (auto& extent : extents) {
                extent = static_cast<Index>(rng() % 7);
                if (extent == 0 && rng() % 4 != 0) extent = 1;
                if (trial % 3 == 0 && extents.size() < 4) extent = 1 + static_cast<Index>(rng() % 90);
                if (elements * extent > 9000) extent = 1;
                elements *= extent;
            }
            DType const from = numbers[rng() % numbers.size()];
            DType const to = numbers[rng() % numbers.size()];
            double factor = 1.0;
            if (rng() % 2 != 0 && transport::can_convert(from, to, 0.7)) factor = 0.7;
            Placed source = place(rng, extents, bytes(from), true);
            Placed target = place(rng, extents, bytes(to), false);
            scramble(rng, source.memory);
            auto const before = source.memory;
            auto const reads = offsets_of(source.box);
            auto const writes = offsets_of(target.box);
            transport::convert(source.base(), source.box, from, target.base(), target.box, to, factor);
            REQUIRE(source.memory == before);
            bool right = true;
            for (std::size_t i = 0; i != writes.size(); ++i) {
                std::byte const* in = source.base() + reads[i];
                std::byte* out = target.base() + writes[i];
                bool const same = from == to && factor == 1.0;
                right = right && (same ? std::memcmp(in, out, static_cast<std::size_t>(bytes(to))) == 0
                                       : agrees(from, in, factor, to, out));
                std::fill(out, out + bytes(to), guard);
            }
            REQUIRE(right);
            REQUIRE(target.memory == std::vector<std::byte>(target.memory.size(), guard));
        }
    }

    TEST_CASE("convert: transpositions of sides larger than a tile") {
        Index const n = 77;
        Index const m = 1301;
        std::vector<float> source(static_cast<std::size_t>(n * m));
        for (std::size_t i = 0; i != source.size(); ++i) source[i] = static_cast<float>(i % 251);
        std::vector<BFloat16> target(source.size());
        transport::StridedBox from;
        from.element_bytes = 4;
        from.dims.push_back({n, m * 4});
        from.dims.push_back({m, 4});
        transport::StridedBox to;
        to.element_bytes = 2;
        to.dims.push_back({n, 2});
        to.dims.push_back({m, n * 2});
        transport::convert(reinterpret_cast<std::byte const*>(source.data()), from, DType::f32,
                           reinterpret_cast<std::byte*>(target.data()), to, DType::bf16, 0.5);
        bool right = true;
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < m; ++j)
                right = right && static_cast<float>(target[static_cast<std::size_t>(j * n + i)]) ==
                                     static_cast<float>(BFloat16(source[static_cast<std::size_t>(i * m + j)] * 0.5F));
        CHECK(right);
    }

    TEST_CASE("can_convert: numbers and booleans into each other, factors between floats, other types to themselves") {
        for (int a = 0; a < dtype_count; ++a) {
            for (int b = 0; b < dtype_count; ++b) {
                auto const from = static_cast<DType>(a);
                auto const to = static_cast<DType>(b);
                CAPTURE(name(from));
                CAPTURE(name(to));
                bool const both = std::count(numbers.begin(), numbers.end(), from) != 0 &&
                                  std::count(numbers.begin(), numbers.end(), to) != 0;
                CHECK(transport::can_convert(from, to) == (both || (from == to && is_byte_sized(from))));
                CHECK(transport::can_convert(from, to, 2.0) == (is_floating(from) && is_floating(to)));
            }
        }
        CHECK(transport::can_convert(DType::f32, DType::f64, 0.0));
        CHECK_FALSE(transport::can_convert(DType::f32, DType::f64, std::numeric_limits<double>::infinity()));
        CHECK_FALSE(transport::can_convert(DType::f32, DType::f64, std::numeric_limits<double>::quiet_NaN()));
    }

    TEST_CASE("convert: NaN keeps its sign and the top of its payload, whatever the length of the row") {
        std::vector<std::uint32_t> const patterns{0x7fc00000U, 0xffc00000U, 0x7f800001U, 0xff800001U, 0x7fffe000U};
        for (Index count : {Index{1}, Index{3}, Index{64}, Index{65}}) {
            for (std::uint32_t pattern : patterns) {
                std::vector<std::uint32_t> const source(static_cast<std::size_t>(count), pattern);
                std::vector<std::uint16_t> target(source.size());
                for (DType to : {DType::f16, DType::bf16}) {
                    transport::convert(reinterpret_cast<std::byte const*>(source.data()), row_of(DType::f32, count),
                                       DType::f32, reinterpret_cast<std::byte*>(target.data()), row_of(to, count), to);
                    std::uint32_t const sign = pattern >> 16U & 0x8000U;
                    std::uint32_t const half = sign | 0x7e00U | (pattern >> 13U & 0x3ffU);
                    std::uint32_t const want = to == DType::bf16 ? pattern >> 16U | 0x40U : half;
                    CHECK(target == std::vector<std::uint16_t>(source.size(), static_cast<std::uint16_t>(want)));
                }
            }
        }
    }
}
