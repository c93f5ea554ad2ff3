// SPDX-License-Identifier: Apache-2.0
// The bodies of the kernels of memory/on_device.cuh and comm/nccl.cuh, against the host's functions.
#include <reshard/memory/detail/box_kernels.hpp>
#include <reshard/memory/detail/value_kernels.hpp>

#include "memory/boxes.hpp"
#include "support/random.hpp"

#include <reshard/memory/convert.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/fold.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

using namespace reshard;
using namespace reshard::test;

namespace {

template <class Body>
void for_each_thread(Index units, Body&& body) {
    for (Index tile = detail::ceil_div(units, detail::box_tile); tile-- > 0;) {
        for (int thread = detail::box_threads; thread-- > 0;) body(tile, thread);
    }
}

/// Calls body.template operator()<A>(box, tile, thread) for all threads of the launches of a fold, A the type of its
/// accumulators. Returns how many elements a unit has.
template <class Body>
int run(detail::FoldBox box, Index to_bytes, Body const& body) {
    Index const elements = box.elements();
    detail::FoldBox const rest = detail::widen(box, to_bytes);
    CHECK(box.elements() + rest.elements() == elements);
    for (detail::FoldBox const& each : {box, rest}) {
        for_each_thread(each.elements(), [&](Index tile, int thread) {
            detail::with_carrier(each.dtype, [&]<class A>() { body.template operator()<A>(each, tile, thread); });
        });
    }
    return box.width;
}

/// Which of several NaNs an operation hands on is the processor's choice: all become one.
void same_nans(Placed& placed, std::vector<std::byte>& memory, DType type) {
    detail::with_number(type, [&]<class T>() {
        using A = detail::Accumulator<T>;
        if constexpr (std::is_floating_point_v<A>) {
            for (Index offset : offsets_of(placed.box)) {
                std::byte* const at = memory.data() + placed.first + offset;
                A const value = detail::load_element<T>(at);
                if (value != value) std::memset(at, 0xff, sizeof(T));
            }
        }
    });
}

/// Device code has no other accesses.
void check_aligned(detail::CopyBox const& box) {
    int const part = box.unit / box.parts;
    CHECK(reinterpret_cast<std::uintptr_t>(box.from) % static_cast<std::uintptr_t>(box.unit) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(box.to) % static_cast<std::uintptr_t>(part) == 0);
    CHECK(box.part_stride % part == 0);
    for (int d = 0; d < box.loops.count; ++d) {
        CHECK(box.loops.loops[d].from % box.unit == 0);
        CHECK(box.loops.loops[d].to % part == 0);
    }
}

std::vector<Index> random_extents(std::mt19937& rng) {
    std::vector<Index> extents(rng() % 6);
    for (Index& extent : extents) extent = 1 + static_cast<Index>(rng() % 9);
    if (!extents.empty() && rng() % 10 == 0) extents[0] = 0;
    if (!extents.empty() && rng() % 4 == 0) extents.back() = 700;
    return extents;
}

}  // namespace

TEST_CASE("device copies: the kernel's body equals the host's copy for random boxes, and touches nothing else") {
    for (std::uint64_t seed : seeds(400)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        auto const extents = random_extents(rng);
        Index const element = std::vector<Index>{1, 2, 4, 8, 16, 3, 12, 24}[rng() % 8];
        Placed from = place(rng, extents, element, true);
        Placed to = place(rng, extents, element, false);
        scramble(rng, from.memory);
        std::vector<std::byte> expected = to.memory;
        transport::copy(from.base(), from.box, expected.data() + to.first, to.box);
        auto const box = detail::copy_box(from.base(), from.box, to.base(), to.box);
        for_each_thread(box.loops.units, [&](Index tile, int thread) { detail::copy_thread(box, tile, thread); });
        CAPTURE(seed);
        CHECK((to.memory == expected));
        CHECK(box.loops.units * box.unit == from.box.payload_bytes());
        if (box.loops.units == 0) continue;
        check_aligned(box);
    }
}

