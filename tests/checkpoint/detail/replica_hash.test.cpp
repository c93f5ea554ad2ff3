// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_hash.hpp.
#include <reshard/checkpoint/detail/replica_hash.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace {
using namespace reshard;
using detail::Hash128;
using detail::ReplicaHasher;

TEST_CASE("the hash is XXH3-128, as xxhsum -H2 prints it") {
    CHECK(detail::hash_of({}) == Hash128{0x6001c324468d497fU, 0x99aa06d3014798d8U});
}

TEST_CASE("the hash of a strided view is that of its dense bytes, also beyond the buffer") {
    constexpr Index rows = 301;
    constexpr Index columns = 513;
    static_assert(rows * columns * 4 > 2 * ReplicaHasher::buffer_bytes);
    std::vector<std::uint32_t> dense(rows * columns);
    std::iota(dense.begin(), dense.end(), 7U);
    std::vector<std::uint32_t> turned(dense.size());
    std::vector<std::uint32_t> padded(rows * (columns + 5), 0xffffffffU);
    for (Index r = 0; r < rows; ++r) {
        for (Index c = 0; c < columns; ++c) {
            auto const value = dense[static_cast<std::size_t>(r * columns + c)];
            turned[static_cast<std::size_t>(c * rows + r)] = value;
            padded[static_cast<std::size_t>(r * (columns + 5) + c)] = value;
        }
    }
    ReplicaHasher hasher(false);
    Shape const shape{rows, columns};
    auto const bytes = std::as_bytes(std::span(dense));
    CHECK(hasher.hash(TensorView<std::uint32_t>(dense.data(), shape)) == detail::hash_of(bytes));
    CHECK(hasher.hash(TensorView<std::uint32_t>(turned.data(), shape, {1, rows})) == detail::hash_of(bytes));
    TensorView<std::uint32_t> const window(padded.data(), shape, {columns + 5, 1});
    CHECK(hasher.hash(window) == detail::hash_of(bytes));
    CHECK(hasher.hash(window, 100, 90000) == detail::hash_of(bytes.subspan(400, 4 * 89900)));
    CHECK(hasher.block_hashes(window, 100000) ==
          std::vector{detail::hash_of(bytes.first(400000)), detail::hash_of(bytes.subspan(400000))});
    ReplicaHasher canonical(true);  // integers have one form
    CHECK(canonical.hash(window) == detail::hash_of(bytes));
}

TEST_CASE("one bit anywhere changes the hash") {
    std::vector<std::byte> memory(3000);
    Hash128 const before = detail::hash_of(memory);
    for (std::size_t at = 0; at < memory.size() * 8; at += 37) {
        memory[at / 8] ^= std::byte{1} << (at % 8);
        CHECK_FALSE(detail::hash_of(memory) == before);
        memory[at / 8] ^= std::byte{1} << (at % 8);
    }
}

TEST_CASE("canonical hashes do not see which zero or which NaN, and leave the memory alone") {
    std::vector<float> a{0.0F, 1.0F, __builtin_nanf("1"), -2.0F};
    std::vector<float> b{-0.0F, 1.0F, -__builtin_nanf("77"), -2.0F};
    std::vector<float> const kept = b;
    auto const hash = [](bool canonical, std::vector<float>& x) {
        return ReplicaHasher(canonical).hash(TensorView<float>(x.data(), Shape{4}));
    };
    CHECK_FALSE(hash(false, a) == hash(false, b));
    CHECK(hash(true, a) == hash(true, b));
    CHECK(std::memcmp(b.data(), kept.data(), 16) == 0);
    b[3] = 2.0F;
    CHECK_FALSE(hash(true, a) == hash(true, b));
}

TEST_CASE("a tensor of no elements has no blocks") {
    ReplicaHasher hasher(false);
    CHECK(hasher.block_hashes(TensorView<float>(nullptr, Shape{0, 3}), 5).empty());
}

}  // namespace
