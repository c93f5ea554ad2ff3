// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/checksum.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;

TEST_CASE("a run longer than an int counts is summed whole") {
    constexpr std::size_t size = (std::size_t{1} << 31U) + 12345;
    std::vector<std::byte> bytes(size);
    for (std::size_t at = 0; at < size; at += 4093) bytes[at] = static_cast<std::byte>(at >> 12U);
    std::span<std::byte const> const all(bytes);
    std::uint32_t pieces = 0;
    std::uint32_t combined = 0;
    for (std::size_t at = 0; at < size; at += 50'000'017) {
        auto const piece = all.subspan(at, detail::smaller<std::size_t>(50'000'017, size - at));
        pieces = crc32c(piece, pieces);
        combined = crc32c_combine(combined, crc32c(piece), static_cast<Index>(piece.size()));
    }
    CHECK(crc32c(all) == pieces);
    CHECK(combined == pieces);
}
