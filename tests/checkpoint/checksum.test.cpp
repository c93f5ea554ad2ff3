// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/checksum.hpp>

#include <support/random.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

using namespace reshard;

namespace {

std::span<std::byte const> bytes_of(std::vector<unsigned char> const& list) { return std::as_bytes(std::span(list)); }

/// Bit by bit, as the polynomial division is defined: shares nothing with the code under test.
std::uint32_t oracle(std::span<std::byte const> bytes) {
    std::uint32_t state = 0xffffffffU;
    for (std::byte const byte : bytes) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            bool const carry = ((state & 1U) ^ ((std::to_integer<unsigned>(byte) >> bit) & 1U)) != 0;
            state >>= 1U;
            // x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11 + x^10 + x^9
            // + x^8 + x^6 + 1
            if (carry) {
                for (unsigned power : {28U, 27U, 26U, 25U, 23U, 22U, 20U, 19U, 18U, 14U, 13U, 11U, 10U, 9U, 8U, 6U, 0U})
                    state ^= 1U << (31U - power);
            }
        }
    }
    return ~state;
}

/// A matrix over GF(2): what some number of zero bytes do to the bits of a state. The other way to combine sums.
struct Matrix {
    std::uint32_t columns[32]{};

    [[nodiscard]] std::uint32_t times(std::uint32_t vector) const {
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i < 32; ++i)
            if (((vector >> i) & 1U) != 0) sum ^= columns[i];
        return sum;
    }
    [[nodiscard]] Matrix times(Matrix const& right) const {
        Matrix product;
        for (std::size_t i = 0; i < 32; ++i) product.columns[i] = times(right.columns[i]);
        return product;
    }
    /// Of one zero bit.
    static Matrix bit() {
        Matrix matrix;
        for (std::size_t i = 0; i < 32; ++i) matrix.columns[i] = i == 0 ? 0x82f63b78U : 1U << (i - 1);
        return matrix;
    }
    static Matrix zeros(std::uint64_t bytes) {
        Matrix power = bit();
        for (int i = 0; i < 3; ++i) power = power.times(power);
        Matrix all;
        for (std::size_t i = 0; i < 32; ++i) all.columns[i] = 1U << i;
        for (; bytes != 0; bytes >>= 1U, power = power.times(power))
            if ((bytes & 1U) != 0) all = all.times(power);
        return all;
    }
};

std::vector<unsigned char> random_bytes(test::Random& random, Index count) {
    std::vector<unsigned char> list(static_cast<std::size_t>(count));
    for (unsigned char& byte : list) byte = static_cast<unsigned char>(random.engine()());
    return list;
}

}  // namespace

TEST_CASE("the check vectors of RFC 3720 and the usual one come out") {
    CHECK(crc32c({}) == 0);
    std::string_view const digits = "123456789";
    CHECK(crc32c(std::as_bytes(std::span(digits.data(), digits.size()))) == 0xe3069283U);
    std::vector<unsigned char> list(32, 0);
    CHECK(crc32c(bytes_of(list)) == 0x8a9136aaU);
    list.assign(32, 0xff);
    CHECK(crc32c(bytes_of(list)) == 0x62a8ab43U);
    std::iota(list.begin(), list.end(), static_cast<unsigned char>(0));
    CHECK(crc32c(bytes_of(list)) == 0x46dd794eU);
    std::vector<unsigned char> const descending(list.rbegin(), list.rend());
    CHECK(crc32c(bytes_of(descending)) == 0x113fdb5cU);
}

TEST_CASE("sums are those of the division bit by bit, at any length and alignment") {
    for (std::uint64_t const seed : test::seeds(200)) {
        CAPTURE(seed);
        test::Random random(seed);
        auto const list = random_bytes(random, random.between(0, 700));
        auto const part = bytes_of(list).subspan(
            static_cast<std::size_t>(random.between(0, detail::smaller<Index>(16, static_cast<Index>(list.size())))));
        CHECK(crc32c(part) == oracle(part));
    }
}

