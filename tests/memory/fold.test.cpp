// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/fold.hpp.
#include <reshard/memory/fold.hpp>

#include "boxes.hpp"
#include "support/random.hpp"

#include <doctest/doctest.h>

#include <bit>      // bit_cast
#include <cmath>    // signbit, isnan
#include <cstdint>  // int64_t
#include <cstring>  // memcpy, memcmp
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;

constexpr Reduce all_ops[] = {Reduce::sum,     Reduce::avg,  Reduce::min, Reduce::max,
                              Reduce::product, Reduce::band, Reduce::bor, Reduce::bxor};

/// What an element's type means, told without any of the library's kernels.
struct Kind {
    DType dtype;
    bool floating;
    bool is_signed;
};
constexpr Kind kinds[] = {
    {DType::boolean, false, false}, {DType::u8, false, false}, {DType::i8, false, true},   {DType::i16, false, true},
    {DType::u16, false, false},     {DType::i32, false, true}, {DType::u32, false, false}, {DType::i64, false, true},
    {DType::u64, false, false},     {DType::f16, true, true},  {DType::bf16, true, true},  {DType::f32, true, true},
    {DType::f64, true, true},
};

std::uint64_t read_bits(std::byte const* at, Index bytes) {
    std::uint64_t bits = 0;
    for (Index b = bytes; b-- > 0;) bits = (bits << 8U) | std::to_integer<std::uint64_t>(at[b]);
    return bits;
}
void write_bits(std::byte* at, Index bytes, std::uint64_t bits) {
    for (Index b = 0; b < bytes; ++b) at[b] = static_cast<std::byte>((bits >> (8 * b)) & 0xffU);
}
double to_real(DType dtype, std::uint64_t bits) {
    switch (dtype) {
        case DType::f16: return static_cast<float>(Float16::from_bits(static_cast<std::uint16_t>(bits)));
        case DType::bf16: return static_cast<float>(BFloat16::from_bits(static_cast<std::uint16_t>(bits)));
        case DType::f32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        default: return std::bit_cast<double>(bits);
    }
}
std::uint64_t from_real(DType dtype, double value) {
    switch (dtype) {
        case DType::f16: return Float16(static_cast<float>(value)).bits;
        case DType::bf16: return BFloat16(static_cast<float>(value)).bits;
        case DType::f32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
        default: return std::bit_cast<std::uint64_t>(value);
    }
}

/// Folds floats step by step in the accumulator's precision (double for f64, float for the rest).
std::uint64_t oracle_float(Reduce op, DType dtype, std::vector<std::uint64_t> const& addends, Index divisor) {
    bool const wide = dtype == DType::f64;
    auto round = [wide](double x) { return wide ? x : static_cast<double>(static_cast<float>(x)); };
    double sum = to_real(dtype, addends[0]);
    for (std::size_t k = 1; k < addends.size(); ++k) {
        double const x = to_real(dtype, addends[k]);
        if (op == Reduce::product) {
            sum = round(sum * x);  // a product of two floats is exact in double: one rounding, as in float
        } else if (op == Reduce::min || op == Reduce::max) {
            bool const take_min = op == Reduce::min;
            if (std::isnan(sum)) continue;
            if (std::isnan(x))
                sum = x;
            else if (x == sum)
                sum = std::signbit(x) == take_min ? x : sum;
            else if ((x < sum) == take_min)
                sum = x;
        } else {
            sum = round(sum + x);
        }
    }
    if (divisor != 1) sum = round(sum / static_cast<double>(divisor));
    return from_real(dtype, sum);
}

std::uint64_t oracle_integer(Reduce op, Kind kind, std::vector<std::uint64_t> const& addends) {
    int const width = bits(kind.dtype);
    std::uint64_t const mask = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
    auto less = [&](std::uint64_t a, std::uint64_t b) {
        std::uint64_t const flip = kind.is_signed ? std::uint64_t{1} << (width - 1) : 0;
        return (a ^ flip) < (b ^ flip);
    };
    std::uint64_t value = addends[0];
    for (std::size_t k = 1; k < addends.size(); ++k) {
        std::uint64_t const x = addends[k];
        switch (op) {
            case Reduce::sum: value = (value + x) & mask; break;
            case Reduce::product: value = (value * x) & mask; break;
            case Reduce::min: value = less(x, value) ? x : value; break;
            case Reduce::max: value = less(value, x) ? x : value; break;
            case Reduce::band: value &= x; break;
            case Reduce::bor: value |= x; break;
            default: value ^= x; break;
        }
    }
    return value;
}

