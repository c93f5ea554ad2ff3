// SPDX-License-Identifier: Apache-2.0
// Folds and conversions have the same bits whatever the compiler, its options and the processor: ranks of one job, and
// runs of one program, may differ in all three. The digests are those of g++ and clang++ on x86-64 and of g++ on
// AArch64, with and without optimisation, contraction and fused instructions. Which NaN arithmetic makes is a
// processor's choice (x86 sets its sign, ARM does not), so every NaN that a sum or a factor leaves counts alike.
#include <reshard/memory/convert.hpp>
#include <reshard/memory/fold.hpp>

#include <doctest/doctest.h>

#include <cstring>  // memcpy
#include <initializer_list>
#include <vector>

namespace {
using namespace reshard;

constexpr DType floats[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

bool is_nan(DType dtype, std::uint64_t bits) {
    switch (dtype) {
        case DType::f16: return (bits & 0x7fffU) > 0x7c00U;
        case DType::bf16: return (bits & 0x7fffU) > 0x7f80U;
        case DType::f32: return (bits & 0x7fffffffU) > 0x7f800000U;
        case DType::f64: return (bits & INT64_MAX) > 0x7ff0000000000000U;
        default: return false;
    }
}

transport::StridedBox row_of(DType dtype, Index count, Index apart) {
    transport::StridedBox box;
    box.element_bytes = bytes(dtype);
    box.dims.push_back({count, apart * bytes(dtype)});
    return box;
}

/// Elements with all bits, and others of about the same size, whose sums and products are rounded.
std::vector<std::byte> elements(DType dtype, Index count) {
    auto const size = static_cast<std::size_t>(bytes(dtype));
    std::vector<std::byte> list(static_cast<std::size_t>(count) * size);
    std::uint64_t state = 1;
    for (std::size_t i = 0; i < list.size(); i += size) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::uint64_t value = (state >> 29U) ^ state;
        bool const near_one = (state >> 62U) != 0 && is_floating(dtype);
        std::uint64_t const sign_and_digits = dtype == DType::f16    ? 0x83ffU
                                              : dtype == DType::bf16 ? 0x807fU
                                              : dtype == DType::f32  ? 0x807fffffU
                                                                     : 0x800fffffffffffffU;
        std::uint64_t const one = dtype == DType::f16    ? 0x3c00U
                                  : dtype == DType::bf16 ? 0x3f80U
                                  : dtype == DType::f32  ? 0x3f800000U
                                                         : 0x3ff0000000000000U;
        if (near_one) value = (value & sign_and_digits) | one;
        std::memcpy(list.data() + i, &value, size);  // little-endian
    }
    return list;
}

std::uint64_t digest_of(DType dtype, std::vector<std::byte> const& list, bool nans_are_alike) {
    detail::Digest digest;
    auto const size = static_cast<std::size_t>(bytes(dtype));
    for (std::size_t i = 0; i < list.size(); i += size) {
        std::uint64_t value = 0;
        std::memcpy(&value, list.data() + i, size);
        digest.add(nans_are_alike && is_nan(dtype, value) ? 1 : value);
    }
    return digest.value();
}

constexpr Index count = 5000;

/// Of seven addends an element, `apart` elements from each other.
std::uint64_t fold_digest(Reduce op, DType dtype, Index apart) {
    constexpr Index slots = 7;
    std::vector<std::byte> const dense = elements(dtype, slots * count);
    auto const size = static_cast<std::size_t>(bytes(dtype));
    std::vector<std::byte> source(dense.size() * static_cast<std::size_t>(apart));
    for (std::size_t i = 0; i < dense.size() / size; ++i) {
        std::memcpy(source.data() + i * size * static_cast<std::size_t>(apart), dense.data() + i * size, size);
    }
    std::vector<std::byte> result(static_cast<std::size_t>(count) * size);
    transport::fold(op, dtype, source.data(), count * apart * bytes(dtype), slots, row_of(dtype, count, apart),
                    result.data(), row_of(dtype, count, 1), op == Reduce::avg ? slots : 1);
    return digest_of(dtype, result, true);
}

std::uint64_t cast_digest(DType from, DType to, double factor) {
    std::vector<std::byte> const source = elements(from, count);
    std::vector<std::byte> result(static_cast<std::size_t>(count * bytes(to)));
    transport::convert(source.data(), row_of(from, count, 1), from, result.data(), row_of(to, count, 1), to, factor);
    return digest_of(to, result, factor != 1.0);
}

TEST_CASE("folds have the same bits by every compiler and processor") {
    struct Known {
        Reduce op;
        std::uint64_t digests[4];  ///< of `floats`
    };
    Known const known[] = {
        {Reduce::sum, {0xb96d19a2d7eaaa81U, 0x946dc132875e67abU, 0x6cd645c78f6b0a34U, 0xd95d1d4e8d469455U}},
        {Reduce::avg, {0xb09ea572387939cdU, 0xbc861b8815ae5afeU, 0xd94614daebcf284eU, 0xb8921bfeaaf2d7d3U}},
        {Reduce::product, {0xef8e613ac6bd8a3bU, 0x76ea1ed1083fdee2U, 0x6c0db15b2be40ba1U, 0x0ec233d968fd2100U}},
        {Reduce::max, {0x6ef977d180b58714U, 0xe76d804ee0f3aec6U, 0xd66f87fe8e48ca36U, 0x0123de930b38a57bU}},
    };
    for (Known const& one : known) {
        for (std::size_t i = 0; i < 4; ++i) {
            CAPTURE(name(one.op));
            CAPTURE(name(floats[i]));
            CHECK(fold_digest(one.op, floats[i], 1) == one.digests[i]);
            CHECK(fold_digest(one.op, floats[i], 3) == one.digests[i]);
        }
    }
}

TEST_CASE("sums become averages with the same bits by every compiler and processor") {
    detail::Digest all;
    for (DType dtype : floats) {
        std::vector<std::byte> list = elements(dtype, count);
        transport::scale(dtype, list.data(), row_of(dtype, count, 1), 3, 7);
        all.add(digest_of(dtype, list, true));
    }
    CHECK(all.value() == 0xc110a4c6d6d5ac1bU);
}

TEST_CASE("conversions have the same bits by every compiler and processor: rounded, scaled, and to integers") {
    detail::Digest plain;
    detail::Digest scaled;
    detail::Digest whole;
    for (DType from : floats) {
        for (DType to : floats) {
            plain.add(cast_digest(from, to, 1.0));
            for (double factor : {0.1, 3.0, 1e-6, 0x1p-130}) scaled.add(cast_digest(from, to, factor));
        }
        for (DType to : {DType::i8, DType::u8, DType::i32, DType::u32, DType::i64, DType::u64, DType::boolean}) {
            whole.add(cast_digest(from, to, 1.0));
            whole.add(cast_digest(to, from, 1.0));
        }
    }
    CHECK(plain.value() == 0xa1d00bf2289f99baU);
    CHECK(scaled.value() == 0x73d751c69f8580bdU);
    CHECK(whole.value() == 0x6898cae4561702dbU);
}

}  // namespace
