// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/json.hpp>

#include <doctest/doctest.h>

#include "../support.hpp"

#include <string>

using namespace checkpoint_test;
using reshard::detail::JsonKind;
using reshard::detail::JsonScalar;

namespace {

/// Writes the events down.
struct Recorder {
    std::string log;

    void value(JsonScalar const& scalar) {
        switch (scalar.kind) {
            case JsonKind::null: log += "null "; break;
            case JsonKind::boolean: log += "bool "; break;
            case JsonKind::unsigned_integer: log += std::to_string(scalar.integer) + " "; break;
            case JsonKind::other_number: log += "number "; break;
            case JsonKind::text: log += "'" + *scalar.text + "' "; break;
        }
    }
    void key(std::string& text) { log += text + ":"; }
    void open(bool is_object) { log += is_object ? "{" : "["; }
    void close() { log += ")"; }
    [[noreturn]] void fail(std::string const& why) { raise(ErrorCode::format, why); }
};

std::string events(std::string_view json) {
    Recorder recorder;
    reshard::detail::read_json(json, recorder);
    return recorder.log;
}

bool refuses(std::string_view json) {
    return caught([&] { (void)events(json); }).code == ErrorCode::format;
}

}  // namespace

TEST_SUITE("checkpoint/detail/json") {
    TEST_CASE("values arrive in order and integers are exact") {
        CHECK(events(R"( {"a":[1,null,true],"b":{"c":"d"}} )") == "{a:[1 null bool )b:{c:'d' ))");
        CHECK(events("[18446744073709551615,9007199254740993]") == "[18446744073709551615 9007199254740993 )");
        CHECK(events("[-1,-0,1.0,1e3,18446744073709551616,0.5]") == "[number number number number number number )");
    }

    TEST_CASE("what is not exactly one JSON text is refused") {
        for (std::string_view const json :
             {std::string_view(""), std::string_view(" "), std::string_view("{"), std::string_view("{}}"),
              std::string_view("{} x"), std::string_view("{,}"), std::string_view("[1,]"), std::string_view("{'a':1}"),
              std::string_view("[01]"), std::string_view("[1e999]"), std::string_view("nul"), std::string_view("[NaN]"),
              std::string_view("{}\0", 3), std::string_view("{}\0{}", 5), std::string_view("\xef\xbb\xbf{}"),
              std::string_view("[\"\\ud800\"]"), std::string_view("[\"\n\"]"), std::string_view("// c\n{}")}) {
            CAPTURE(std::string(json));
            CHECK(refuses(json));
        }
    }

    TEST_CASE("nesting stops at the limit, so a bomb costs neither stack nor time") {
        std::string const deepest(128, '[');
        CHECK_FALSE(refuses(deepest + std::string(128, ']')));
        CHECK(refuses("[" + deepest + std::string(129, ']')));
        CHECK(refuses(std::string(10'000'000, '[')));
    }

    TEST_CASE("an error a handler throws passes through") {
        struct Thrower : Recorder {
            void close() { raise(ErrorCode::user, "enough"); }
        } thrower;
        CHECK(caught([&] { reshard::detail::read_json("[]", thrower); }).code == ErrorCode::user);
    }
}