TEST_CASE("device copies: transposed, in loads of several elements wherever the source has them in a row") {
    int wide = 0;
    for (std::uint64_t seed : seeds(200)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        CAPTURE(seed);
        Index const element = std::vector<Index>{1, 2, 4, 8}[rng() % 4];
        Index const planes = 1 + static_cast<Index>(rng() % 3);
        bool const in_fours = rng() % 2 == 0;  // long columns of rows that begin at a multiple of four elements
        Index const rows = (in_fours ? 32 : 1) + static_cast<Index>(rng() % 70);
        Index const columns = in_fours ? 4 + static_cast<Index>(rng() % 17) * 4 : 1 + static_cast<Index>(rng() % 70);
        Index const row = element * (columns + static_cast<Index>(rng() % 3) * (in_fours ? 4 : 1));
        Index const column = element * (rows + static_cast<Index>(rng() % 3));
        Placed from{transport::StridedBox{{transport::StridedDim{planes, rows * row}, transport::StridedDim{rows, row},
                                           transport::StridedDim{columns, element}},
                                          element},
                    std::vector<std::byte>(static_cast<std::size_t>(planes * rows * row + 128)),
                    element * static_cast<Index>(rng() % 3) * (in_fours ? 4 : 1)};
        Placed to{transport::StridedBox{{transport::StridedDim{planes, columns * column},
                                         transport::StridedDim{rows, element}, transport::StridedDim{columns, column}},
                                        element},
                  std::vector<std::byte>(static_cast<std::size_t>(planes * columns * column + 64), std::byte{0x5a}),
                  element * static_cast<Index>(rng() % 3)};
        if (!in_fours && rng() % 2 == 0) {  // columns from the last on: no more in a row
            from.first += (columns - 1) * element;
            from.box.dims[2].stride = -element;
        }
        scramble(rng, from.memory);
        std::vector<std::byte> expected = to.memory;
        transport::copy(from.base(), from.box, expected.data() + to.first, to.box);
        auto const box = detail::copy_box(from.base(), from.box, to.base(), to.box);
        for_each_thread(box.loops.units, [&](Index tile, int thread) { detail::copy_thread(box, tile, thread); });
        CHECK((to.memory == expected));
        CHECK(box.loops.units * box.unit == from.box.payload_bytes());
        check_aligned(box);
        wide += box.parts > 1 ? 1 : 0;
    }
    CHECK(wide > 0);
}

TEST_CASE("device copies: units beyond 32 bits are located as those within") {
    auto const located = [](std::vector<Index> const& extents, Index unit) {
        detail::BoxLoops loops;
        loops.units = 1;
        for (Index extent : extents) {  // innermost first
            loops.loops[loops.count] = {detail::Divider(static_cast<std::uint64_t>(extent)), 3 + loops.count,
                                        5 + loops.count};
            ++loops.count;
            loops.units *= extent;
        }
        Index from = 0;
        Index to = 0;
        loops.locate(unit, from, to);
        return std::pair(from, to);
    };
    for (std::uint64_t seed : seeds(200)) {
        std::mt19937_64 rng(seed);
        CAPTURE(seed);
        std::vector<Index> extents;
        for (std::size_t d = rng() % 5 + 1; d-- > 0;) extents.push_back(1 + static_cast<Index>(rng() % 3000));
        Index units = 1;
        for (Index extent : extents) units *= extent;
        Index const unit = static_cast<Index>(rng() % static_cast<std::uint64_t>(units));
        Index rest = unit;
        std::pair<Index, Index> expected;
        for (std::size_t d = 0; d != extents.size(); ++d, rest /= extents[d - 1]) {
            Index const at = rest % extents[d];
            expected.first += at * (3 + static_cast<Index>(d));
            expected.second += at * (5 + static_cast<Index>(d));
        }
        CHECK((located(extents, unit) == expected));
    }
}

