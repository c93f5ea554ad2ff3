// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/init/philox.hpp.
#include <reshard/init/philox.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {
using namespace reshard;

/// A line "philox4x32 10" of Random123's tests/kat_vectors.
struct KnownAnswer {
    PhiloxBlock counter;
    std::uint32_t key[2];
    PhiloxBlock answer;

    [[nodiscard]] constexpr std::uint64_t whole_key() const { return (std::uint64_t{key[1]} << 32U) | key[0]; }
    [[nodiscard]] constexpr std::uint64_t block() const {
        return (std::uint64_t{counter.words[1]} << 32U) | counter.words[0];
    }
    [[nodiscard]] constexpr std::uint64_t stream() const {
        return (std::uint64_t{counter.words[3]} << 32U) | counter.words[2];
    }
};
constexpr KnownAnswer known_answers[] = {
    {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {0xffffffff, 0xffffffff},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {0xa4093822, 0x299f31d0},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};
static_assert(philox4x32(known_answers[0].counter, known_answers[0].whole_key()) == known_answers[0].answer);
static_assert(philox4x32(known_answers[1].counter, known_answers[1].whole_key()) == known_answers[1].answer);
static_assert(philox4x32(known_answers[2].counter, known_answers[2].whole_key()) == known_answers[2].answer);

TEST_CASE("philox gives the published answers, one block at a time and many") {
    for (KnownAnswer const& known : known_answers) {
        std::uint64_t volatile const key = known.whole_key();  // not a constant: this is about the code that runs
        CHECK(philox4x32(known.counter, key) == known.answer);
        CHECK(philox4x32(known.block(), known.stream(), key) == known.answer);
        for (Index count : {1, 8, 11}) {
            std::vector<std::uint32_t> words(static_cast<std::size_t>(4 * count));
            philox4x32_blocks(known.block(), count, known.stream(), key, words.data());
            for (std::size_t word = 0; word < 4; ++word) CHECK(words[word] == known.answer.words[word]);
        }
    }
}

TEST_CASE("many blocks are what each of them is alone, also where the counter's lower word wraps") {
    for (std::uint64_t first : {std::uint64_t{0}, std::uint64_t{0xfffffffaU}, std::uint64_t{1} << 60U}) {
        for (Index count = 0; count < 40; ++count) {
            std::vector<std::uint32_t> words(static_cast<std::size_t>(4 * count) + 1, 7);
            philox4x32_blocks(first, count, 0x123456789abcdefU, 42, words.data());
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                PhiloxBlock const block = philox4x32(first + i, 0x123456789abcdefU, 42);
                for (std::size_t word = 0; word < 4; ++word) REQUIRE(words[4 * i + word] == block.words[word]);
            }
            REQUIRE(words.back() == 7);  // nothing behind the end
        }
    }
}

}  // namespace