TEST_CASE("sums of parts combine to the sum of the whole at every cut") {
    for (std::uint64_t const seed : test::seeds(300)) {
        CAPTURE(seed);
        test::Random random(seed);
        auto const list = random_bytes(random, random.between(0, random.chance(10) ? 100'000 : 300));
        auto const all = bytes_of(list);
        std::uint32_t const whole = crc32c(all);
        // Any number of parts, empty ones among them, combined from the left.
        std::uint32_t sum = 0;
        std::uint32_t continued = 0;
        std::size_t at = 0;
        for (Index parts = random.between(1, 9); parts > 0; --parts) {
            auto const left = static_cast<Index>(all.size() - at);
            Index const take = parts == 1 ? left : random.chance(20) ? 0 : random.between(0, left);
            auto const part = all.subspan(at, static_cast<std::size_t>(take));
            sum = crc32c_combine(sum, crc32c(part), take);
            continued = crc32c(part, continued);
            at += part.size();
        }
        CHECK(sum == whole);
        CHECK(continued == whole);
        if (all.size() < 300) CHECK(whole == oracle(all));
    }
}

TEST_CASE("combining is associative and nothing changes nothing") {
    for (std::uint64_t const seed : test::seeds(200)) {
        CAPTURE(seed);
        test::Random random(seed);
        auto const word = [&] { return static_cast<std::uint32_t>(random.engine()()); };
        std::uint32_t const a = word();
        std::uint32_t const b = word();
        std::uint32_t const c = word();
        Index const b_bytes = random.between(0, Index{1} << random.between(0, 61));
        Index const c_bytes = random.between(0, Index{1} << random.between(0, 61));
        CHECK(crc32c_combine(a, 0, 0) == a);
        CHECK(crc32c_combine(0, b, b_bytes) == b);
        CHECK(crc32c_combine(crc32c_combine(a, b, b_bytes), c, c_bytes) ==
              crc32c_combine(a, crc32c_combine(b, c, c_bytes), b_bytes + c_bytes));
    }
}

TEST_CASE("lengths beyond 32 bits are those of the matrix of zero bytes") {
    for (std::uint64_t const seed : test::seeds(50)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const bytes = random.chance(20) ? INT64_MAX : random.between(Index{1} << 32, Index{1} << 50);
        auto const first = static_cast<std::uint32_t>(random.engine()());
        auto const second = static_cast<std::uint32_t>(random.engine()());
        CHECK(crc32c_combine(first, second, bytes) ==
              (Matrix::zeros(static_cast<std::uint64_t>(bytes)).times(first) ^ second));
    }
    // 5 GiB of zeros, from the sum of 1 MiB of them: by doubling, and in one step for each MiB.
    std::vector<unsigned char> const zeros(std::size_t{1} << 20, 0);
    std::uint32_t const mebibyte = crc32c(bytes_of(zeros));
    std::uint32_t one_by_one = 0;
    for (int i = 0; i < 5 * 1024; ++i) one_by_one = crc32c_combine(one_by_one, mebibyte, Index{1} << 20);
    std::uint32_t gibibyte = mebibyte;
    for (Index size = Index{1} << 20; size < Index{1} << 30; size *= 2)
        gibibyte = crc32c_combine(gibibyte, gibibyte, size);
    std::uint32_t four = gibibyte;
    for (Index size = Index{1} << 30; size < Index{1} << 32; size *= 2) four = crc32c_combine(four, four, size);
    CHECK(crc32c_combine(four, gibibyte, Index{1} << 30) == one_by_one);
    CHECK(crc32c_combine(gibibyte, four, Index{1} << 32) == one_by_one);
    std::vector<unsigned char> const tail{1, 2, 3};
    CHECK(crc32c_combine(one_by_one, crc32c(bytes_of(tail)), 3) == crc32c(bytes_of(tail), one_by_one));
}
