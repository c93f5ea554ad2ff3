// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/philox.hpp
/// \brief  Philox4x32-10: random words from a counter and a key. Word n of a stream costs the same for every n.
/// \depends core only. Opt-in: not part of the umbrella. No state, no memory, no floating point.
///
/// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC '11. Checked against the known answers
/// of Random123 (github.com/DEShawResearch/random123, tests/kat_vectors).
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

/// Four words: what a counter is, and what becomes of it.
struct PhiloxBlock {
    std::uint32_t words[4]{};
    friend constexpr bool operator==(PhiloxBlock const&, PhiloxBlock const&) noexcept = default;
};

namespace detail {
/// Word w of counter i is x[w][i]; each becomes the words that belong to it.
template <std::size_t Counters>
RESHARD_HOST_DEVICE constexpr void philox_rounds(std::uint32_t (&x)[4][Counters], std::uint64_t key) noexcept {
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32U);
    for (int round = 0; round < 10; ++round) {
        for (std::size_t i = 0; i < Counters; ++i) {
            std::uint64_t const a = std::uint64_t{0xD2511F53U} * x[0][i];
            std::uint64_t const b = std::uint64_t{0xCD9E8D57U} * x[2][i];
            x[0][i] = static_cast<std::uint32_t>(b >> 32U) ^ x[1][i] ^ k0;
            x[1][i] = static_cast<std::uint32_t>(b);
            x[2][i] = static_cast<std::uint32_t>(a >> 32U) ^ x[3][i] ^ k1;
            x[3][i] = static_cast<std::uint32_t>(a);
        }
        k0 += 0x9E3779B9U;  // golden ratio
        k1 += 0xBB67AE85U;  // sqrt(3) - 1
    }
}
}  // namespace detail

/// The words that belong to a counter. The key's first word is its lower half. A bijection of the counter for every
/// key, so that two counters never give the same block.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint64_t key) noexcept {
    auto const& words = counter.words;
    std::uint32_t x[4][1]{{words[0]}, {words[1]}, {words[2]}, {words[3]}};
    detail::philox_rounds(x, key);
    return {{x[0][0], x[1][0], x[2][0], x[3][0]}};
}

/// Block `block` of stream `stream`: the counter's lower half is the block, its upper half the stream.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr PhiloxBlock philox4x32(std::uint64_t block, std::uint64_t stream,
                                                                   std::uint64_t key) noexcept {
    return philox4x32({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U),
                        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)}},
                      key);
}

/// The words of blocks first, first + 1, ... of a stream, four for each of `blocks`, one after the other into `words`.
constexpr void philox4x32_blocks(std::uint64_t first, Index blocks, std::uint64_t stream, std::uint64_t key,
                                 std::uint32_t* words) noexcept {
    constexpr Index lanes = 8;  // blocks at a time, word by word: loops that become vector instructions
    for (; blocks >= lanes; blocks -= lanes, first += std::uint64_t{lanes}, words += 4 * lanes) {
        std::uint32_t x[4][lanes]{};
        for (Index i = 0; i < lanes; ++i) {
            std::uint64_t const block = first + static_cast<std::uint64_t>(i);
            x[0][i] = static_cast<std::uint32_t>(block);
            x[1][i] = static_cast<std::uint32_t>(block >> 32U);
            x[2][i] = static_cast<std::uint32_t>(stream);
            x[3][i] = static_cast<std::uint32_t>(stream >> 32U);
        }
        detail::philox_rounds(x, key);
        for (Index i = 0; i < lanes; ++i)
            for (Index word = 0; word < 4; ++word) words[4 * i + word] = x[word][i];
    }
    for (; blocks > 0; --blocks, ++first, words += 4) {
        PhiloxBlock const block = philox4x32(first, stream, key);
        for (int word = 0; word < 4; ++word) words[word] = block.words[word];
    }
}

}  // namespace reshard::inline v0_1