TEST_CASE("device copies: units are as wide as addresses, rows and strides allow") {
    alignas(16) std::byte from[4096];
    alignas(16) std::byte to[4096];
    auto const unit = [&](Index element, Index rows, Index columns, Index from_row, Index to_row, Index shift) {
        transport::StridedBox a{{transport::StridedDim{rows, from_row}, transport::StridedDim{columns, element}},
                                element};
        transport::StridedBox b{{transport::StridedDim{rows, to_row}, transport::StridedDim{columns, element}},
                                element};
        return detail::copy_box(from + shift, a, to, b);
    };
    CHECK(unit(4, 8, 16, 128, 64, 0).unit == 16);
    CHECK(unit(4, 8, 16, 128, 64, 0).loops.count == 2);
    CHECK(unit(4, 8, 16, 64, 64, 0).loops.count == 1);  // dense on both sides: one loop, no division
    CHECK(unit(4, 8, 16, 128, 64, 8).unit == 8);
    CHECK(unit(4, 8, 16, 132, 64, 0).unit == 4);
    CHECK(unit(2, 8, 15, 128, 30, 0).unit == 2);
    CHECK(unit(2, 8, 16, 128, 32, 1).unit == 1);
    CHECK(unit(1, 1, 1, 0, 0, 0).unit == 1);
    auto const transposed = [&](Index element, Index rows, Index columns, Index shift) {
        transport::StridedBox a{
            {transport::StridedDim{rows, element * columns}, transport::StridedDim{columns, element}}, element};
        transport::StridedBox b{{transport::StridedDim{rows, element}, transport::StridedDim{columns, element * rows}},
                                element};
        auto const box = detail::copy_box(from + shift, a, to, b);
        return std::pair(box.unit, box.parts);
    };
    CHECK(transposed(4, 8, 16, 0) == std::pair(16, 4));
    CHECK(transposed(2, 16, 8, 0) == std::pair(16, 8));
    CHECK(transposed(1, 32, 12, 0) == std::pair(4, 4));
    CHECK(transposed(8, 8, 16, 8) == std::pair(8, 1));
    CHECK(transposed(4, 7, 16, 0) == std::pair(4, 1));  // too few to fill a sector
    CHECK(transposed(4, 8, 15, 0) == std::pair(4, 1));
    {  // windows of 8 that overlap: each begins where no load of several elements may
        transport::StridedBox const a{
            {transport::StridedDim{8, 4}, transport::StridedDim{8, 4}, transport::StridedDim{8, 64}}, 4};
        transport::StridedBox const b{
            {transport::StridedDim{8, 256}, transport::StridedDim{8, 32}, transport::StridedDim{8, 4}}, 4};
        auto const box = detail::copy_box(from, a, to, b);
        CHECK(std::pair(box.unit, box.parts) == std::pair(4, 1));
    }
    CHECK(detail::unit_of(0) == 16);
    CHECK(detail::unit_of(24) == 8);
}

TEST_CASE("device folds: the kernel's body equals the host's fold, bit for bit, for every dtype and operation") {
    std::vector<DType> const types{DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8,  DType::u8,
                                   DType::i16, DType::u16,  DType::i32, DType::u32, DType::i64, DType::u64};
    int wide = 0;
    for (std::uint64_t seed : seeds(600)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        bool const in_rows = seed % 2 == 0;
        DType const type = types[rng() % types.size()];
        auto const op = static_cast<Reduce>(rng() % reduce_count);
        if (!supports(op, type)) continue;
        auto extents = random_extents(rng);
        Index const slots = 1 + static_cast<Index>(rng() % 9);
        Index const divisor = op == Reduce::avg ? slots : 1;
        Placed to = in_rows ? place_in_rows(rng, extents, bytes(type)) : place(rng, extents, bytes(type), false);
        std::vector<Index> with_slots = extents;
        with_slots.insert(with_slots.begin(), slots);
        Placed from = in_rows ? place_in_rows(rng, with_slots, bytes(type)) : place(rng, with_slots, bytes(type), true);
        scramble(rng, from.memory);
        transport::StridedBox slot_box;
        slot_box.element_bytes = bytes(type);
        for (int d = 1; d < from.box.dims.size(); ++d) slot_box.dims.push_back(from.box.dims[d]);
        Index const slot_stride = from.box.dims[0].stride;
        std::vector<std::byte> expected = to.memory;
        transport::fold(op, type, from.base(), slot_stride, slots, slot_box, expected.data() + to.first, to.box,
                        divisor);
        auto const box =
            detail::fold_box(op, type, from.base(), slot_box, slot_stride, slots, to.base(), to.box, divisor);
        wide += run(box, bytes(type), []<class A>(detail::FoldBox const& each, Index tile, int thread) {
                    detail::fold_thread<A>(each, tile, thread);
                }) > 1;
        same_nans(to, to.memory, type);
        same_nans(to, expected, type);
        CAPTURE(seed);
        CAPTURE(name(type));
        CAPTURE(name(op));
        CHECK((to.memory == expected));
    }
    CHECK(wide > of_seeds(100));
}

