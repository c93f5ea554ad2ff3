// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/detail/json.hpp>

#include <doctest/doctest.h>

#include <random>

#include "../support.hpp"

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

/// The events of the plain reader, or nothing where it gives up.
std::string plain_events(std::string_view json) {
    Recorder recorder;
    return reshard::detail::PlainJson<Recorder>::read(json, recorder) ? recorder.log : "";
}

/// The events of the general parser, or nothing for what is not JSON.
std::string general_events(std::string_view json) {
    Recorder recorder;
    try {
        reshard::detail::JsonEvents<Recorder> all(recorder);
        if (!nlohmann::json::sax_parse(json.begin(), json.end(), &all)) return "";
    } catch (Error const&) {
        return "";
    }
    return recorder.log;
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

    TEST_CASE("what writers of checkpoints write is read without the general parser") {
        CHECK(plain_events(R"({"a b":{"dtype":"BF16","shape":[2,0],"data_offsets":[0,999999999999999999]}} )") ==
              "{a b:{dtype:'BF16' shape:[2 0 )data_offsets:[0 999999999999999999 )))");
        CHECK(plain_events(" [ ] ") == "[)");
        CHECK(plain_events("\t{\n}\r") == "{)");
        CHECK(plain_events("7") == "7 ");
        CHECK(plain_events("\"\"") == "'' ");
        for (std::string_view const other :
             {"", " ", "[1.5]", "[1e3]", "[-1]", "[true]", "[null]", "[1000000000000000000]", R"(["\n"])",
              "[\"\xc3\xa4\"]", "[[[[[[[[[1]]]]]]]]]"}) {
            CAPTURE(other);
            CHECK(plain_events(other).empty());
            if (other.size() > 1) CHECK(events(other) == general_events(other));
        }
    }

    TEST_CASE("whatever the plain reader reads to its end, the general parser reads alike") {
        unsigned const seed = std::random_device{}();
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::string const text =
            R"({"a":{"dtype":"F32","shape":[2,30],"data_offsets":[0,240]},"b":[], "c":{} , "d":10})";
        std::string_view const letters = "{}[]\":,0123.e- \n\\at\x1f\xc3";
        int read = 0;
        for (int round = 0; round < 20000; ++round) {
            std::string json = text;
            for (auto changes = random() % 3; changes > 0; --changes) {
                std::size_t const at = random() % json.size();
                char const letter = letters[random() % letters.size()];
                switch (random() % 3) {
                    case 0: json[at] = letter; break;
                    case 1: json.insert(at, 1, letter); break;
                    default: json.erase(at, 1 + random() % 4);
                }
            }
            std::string const plain = plain_events(json);
            if (plain.empty()) continue;
            ++read;
            CAPTURE(json);
            REQUIRE(plain == general_events(json));
        }
        CHECK(read > 5000);
    }

    TEST_CASE("an error a handler throws passes through") {
        struct Thrower : Recorder {
            void close() { raise(ErrorCode::user, "enough"); }
        } thrower;
        CHECK(caught([&] { reshard::detail::read_json("[]", thrower); }).code == ErrorCode::user);
    }
}
