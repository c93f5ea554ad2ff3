// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/text.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "../support/random.hpp"

using reshard::detail::append_json_string;
using reshard::detail::is_utf8;

namespace {

/// The code point as UTF-8, without asking whether it may exist.
std::string encode(unsigned point) {
    auto const tail = [&](unsigned shift) { return static_cast<char>(0x80U | ((point >> shift) & 0x3fU)); };
    if (point < 0x80) return {static_cast<char>(point)};
    if (point < 0x800) return {static_cast<char>(0xc0U | (point >> 6U)), tail(0)};
    if (point < 0x10000) return {static_cast<char>(0xe0U | (point >> 12U)), tail(6), tail(0)};
    return {static_cast<char>(0xf0U | (point >> 18U)), tail(12), tail(6), tail(0)};
}

}  // namespace

TEST_SUITE("checkpoint/text") {
    TEST_CASE("every Unicode scalar value is UTF-8, surrogates and what lies above are not") {
        bool const fewer = reshard::test::fewer_seeds();  // every 15th, and the ends of all ranges
        for (unsigned point = 0; point < 0x120000; ++point) {
            if (fewer && point % 15 != 0 && (point + 2) % 0x80 >= 4) continue;
            bool const expected = point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
            if (is_utf8("a" + encode(point) + "z") == expected) continue;
            CAPTURE(point);
            REQUIRE(is_utf8("a" + encode(point) + "z") == expected);
        }
    }

    TEST_CASE("wherever a sequence begins, it is looked at") {
        for (std::size_t before = 0; before < 40; ++before) {
            for (std::size_t after : {std::size_t{0}, std::size_t{3}, std::size_t{20}}) {
                CAPTURE(before);
                CAPTURE(after);
                std::string const tail(after, 'z');
                CHECK(is_utf8(std::string(before, 'a') + "\xc3\xa4" + tail));
                CHECK_FALSE(is_utf8(std::string(before, 'a') + "\xa4" + tail));
            }
        }
    }

    TEST_CASE("ill-formed sequences are refused") {
        CHECK(is_utf8(""));
        for (char const* const text :
             {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xe2\x82",
              "\xe2(\xa1", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf4\x90\x80\x80",
              "\xf5\x80\x80\x80", "\xff", "\xfe"}) {
            CAPTURE(text);
            CHECK_FALSE(is_utf8(text));
        }
    }

    TEST_CASE("strings are escaped as serde_json escapes them") {
        auto const json = [](std::string_view text) {
            std::string result;
            append_json_string(result, text);
            return result;
        };
        CHECK(json("") == R"("")");
        CHECK(json("a/b\x7f") == "\"a/b\x7f\"");
        CHECK(json("\"\\\b\f\n\r\t") == R"("\"\\\b\f\n\r\t")");
        CHECK(json(std::string_view("\0\x01\x1f", 3)) == R"("\u0000\u0001\u001f")");
        CHECK(json("\xc3\xa4") == "\"\xc3\xa4\"");
    }
}
