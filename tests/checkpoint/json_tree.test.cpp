// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/json_tree.hpp>

#include <doctest/doctest.h>

#include "../support/random.hpp"
#include "support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;
using reshard::detail::JsonReader;
using reshard::detail::JsonTree;

namespace {

void refuse(std::string_view file, std::string_view what) {
    errors::raise(ErrorCode::format, errors::concat("the room: ", file, ": ", what));
}

/// The message of what `read(reader of the text)` throws.
template <class Read>
std::string complaint(std::string_view json, Read&& read, std::string_view where = {}) {
    Caught const error = caught([&] {
        JsonTree const tree(json, "the file", refuse, where);
        read(JsonReader(tree));
    });
    CHECK((error.code == ErrorCode::none || contains(error.message, "the room: the file: ")));
    return error.message;
}

/// All that a tree has, in order.
std::string content(JsonTree const& tree, std::uint32_t node = 0) {
    std::string log;
    auto const items = [&](char open, bool with_keys) {
        log = open;
        tree.for_each(node, [&](std::uint32_t item) {
            if (with_keys) log += errors::concat(tree.key(item), ":");
            log += content(tree, item) + " ";
        });
        return log + ")";
    };
    switch (tree.kind(node)) {
        case JsonTree::Kind::other: return "other";
        case JsonTree::Kind::null: return "null";
        case JsonTree::Kind::integer: return std::to_string(tree.integer(node));
        case JsonTree::Kind::text: return errors::concat("'", tree.text(node), "'");
        case JsonTree::Kind::list: return items('[', false);
        case JsonTree::Kind::object: return items('{', true);
    }
    return {};
}
std::string content_of(std::string_view json) { return content(JsonTree(json, "f", refuse)); }

bool refuses(std::string_view json) {
    return caught([&] { static_cast<void>(JsonTree(json, "f", refuse)); }).code == ErrorCode::format;
}

}  // namespace