TEST_CASE("device folds that convert: the bits of the host's fold with the host's conversion after it") {
    std::vector<DType> const types{DType::boolean, DType::u8,  DType::i16, DType::f16, DType::bf16,
                                   DType::i32,     DType::f32, DType::f64, DType::i64, DType::u64};
    int wide = 0;
    for (std::uint64_t seed : seeds(800)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        bool const in_rows = seed % 2 == 0;
        DType const a = types[rng() % types.size()];
        DType const b = types[rng() % types.size()];
        auto const op = static_cast<Reduce>(rng() % reduce_count);
        double const factor = rng() % 3 == 0 ? 1.0 / 3.0 : 1.0;
        if (!supports(op, a) || !transport::can_convert(a, b, factor) || (a == b && factor == 1.0)) continue;
        auto const extents = random_extents(rng);
        Index const slots = 1 + static_cast<Index>(rng() % 5);
        Index const divisor = op == Reduce::avg ? slots : 1;
        std::vector<Index> with_slots = extents;
        with_slots.insert(with_slots.begin(), slots);
        Placed from = in_rows ? place_in_rows(rng, with_slots, bytes(a)) : place(rng, with_slots, bytes(a), true);
        Placed folded = place(rng, extents, bytes(a), false);
        Placed to = in_rows ? place_in_rows(rng, extents, bytes(b)) : place(rng, extents, bytes(b), false);
        scramble(rng, from.memory);
        transport::StridedBox slot_box;
        slot_box.element_bytes = bytes(a);
        for (int d = 1; d < from.box.dims.size(); ++d) slot_box.dims.push_back(from.box.dims[d]);
        Index const slot_stride = from.box.dims[0].stride;
        std::vector<std::byte> expected = to.memory;
        transport::fold(op, a, from.base(), slot_stride, slots, slot_box, folded.base(), folded.box, divisor);
        transport::convert(folded.base(), folded.box, a, expected.data() + to.first, to.box, b, factor);
        detail::FoldCastBox const box{
            detail::fold_box(op, a, from.base(), slot_box, slot_stride, slots, to.base(), to.box, divisor),
            detail::cast_rule(a, b, factor)};
        wide += run(box.fold, bytes(b), [&]<class A>(detail::FoldBox const& each, Index tile, int thread) {
                    detail::fold_cast_thread<A>({each, box.cast}, tile, thread);
                }) > 1;
        same_nans(to, to.memory, b);
        same_nans(to, expected, b);
        CAPTURE(seed);
        CAPTURE(name(a));
        CAPTURE(name(b));
        CAPTURE(name(op));
        CAPTURE(factor);
        CHECK((to.memory == expected));
    }
    CHECK(wide > of_seeds(40));
}

