// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/file_list.hpp>

#include <reshard/checkpoint/safetensors_layout.hpp>

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "../../support/random.hpp"
#include "../support.hpp"

using namespace checkpoint_test;
using reshard::detail::parse_weight_map;
using reshard::detail::stays_in_folder;
using reshard::detail::weight_map_text;

namespace {
using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(std::string_view json) {
    Pairs pairs;
    auto const map = parse_weight_map(json, "index");
    for (auto const& [tensor, leaf] : map.tensors) pairs.emplace_back(tensor, map.leaves.at(leaf));
    return pairs;
}
}  // namespace

TEST_SUITE("checkpoint/detail/weight_map") {
    TEST_CASE("pairs come sorted by tensor, escapes read") {
        CHECK(pairs_of(R"( {"weight_map":{"b":"2","a\n":"\u0031"}, "metadata":{}} )") ==
              Pairs{{"a\n", "1"}, {"b", "2"}});
    }

    TEST_CASE("a file that several tensors name is listed once, sorted by name") {
        std::string_view const json = R"({"weight_map":{"d":"f2","a":"f3","c":"f1","e":"f2","b":"f3"}})";
        CHECK(parse_weight_map(json, "index").leaves == std::vector<std::string>{"f1", "f2", "f3"});
        CHECK(pairs_of(json) == Pairs{{"a", "f3"}, {"b", "f3"}, {"c", "f1"}, {"d", "f2"}, {"e", "f2"}});
    }

    TEST_CASE("an index that readers would refuse for its size is not written") {
        Pairs const map = {{"a", "x.safetensors"}, {"b", "y.safetensors"}};
        auto const size = static_cast<Index>(weight_map_text(map, 8).size());
        CHECK(pairs_of(weight_map_text(map, 8, size)) == map);
        Caught const error = caught([&] { static_cast<void>(weight_map_text(map, 8, size - 1)); });
        CHECK(error.rule == SafetensorsRule::invalid_index);
        CHECK(contains(error.message,
                       errors::concat("the index of 2 tensors takes ", size, " bytes, more than the ", size - 1)));
    }

    TEST_CASE("what is wrong is named, with its place") {
        using Rule = SafetensorsRule;
        auto const check = [](Rule rule, std::string_view json, std::string_view words) {
            CAPTURE(json);
            Caught const error = caught([&] { static_cast<void>(parse_weight_map(json, "i")); });
            CHECK(error.rule == rule);
            CHECK(contains(error.message, words));
        };
        check(Rule::invalid_index, "[]", "i: it is not an object. Fix: fetch or write the index anew.");
        check(Rule::invalid_index, "{\"\xff\":1}", "i: it is not UTF-8");
        check(Rule::invalid_index, R"({"metadata":{}})", "i: it has no 'weight_map'");
        check(Rule::invalid_index, R"({"weight_map":[]})", "i: 'weight_map' is not an object");
        check(Rule::invalid_index, R"({"weight_map":{}})", "i: 'weight_map' names no tensor. Fix: fetch or write");
        check(Rule::invalid_index, R"({"weight_map":{"a":1}})", "i: 'weight_map.a' is not text");
        check(Rule::invalid_index, R"({"weight_map":{"a":"../f"}})",
              "'weight_map.a' is '../f', which is no file inside");
        check(Rule::duplicate_key, R"({"weight_map":{"a":"f","a":"f"}})", "i: 'a' is given twice");
        check(Rule::duplicate_key, R"({"weight_map":{},"weight_map":{}})", "i: 'weight_map' is given twice");
        check(Rule::duplicate_key, R"({"metadata":{"b":1,"b":1},"weight_map":{}})", "i: 'b' is given twice");
    }

    TEST_CASE("paths that leave the folder are seen") {
        for (char const* const good : {"a", "a.b", "sub/a", "./a", "..a", "a..", "sub/..a/b", "..."}) {
            CAPTURE(good);
            CHECK(stays_in_folder(good));
        }
        for (char const* const bad : {"", "/", "/a", "..", "../a", "a/..", "a/../b", "./../a", "a/", "a//.."}) {
            CAPTURE(bad);
            CHECK_FALSE(stays_in_folder(bad));
        }
        CHECK_FALSE(stays_in_folder(std::string_view("a\0b", 3)));
    }

    TEST_CASE("any change to a valid index is either read or refused by name") {
        auto const seed = 20260913U;
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::string const valid = R"({"metadata":{"total_size":12},"weight_map":{"a.b":"f-1","c":"f-2"}})";
        int const tries = reshard::test::tries(20'000);
        int refused = 0;
        for (int trial = 0; trial < tries; ++trial) {
            std::string text = valid;
            for (unsigned change = 0; change <= random() % 3; ++change) {
                std::size_t const at = random() % text.size();
                if (random() % 2 == 0) {
                    text[at] = "{}[]\",:1e./\\u"[random() % 13];
                } else {
                    std::size_t const from = random() % text.size();
                    text.insert(at, text.substr(from, random() % 20));
                }
            }
            auto const error = caught([&] {
                for (auto const& entry : pairs_of(text)) REQUIRE(stays_in_folder(entry.second));
            });
            if (error.code != ErrorCode::none) {
                CAPTURE(text);
                REQUIRE(error.rule != SafetensorsRule::none);
                ++refused;
            }
        }
        CHECK(refused > reshard::test::of_seeds(5000));
        CHECK(refused < tries);
    }
}