TEST_SUITE("checkpoint/json_tree") {
    TEST_CASE("values arrive in order and integers are exact") {
        CHECK(content_of(R"( {"a":[1,null,true],"b":{"c":"d"}} )") == "{a:[1 null other ) b:{c:'d' ) )");
        CHECK(content_of("[18446744073709551615,9007199254740993]") == "[18446744073709551615 9007199254740993 )");
        CHECK(content_of("[-1,-0,1.0,1e3,18446744073709551616,0.5]") == "[other other other other other other )");
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

    TEST_CASE("keys given twice may be refused in another way than all else") {
        auto const code = [](std::string_view json) {
            auto const twice = [](std::string_view, std::string_view) { errors::raise(ErrorCode::user, "twice"); };
            return caught([&] { static_cast<void>(JsonTree(json, "f", refuse, {}, twice)); }).code;
        };
        for (char const* const json :
             {R"({"a":1,"a":4})", R"({"b":{"c":2,"c":3},"d":1})", R"([{"c":2,"d":[],"c":3}])"}) {
            CHECK(code(json) == ErrorCode::user);
            CHECK(refuses(json));
        }
        CHECK(code(R"({"a":1,"a":)") == ErrorCode::format);
        CHECK(code(R"({"a":{"b":1},"b":{"a":1}})") == ErrorCode::none);
    }

    TEST_CASE("values are found by name and in order, whatever lies between them") {
        JsonTree const tree(R"({"a":{"x":[[1,2],{"y":[]}],"z":"\u00e4"},"":18446744073709551615,"b":[0,[],3]})", "f",
                            refuse);
        JsonReader const json(tree);
        CHECK(json.at("a").at("z").text() == "\xc3\xa4");
        CHECK(json.at("").unsigned_integer() == UINT64_MAX);
        CHECK(json.has("b"));
        CHECK_FALSE(json.has("x"));
        CHECK_FALSE(json.at("b").has("x"));
        int items = 0;
        json.at("a").at("x").for_each([&](JsonReader const& item) {
            if (items++ == 0) CHECK(item.integers() == std::vector<Index>{1, 2});
        });
        CHECK(items == 2);
        std::string keys;
        json.for_each_member([&](std::string const& key, JsonReader const&) { keys += key + ";"; });
        CHECK(keys == "a;;b;");
    }

    TEST_CASE("what is taken goes from the tree as soon as it is whole, and complaints name it as ever") {
        std::string const long_name(50, 'n');
        std::string json = R"({"a":{"x":1},"list":[)";
        for (int i = 0; i < 100; ++i) json += errors::concat(R"({"name":")", long_name, i, R"(","n":[)", i, "]},");
        json += R"({"n":[-1]}],"b":[{"n":2}],"c":4})";
        Index sum = 0;
        std::size_t most = 0;
        std::string first;
        std::string whole;  // what is not whole yet reaches to the end so far
        auto const take = [&](JsonTree const& all, std::uint32_t node, std::span<std::uint32_t const> parents) {
            if (all.key(node) == "n" && whole.empty()) whole = content(all);
            if (parents.size() != 2 || all.key(parents[1]) != "list") return false;
            JsonReader const item(all, node);
            most = std::max<std::size_t>(most, all.next(node));
            if (first.empty()) first = all.path(node + 1);
            item.at("n").for_each([&](JsonReader const& n) { sum += n.integer(); });
            return true;
        };
        Caught const error = caught([&] { static_cast<void>(JsonTree(json, "f", refuse, {}, nullptr, take)); });
        CHECK(contains(error.message, "list[100].n[0]"));
        CHECK(first == "list[" + long_name + "0].name");
        CHECK(whole == errors::concat("{a:{x:1 ) list:[{name:'", long_name, "0' n:[0 ) ) ) )"));
        CHECK(sum == 99 * 50);
        CHECK(most < 12);
        json.replace(json.find("-1"), 2, "1");
        JsonTree const rest(json, "f", refuse, {}, nullptr, take);
        CHECK(content(rest) == "{a:{x:1 ) list:[) b:[{n:2 ) ) c:4 )");
    }

    TEST_CASE("complaints name the file and the way to the value") {
        std::string_view const json = R"({"list":[{"name":"first","n":-1},{"n":1.5},[7]],"big":9223372036854775808})";
        auto const item = [](int wanted, auto const& f) {
            return [wanted, f](JsonReader const& reader) {
                int at = 0;
                reader.at("list").for_each([&](JsonReader const& one) {
                    if (at++ == wanted) f(one);
                });
            };
        };
        auto const n = [](JsonReader const& one) { (void)one.at("n").integer(); };
        CHECK(contains(complaint(json, item(0, n)), "'list[first].n' is not an integer of 0 or more"));
        CHECK(contains(complaint(json, item(1, n)), "'list[1].n' is not an integer of 0 or more"));
        CHECK(contains(complaint(json, item(2, n)), "'list[2]' is not an object"));
        CHECK(contains(complaint(json, [](auto const& r) { (void)r.at("big").integer(); }), "above 2^63 - 1"));
        CHECK(contains(complaint(json, [](auto const& r) { (void)r.at("none"); }), "it has no 'none'"));
        CHECK(contains(complaint(
                           json, [](auto const& r) { (void)r.at("none"); }, "table.a"),
                       "'table.a' has no"));
        CHECK(contains(complaint(
                           json, [](auto const& r) { (void)r.at("list").text(); }, "top"),
                       "'top.list' is not text"));
        CHECK(
            contains(complaint("[0,1,2]", [](auto const& r) { r.for_each([](auto const& one) { (void)one.text(); }); }),
                     "'[0]' is not text"));
    }

    TEST_CASE("keys given twice are refused at any depth, also among many") {
        auto const nothing = [](JsonReader const&) {};
        CHECK(contains(complaint(R"({"a":1,"b":{"c":1,"c":1}})", nothing), "'c' is given twice"));
        CHECK(complaint(R"({"a":1,"b":{"a":1,"c":{"a":[]}}})", nothing).empty());
        std::string many = "{";
        for (int i = 0; i < test::tries(200'000); ++i) many += errors::concat("\"k", i, "\":0,");
        CHECK(complaint(many + "\"last\":0}", nothing).empty());
        CHECK(contains(complaint(many + "\"k77\":0}", nothing), "'k77' is given twice"));
    }

    TEST_CASE("texts that are not JSON, or not text, are refused") {
        auto const nothing = [](JsonReader const&) {};
        CHECK(contains(complaint("{", nothing), "not JSON at byte"));
        CHECK(contains(complaint("{", nothing, "inner"), "'inner': not JSON at byte"));
        CHECK(contains(complaint("\"\xff\"", nothing), "not UTF-8"));
        CHECK(contains(complaint("\xef\xbb\xbf{}", nothing), "byte order mark"));
        CHECK(complaint(" 7 ", nothing).empty());
    }
}