/// Mostly ordinary numbers, now and then a zero of either sign, an infinity or the ends of the range.
std::uint64_t random_element(std::mt19937& rng, Kind kind, bool with_nan) {
    if (kind.dtype == DType::boolean) return rng() % 2;
    std::uint64_t const raw = (static_cast<std::uint64_t>(rng()) << 32U) | rng();
    int const width = bits(kind.dtype);
    std::uint64_t const mask = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
    if (!kind.floating) return raw & mask;
    switch (rng() % 12) {
        case 0: return from_real(kind.dtype, 0.0);
        case 1: return from_real(kind.dtype, -0.0);
        case 2: return with_nan ? from_real(kind.dtype, std::nan("")) : from_real(kind.dtype, 1.0);
        case 3: return from_real(kind.dtype, with_nan ? HUGE_VAL : -1.0);
        default: return from_real(kind.dtype, (static_cast<double>(rng() % 20001) - 10000.0) / 512.0);
    }
}

bool is_nan_bits(Kind kind, std::uint64_t bits) { return kind.floating && std::isnan(to_real(kind.dtype, bits)); }

Index offset_bytes(DType dtype, std::size_t i) { return static_cast<Index>(i) * bytes(dtype); }
bool is_nan(DType dtype, std::byte const* at) {
    std::uint64_t const number = read_bits(at, bytes(dtype)) & ~(std::uint64_t{1} << (8 * bytes(dtype) - 1));
    switch (dtype) {
        case DType::f16: return number > 0x7c00U;
        case DType::bf16: return number > 0x7f80U;
        case DType::f32: return number > 0x7f800000U;
        default: return number > 0x7ff0000000000000U;
    }
}

}  // namespace

