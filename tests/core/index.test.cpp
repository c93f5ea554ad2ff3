// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/index.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

using namespace reshard;

namespace {

constexpr Index huge = std::numeric_limits<Index>::max();

static_assert(sizeof(Index) == 8, "counts are 64-bit everywhere");

static_assert(detail::ceil_div(0, 4) == 0);
static_assert(detail::ceil_div(1, 4) == 1);
static_assert(detail::ceil_div(4, 4) == 1);
static_assert(detail::ceil_div(5, 4) == 2);
static_assert(detail::ceil_div(huge, 1) == huge);
static_assert(detail::ceil_div(huge, 2) == huge / 2 + 1, "no overflow on the way");
static_assert(detail::ceil_div(huge, huge) == 1);

static_assert(detail::smaller(2, 3) == 2 && detail::smaller(3, 2) == 2 && detail::larger(2, 3) == 3 &&
              detail::larger(3, 2) == 3);

constexpr bool fits(Index a, Index b, Index expected) {
    Index result = -1;
    return detail::multiply_fits(a, b, result) && result == expected;
}
constexpr bool overflows(Index a, Index b) {
    Index result = 0;
    return !detail::multiply_fits(a, b, result);
}
static_assert(fits(0, huge, 0) && fits(huge, 0, 0) && fits(huge, 1, huge) && fits(1, huge, huge));
static_assert(fits(Index{1} << 31, Index{1} << 31, Index{1} << 62));
static_assert(overflows(Index{1} << 32, Index{1} << 31) && overflows(2, huge / 2 + 1) && fits(2, huge / 2, huge - 1));

constexpr InlineList<int, 4> list_of(int a, int b) {
    InlineList<int, 4> list;
    list.push_back(a);
    list.push_back(b);
    return list;
}
static_assert(list_of(1, 2) == list_of(1, 2));
static_assert(InlineList<int, 4>{1, 2} == list_of(1, 2) && InlineList<int, 4>{}.empty());
static_assert(!(list_of(1, 2) == list_of(1, 3)));

// Fractions are no integers: neither a list of them, nor one more.
template <class List, class... Values>
concept Lists = requires(List list, Values... values) {
    List{values...};
    (list.push_back(values), ...);
};
static_assert(Lists<Indices, int, Index> && Lists<InlineList<double, 2>, double> &&
              Lists<InlineList<double, 2>, float>);
static_assert(!Lists<Indices, double> && !Lists<Indices, int, float> && !Lists<InlineList<std::int8_t, 8>, double>);
static_assert(!std::is_convertible_v<double, Indices> && std::is_convertible_v<int, Indices>);

}  // namespace

TEST_CASE("an inline list compares what it holds and forgets what was popped") {
    auto a = list_of(1, 2);
    auto b = list_of(1, 9);
    CHECK(a.size() == 2);
    CHECK(a.capacity() == 4);
    CHECK(a.back() == 2);
    a.pop_back();
    b.pop_back();
    CHECK(a == b);  // the 2 and the 9 are still in memory
    CHECK_FALSE(a == list_of(1, 2));
    b.pop_back();
    CHECK(b.empty());
    int sum = 0;
    for (int value : list_of(3, 4)) sum += value;
    CHECK(sum == 7);
}

TEST_CASE("a list that is full takes no more, and keeps what it has") {
    Indices extents;  // as a file of more dimensions than a tensor has would be read
    for (Index d = 0; d < max_dims; ++d) extents.push_back(d);
    Indices const full = extents;
    CHECK_THROWS_WITH_AS(
        extents.push_back(9),
        "reshard::InlineList: more than 8 values. Fix: a tensor has at most 8 dimensions and a mesh at "
        "most 8 axes; merge some.",
        ShapeError);
    CHECK(extents == full);
}

TEST_CASE("an entry is the number given, or the list is refused") {
    CHECK(InlineList<std::int8_t, 8>{127, -128}[1] == -128);
    CHECK_THROWS_AS((InlineList<std::int8_t, 8>{1, 256}), ShapeError);  // would be axis 0
    CHECK_THROWS_AS(Indices{std::numeric_limits<std::uint64_t>::max()}, ShapeError);
    CHECK_THROWS_AS((InlineList<std::uint64_t, 2>{-1}), ShapeError);
    CHECK(Indices{std::size_t{7}, true}[0] == 7);
}

TEST_CASE("a digest depends on the values and on their order") {
    CHECK(detail::Digest{}.add(1).add(2).value() == detail::Digest{}.add(1).add(2).value());
    CHECK(detail::Digest{}.add(1).add(2).value() != detail::Digest{}.add(2).add(1).value());
    CHECK(detail::Digest{}.add(0).value() != detail::Digest{}.value());
    CHECK(detail::Digest{}.add_signed(-1).value() == detail::Digest{}.add(~std::uint64_t{0}).value());
    // FNV-1a of eight zero bytes, from the algorithm's definition: the number is stable across platforms.
    std::uint64_t expected = 0xcbf29ce484222325U;
    for (int byte = 0; byte < 8; ++byte) expected *= 0x100000001b3U;
    CHECK(detail::Digest{}.add(0).value() == expected);
}

TEST_CASE("a digest of text depends on its letters, and on where it ends") {
    CHECK(detail::Digest{}.add_text("ab").value() == detail::Digest{}.add_text("ab").value());
    CHECK(detail::Digest{}.add_text("ab").value() != detail::Digest{}.add_text("ba").value());
    CHECK(detail::Digest{}.add_text("").value() != detail::Digest{}.value());
    CHECK(detail::Digest{}.add_text("ab").add_text("c").value() !=
          detail::Digest{}.add_text("a").add_text("bc").value());
    CHECK(detail::Digest{}.add_text(std::string_view("a\0", 2)).value() != detail::Digest{}.add_text("a").value());
    CHECK(detail::Digest{}.add_text("\xff").value() != detail::Digest{}.add_text("\x7f").value());
    // FNV-1a of the length, 8 bytes, and of the letters, from the algorithm's definition.
    std::uint64_t expected = detail::Digest{}.add(2).value();
    for (unsigned letter : {0xe4U, 0x62U}) expected = (expected ^ letter) * 0x100000001b3U;
    CHECK(detail::Digest{}.add_text("\xe4\x62").value() == expected);
    static_assert(detail::Digest{}.add_text("constant").value() != 0);
    static_assert(detail::Digest{}.add_words("a constant of more than a word").value() != 0);
}

TEST_CASE("a digest by words sees every byte, the length and the order") {
    std::string const text = "model.layers.0.mlp.experts.17.gate_proj.weight";
    auto const of = [](std::string_view part) { return detail::Digest{}.add_words(part).value(); };
    std::vector<std::uint64_t> seen{of(""), of(std::string_view("\0", 1)), of(std::string(8, '\0'))};
    for (std::size_t size = 1; size <= text.size(); ++size) seen.push_back(of(std::string_view(text).substr(0, size)));
    for (std::size_t at = 0; at < text.size(); ++at) {
        for (char bit : {'\x01', '\x10', '\x40'}) {
            std::string changed = text;
            changed[at] = static_cast<char>(changed[at] ^ bit);
            seen.push_back(of(changed));
        }
    }
    seen.push_back(detail::Digest{}.add_words("ab").add_words("c").value());
    seen.push_back(detail::Digest{}.add_words("a").add_words("bc").value());
    CHECK(of(text) == of(std::string(text)));
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}
