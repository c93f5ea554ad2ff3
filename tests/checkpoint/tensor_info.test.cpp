// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/tensor_info.hpp>

#include <doctest/doctest.h>

#include "support.hpp"

#include <string>

using namespace checkpoint_test;

TEST_SUITE("checkpoint/tensor_info") {
    TEST_CASE("every rule's name is found again in a message about it") {
        for (int i = 1; i < reshard::detail::safetensors_rule_count; ++i) {
            auto const rule = static_cast<SafetensorsRule>(i);
            CAPTURE(name(rule));
            bool const is_io = rule == SafetensorsRule::missing_files;
            auto const rule_of = [&](std::string const& words, bool io) {
                return io ? safetensors_rule(IoError(words)) : safetensors_rule(FormatError(words));
            };
            std::string const words = errors::concat(name(rule), ": x");
            CHECK(rule_of(words, is_io) == rule);
            CHECK(rule_of("rank 12 of 300: " + words, is_io) == rule);
            for (std::string const& other : {errors::concat(name(rule), "Not: x"), "reshard::load: " + words,
                                             "/rank : " + words, "x: rank 0 of 1: " + words, std::string("rank ")})
                CHECK(rule_of(other, is_io) == SafetensorsRule::none);
            CHECK(rule_of(words, !is_io) == SafetensorsRule::none);
        }
        CHECK(safetensors_rule(FormatError("none: x")) == SafetensorsRule::none);
        CHECK(safetensors_rule(FormatError("")) == SafetensorsRule::none);
    }

    TEST_CASE("stored bytes are shape times dtype for all 22 dtypes") {
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            CAPTURE(name(dtype));
            CHECK(stored_bytes({"t", dtype, Shape{3, 8}}) == 3 * bits(dtype));
            CHECK(stored_bytes({"t", dtype, Shape{3, 0}}) == 0);
        }
        CHECK(stored_bytes({"scalar", DType::f32, {}}) == 4);
    }

    TEST_CASE("a 4- or 6-bit tensor that does not fill its last byte is misaligned") {
        CHECK(stored_bytes({"t", DType::f4, Shape{2}}) == 1);
        CHECK(stored_bytes({"t", DType::f6_e2m3, Shape{4}}) == 3);
        check_rule(SafetensorsRule::misaligned_slice, [] { (void)stored_bytes({"t", DType::f4, Shape{3}}); });
        check_rule(SafetensorsRule::misaligned_slice, [] { (void)stored_bytes({"t", DType::f6_e3m2, Shape{2}}); });
        check_rule(SafetensorsRule::misaligned_slice, [] { (void)stored_bytes({"t", DType::f4, {}}); });
    }

    TEST_CASE("a tensor of 2^60 bytes is counted, one bit more than 2^63 - 1 overflows") {
        CHECK(stored_bytes({"t", DType::u8, Shape{Index{1} << 59, 1}}) == Index{1} << 59);
        check_rule(SafetensorsRule::validation_overflow, [] {
            (void)stored_bytes({"t", DType::u8, Shape{Index{1} << 60}});
        });
        check_rule(SafetensorsRule::validation_overflow, [] {
            (void)stored_bytes({"t", DType::u8, Shape{0, Index{1} << 60}});
        });
    }

    TEST_CASE("names in messages are printable, short and never cut inside a character") {
        using reshard::detail::quote_name;
        CHECK(quote_name("layer.0") == "'layer.0'");
        CHECK(quote_name(std::string_view("a\n\0b", 4)) == "'a\\x0a\\x00b'");
        CHECK(reshard::detail::list_name("layer.0") == "layer.0");
        CHECK(reshard::detail::list_name(std::string(1000, 'a')) == std::string(1000, 'a'));
        CHECK(reshard::detail::list_name("a\x1b[31m") == "'a\\x1b[31m'");
        CHECK(reshard::detail::list_name("") == "''");
        CHECK(reshard::detail::list_name("  ") == "'  '");
        CHECK(reshard::detail::list_name("a\xe2\x80\xaez") == "'a\\xe2\\x80\\xaez'");  // U+202E turns the rest round
        for (char const* const hidden :
             {"\xc2\x9b", "\xc2\xa0", "\xd8\x9c", "\xe2\x80\x8b", "\xe2\x81\xa6", "\xef\xbb\xbf"})
            CHECK(reshard::detail::list_name(hidden).starts_with("'\\x"));
        for (char const* const shown : {"a b", "\xc3\xa4", "\xd8\xa7", "\xe2\x82\xac", "\xe4\xb8\xad", "\xef\xbc\xa1"})
            CHECK(reshard::detail::list_name(shown) == shown);
        std::string const longer = quote_name(std::string(1000, 'a'));
        CHECK(longer.size() == 165);
        CHECK(longer.ends_with("...'"));
        CHECK(quote_name(std::string(159, 'a') + "\xc3\xa4") == "'" + std::string(159, 'a') + "...'");
    }
}