TEST_SUITE("memory/fold") {
    TEST_CASE("fold: equals an element-wise oracle for every dtype and operation, bit for bit") {
        auto const seed = 4242U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        int combinations = 0;
        for (Kind kind : kinds) {
            for (Reduce op : all_ops) {
                if (!supports(op, kind.dtype)) continue;
                ++combinations;
                for (int trial = 0; trial != 24; ++trial) {
                    CAPTURE(name(kind.dtype));
                    CAPTURE(name(op));
                    CAPTURE(trial);
                    Index const size = bytes(kind.dtype);
                    std::vector<Index> extents(rng() % 5);
                    for (auto& extent : extents) extent = static_cast<Index>(rng() % 6);
                    if (trial % 6 == 0) extents = {1 + static_cast<Index>(rng() % 700)};  // more than one block
                    Placed slot = place(rng, extents, size, true);
                    Placed to = place(rng, extents, size, false);
                    Index const count = 1 + static_cast<Index>(rng() % 9);
                    auto const slot_stride = static_cast<Index>(slot.memory.size());
                    std::vector<std::byte> slots(static_cast<std::size_t>(slot_stride * count));
                    auto const reads = offsets_of(slot.box);
                    for (Index k = 0; k < count; ++k) {
                        for (Index offset : reads) {
                            write_bits(slots.data() + k * slot_stride + slot.first + offset, size,
                                       random_element(rng, kind, trial % 2 != 0));
                        }
                    }
                    Index const divisor = op == Reduce::avg ? count : 1;
                    auto want = to.memory;
                    auto const writes = offsets_of(to.box);
                    for (std::size_t i = 0; i != writes.size(); ++i) {
                        std::vector<std::uint64_t> addends;
                        for (Index k = 0; k < count; ++k) {
                            addends.push_back(read_bits(slots.data() + k * slot_stride + slot.first + reads[i], size));
                        }
                        auto const value = kind.floating ? oracle_float(op, kind.dtype, addends, divisor)
                                                         : oracle_integer(op, kind, addends);
                        write_bits(want.data() + to.first + writes[i], size, value);
                    }
                    bool const wide = trial % 4 < 2;
                    detail::fold_slots(op, kind.dtype, slots.data() + slot.first, slot_stride, count, slot.box,
                                       to.base(), to.box, divisor, wide);
                    // Which NaN comes out is the processor's choice; that it is one is ours.
                    for (Index offset : writes) {
                        auto* const got = to.base() + offset;
                        auto* const wish = want.data() + to.first + offset;
                        if (is_nan_bits(kind, read_bits(wish, size))) {
                            REQUIRE(is_nan_bits(kind, read_bits(got, size)));
                            write_bits(wish, size, read_bits(got, size));
                        }
                    }
                    REQUIRE(to.memory == want);
                }
            }
        }
        CHECK(combinations == 3 + 8 * 7 + 4 * 5);
    }

    TEST_CASE("fold: op(identity, x) and op(x, identity) are x, bit for bit, signed zeros included") {
        auto const seed = 11U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (Kind kind : kinds) {
            for (Reduce op : all_ops) {
                if (!supports(op, kind.dtype) || !has_identity(op)) continue;
                CAPTURE(name(kind.dtype));
                CAPTURE(name(op));
                Index const size = bytes(kind.dtype);
                Index const n = 300;
                transport::StridedBox box;
                box.element_bytes = size;
                box.dims.push_back({n, size});
                for (bool identity_first : {true, false}) {
                    std::vector<std::byte> slots(static_cast<std::size_t>(2 * n * size));
                    std::byte* const x = slots.data() + (identity_first ? n * size : 0);
                    transport::fill_identity(op, kind.dtype, slots.data() + (identity_first ? 0 : n * size), box);
                    for (std::size_t i = 0; i != static_cast<std::size_t>(n); ++i) {
                        write_bits(x + offset_bytes(kind.dtype, i), size, random_element(rng, kind, false));
                    }
                    if (kind.floating) write_bits(x, size, from_real(kind.dtype, -0.0));
                    std::vector<std::byte> result(static_cast<std::size_t>(n * size));
                    transport::fold(op, kind.dtype, slots.data(), n * size, 2, box, result.data(), box);
                    CHECK(result == std::vector<std::byte>(x, x + n * size));
                }
            }
        }
    }

    TEST_CASE("fold: 16-bit floats are rounded once, not at every addend") {
        // 256 + 1 is not a bfloat16: a sum rounded at every step would stay at 256.
        BFloat16 slots[9] = {BFloat16(256.0F)};
        for (int k = 1; k != 9; ++k) slots[k] = BFloat16(1.0F);
        BFloat16 sum;
        transport::StridedBox box;
        box.element_bytes = 2;
        transport::fold(Reduce::sum, DType::bf16, reinterpret_cast<std::byte const*>(slots), 2, 9, box,
                        reinterpret_cast<std::byte*>(&sum), box);
        CHECK(static_cast<float>(sum) == 264.0F);
    }

    TEST_CASE("fold: min and max of floats propagate NaN and order the zeros, whatever the order of addends") {
        float const nan = std::nanf("");
        float const cases[][3] = {{1, nan, 2}, {nan, 1, 2}, {1, 2, nan}};
        transport::StridedBox box;
        box.element_bytes = 4;
        for (auto const& addends : cases) {
            for (Reduce op : {Reduce::min, Reduce::max}) {
                float result = 0;
                transport::fold(op, DType::f32, reinterpret_cast<std::byte const*>(addends), 4, 3, box,
                                reinterpret_cast<std::byte*>(&result), box);
                CHECK(std::isnan(result));
            }
        }
        for (double first : {0.0, -0.0}) {
            double const zeros[2] = {first, -first};
            double low = 1;
            double high = 1;
            box.element_bytes = 8;
            auto const* slots = reinterpret_cast<std::byte const*>(zeros);
            transport::fold(Reduce::min, DType::f64, slots, 8, 2, box, reinterpret_cast<std::byte*>(&low), box);
            transport::fold(Reduce::max, DType::f64, slots, 8, 2, box, reinterpret_cast<std::byte*>(&high), box);
            CHECK(std::signbit(low));
            CHECK_FALSE(std::signbit(high));
        }
    }

    TEST_CASE("fill_identity: writes the box and nothing around it") {
        auto const seed = 3U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (int trial = 0; trial != 200; ++trial) {
            CAPTURE(trial);
            std::vector<Index> extents(rng() % 5);
            for (auto& extent : extents) extent = static_cast<Index>(rng() % 5);
            Placed to = place(rng, extents, 4, false);
            auto want = to.memory;
            for (Index offset : offsets_of(to.box)) {
                write_bits(want.data() + to.first + offset, 4, from_real(DType::f32, -HUGE_VAL));
            }
            transport::fill_identity(Reduce::max, DType::f32, to.base(), to.box);
            REQUIRE(to.memory == want);
        }
        transport::StridedBox one;
        bool all = false;
        transport::fill_identity(Reduce::band, DType::boolean, reinterpret_cast<std::byte*>(&all), one);
        CHECK(all);
        std::int64_t low = 0;
        one.element_bytes = 8;
        transport::fill_identity(Reduce::max, DType::i64, reinterpret_cast<std::byte*>(&low), one);
        CHECK(low == INT64_MIN);
    }

    TEST_CASE("scale: multiplies then divides every element of the box, and only those") {
        auto const seed = 8U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (Kind kind : kinds) {
            if (!kind.floating) continue;
            for (int trial = 0; trial != 60; ++trial) {
                CAPTURE(name(kind.dtype));
                CAPTURE(trial);
                Index const size = bytes(kind.dtype);
                Index const multiply = 1 + static_cast<Index>(rng() % 7);
                Index const divide = 1 + static_cast<Index>(rng() % 7);
                std::vector<Index> extents(rng() % 4);
                for (auto& extent : extents) extent = static_cast<Index>(rng() % 6);
                Placed to = place(rng, extents, size, false);
                auto const offsets = offsets_of(to.box);
                for (Index offset : offsets) write_bits(to.base() + offset, size, random_element(rng, kind, false));
                auto want = to.memory;
                for (Index offset : offsets) {
                    std::byte* const at = want.data() + to.first + offset;
                    double const x = to_real(kind.dtype, read_bits(at, size));
                    double const m = static_cast<double>(multiply);
                    double const d = static_cast<double>(divide);
                    double const scaled = kind.dtype == DType::f64
                                              ? x * m / d
                                              : static_cast<double>(static_cast<float>(static_cast<float>(x * m) / d));
                    write_bits(at, size, from_real(kind.dtype, scaled));
                }
                transport::scale(kind.dtype, to.base(), to.box, multiply, divide);
                REQUIRE(to.memory == want);
            }
        }
    }

    TEST_CASE("law: runs and single elements are folded to the same bits, whatever instructions the processor has") {
        for (std::uint64_t seed : test::seeds(300)) {
            test::Random random(seed);
            CAPTURE(seed);
            DType const dtype = random.pick(std::vector<DType>{DType::f16, DType::bf16, DType::f32, DType::f64});
            Reduce const op = random.pick(std::vector<Reduce>{Reduce::sum, Reduce::avg, Reduce::max, Reduce::product});
            Index const n = random.between(0, 200);
            Index const slots = random.between(1, 9);
            Index const size = bytes(dtype);
            auto const at = static_cast<std::size_t>(random.between(0, 9));  // no address suits the instructions
            std::vector<std::byte> dense(at + static_cast<std::size_t>(slots * n * size));
            bool const plain = random.chance(50);  // else any bits: infinities, numbers below the normal ones, NaN
            for (std::byte& one : dense) one = static_cast<std::byte>(random.between(0, plain ? 59 : 255));
            std::vector<std::byte> spread(static_cast<std::size_t>(2 * slots * n * size));
            for (Index i = 0; i < slots * n; ++i) {
                std::memcpy(spread.data() + 2 * i * size, dense.data() + at + i * size, static_cast<std::size_t>(size));
            }
            std::vector<std::byte> by_runs(at + static_cast<std::size_t>(n * size) + 1, std::byte{0x77});
            std::vector<std::byte> portably = by_runs;
            std::vector<std::byte> by_elements(static_cast<std::size_t>(2 * n * size), std::byte{0x77});
            Index const divisor = op == Reduce::avg ? slots : 1;
            transport::StridedBox run;
            run.element_bytes = size;
            run.dims.push_back({n, size});
            transport::StridedBox elements = run;
            elements.dims[0].stride = 2 * size;
            transport::fold(op, dtype, dense.data() + at, n * size, slots, run, by_runs.data() + at, run, divisor);
            detail::fold_slots(op, dtype, dense.data() + at, n * size, slots, run, portably.data() + at, run, divisor,
                               false);
            transport::fold(op, dtype, spread.data(), 2 * n * size, slots, elements, by_elements.data(), elements,
                            divisor);
            bool same = by_runs.back() == std::byte{0x77} && portably.back() == std::byte{0x77};
            auto const compare = [&](std::byte const* one, std::byte const* other) {
                bool const equal = std::memcmp(one, other, static_cast<std::size_t>(size)) == 0;
                // Whose payload the sum of two NaN has is the compiler's choice.
                same = same && (equal || (is_nan(dtype, one) && is_nan(dtype, other)));
            };
            for (Index i = 0; i < n; ++i) {
                std::byte const* const one = by_runs.data() + at + i * size;
                compare(one, portably.data() + at + i * size);
                compare(one, by_elements.data() + 2 * i * size);
            }
            REQUIRE(same);
        }
    }
}