TEST_CASE("device conversions: the kernel's body equals the host's convert, bit for bit, for every pair and factor") {
    std::vector<DType> const types{DType::boolean, DType::u8,   DType::i8,  DType::i16, DType::u16,
                                   DType::f16,     DType::bf16, DType::i32, DType::u32, DType::f32,
                                   DType::f64,     DType::i64,  DType::u64};
    // NaNs, infinities, subnormals, halves, ends of integers: what random bits seldom are.
    std::vector<double> const corners{
        0.0,     -0.0,      0.5,     1.5,      2.5,     -0.5,           254.5,          255.5,
        65504.0, 65519.999, 65520.0, -65536.0, 0x1p-24, 0x1.8p-25,      0x1p-133,       0x1p-149,
        0x1p52,  0x1p53,    0x1p63,  -0x1p63,  0x1p64,  0x1.fffffep127, 0x1.ffffffp127, 3e-310};
    std::vector<double> const factors{1.0, 1.0, 0.5, 3.0, -0.1, 1.0 / 3.0, 1e-40, 1e300};
    for (std::uint64_t seed : seeds(1500)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        DType const a = types[rng() % types.size()];
        DType const b = types[rng() % types.size()];
        double const factor = factors[rng() % factors.size()];
        if (!transport::can_convert(a, b, factor) || (a == b && factor == 1.0)) continue;
        auto const extents = random_extents(rng);
        Placed from = place(rng, extents, bytes(a), true);
        Placed to = place(rng, extents, bytes(b), false);
        scramble(rng, from.memory);
        detail::with_number(a, [&]<class T>() {
            for (Index offset : offsets_of(from.box)) {
                std::byte* const at = from.base() + offset;
                auto const choice = rng() % 8;
                if (choice == 0) std::memset(at, 0xff, sizeof(T));  // a NaN, minus one, the largest
                if constexpr (!std::is_integral_v<T>) {
                    if (choice == 1) {
                        detail::store_element<T>(at,
                                                 static_cast<detail::Accumulator<T>>(corners[rng() % corners.size()]));
                    } else if (choice == 2) {  // infinities and signalling NaNs
                        double const wide = std::numeric_limits<double>::infinity();
                        detail::store_element<T>(at,
                                                 static_cast<detail::Accumulator<T>>(rng() % 2 != 0 ? wide : -wide));
                        if (rng() % 2 != 0) at[0] = std::byte{1};
                    }
                }
            }
        });
        std::vector<std::byte> expected = to.memory;
        transport::convert(from.base(), from.box, a, expected.data() + to.first, to.box, b, factor);
        auto const box = detail::cast_box(from.base(), from.box, a, to.base(), to.box, b, factor);
        for_each_thread(box.loops.units, [&](Index tile, int thread) { detail::copy_thread(box, tile, thread); });
        CAPTURE(seed);
        CAPTURE(name(a));
        CAPTURE(name(b));
        CAPTURE(factor);
        CHECK((to.memory == expected));
    }
}

TEST_CASE("device fills and factors: the kernels' bodies equal the host's fill_identity and scale") {
    std::vector<DType> const types{DType::boolean, DType::u8,  DType::i16, DType::f16, DType::bf16,
                                   DType::i32,     DType::f32, DType::f64, DType::u64};
    for (std::uint64_t seed : seeds(300)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        DType const type = types[rng() % types.size()];
        Placed to = place(rng, random_extents(rng), bytes(type), false);
        CAPTURE(seed);
        CAPTURE(name(type));
        auto const op = static_cast<Reduce>(rng() % reduce_count);
        if (supports(op, type) && has_identity(op)) {
            std::vector<std::byte> expected = to.memory;
            transport::fill_identity(op, type, expected.data() + to.first, to.box);
            auto const box = detail::identity_box(op, type, to.base(), to.box);
            for_each_thread(box.loops.units, [&](Index tile, int thread) { detail::fill_thread(box, tile, thread); });
            CHECK((to.memory == expected));
        }
        if (!is_floating(type)) continue;
        scramble(rng, to.memory);
        std::vector<std::byte> expected = to.memory;
        Index const multiply = 1 + static_cast<Index>(rng() % 3);
        Index const divide = 1 + static_cast<Index>(rng() % 7);
        transport::scale(type, expected.data() + to.first, to.box, multiply, divide);
        auto const box = detail::scale_box(type, to.base(), to.box, multiply, divide);
        for_each_thread(box.loops.units, [&](Index tile, int thread) { detail::scale_thread(box, tile, thread); });
        same_nans(to, to.memory, type);
        same_nans(to, expected, type);
        CHECK((to.memory == expected));
    }
}
