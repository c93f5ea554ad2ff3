// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/names.hpp.
#include <reshard/mch/names.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using List = std::vector<std::string>;

std::string error_of(List const& current, List const& saved, MchNames const& names) {
    try {
        static_cast<void>(match_tables(current, saved, names));
    } catch (MismatchError const& error) {
        return error.message();
    }
    return "";
}
bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("mch/names") {
    TEST_CASE("names are taken as they are when nothing is said") {
        CHECK(match_tables(List{"b", "a"}, List{"a", "b", "c"}) == List{"b", "a"});
        CHECK(match_tables(List{}, List{"a"}).empty());
        CHECK(contains(error_of({"a", "module.b"}, {"a", "b"}, {}),
                       "table 'module.b' has no source: nothing saved is called 'module.b'; there are: 'a', 'b'"));
        CHECK(contains(error_of({"a"}, {}, {}), "there are: none. Fix: "));
    }

    TEST_CASE("prefixes of wrappers go, on both sides, however many there are") {
        MchNames names;
        names.prefixes = {"module.", "_dmp_wrapped_module."};
        CHECK(match_tables(List{"user"}, List{"module._dmp_wrapped_module.module.user"}, names) ==
              List{"module._dmp_wrapped_module.module.user"});
        CHECK(match_tables(List{"module.user", "user"}, List{"user"}, names) == List{"user", "user"});
        CHECK(contains(error_of({"item"}, {"module.user"}, names), "'item' has no source"));
        names.prefixes = {""};  // strips nothing, for ever
        CHECK(match_tables(List{"user"}, List{"user"}, names) == List{"user"});
    }

    TEST_CASE("saved names that become one are an error, not a choice") {
        MchNames names;
        names.prefixes = {"module."};
        std::string const error = error_of({"user"}, {"module.user", "item", "user"}, names);
        CHECK(
            contains(error, "the saved tables 'module.user' and 'user' are both called 'user' without their prefixes"));
        names.prefixes = {};
        CHECK(match_tables(List{"user"}, List{"module.user", "item", "user"}, names) == List{"user"});
    }

    TEST_CASE("a table may be filled from another, also one that fills itself") {
        MchNames names;
        names.rename = {{"user", "user_exported"}};
        CHECK(match_tables(List{"user", "user_exported"}, List{"user"}, names) == List{"user", "user"});
        names.prefixes = {"module."};
        CHECK(match_tables(List{"module.user_exported"}, List{"module.user"}, names) == List{"module.user"});
        names.rename = {{"b", "a"}, {"a", "b"}};
        CHECK(match_tables(List{"a", "b"}, List{"a", "b"}, names) == List{"b", "a"});
    }

    TEST_CASE("renames that lead nowhere are errors") {
        MchNames names;
        names.rename = {{"usr", "user_exported"}};
        CHECK(contains(error_of({"user_exported"}, {"user"}, names),
                       "table 'user_exported' has no source: nothing saved is called 'usr'; there are: 'user'"));
        names.rename = {{"user", "user_exportd"}};
        CHECK(contains(error_of({"user_exported"}, {"user"}, names),
                       "'user_exportd' is to be filled from 'user', but the tables are 'user_exported'"));
        names.rename = {{"b", "a"}, {"c", "a"}};
        CHECK(contains(error_of({"a"}, {"b", "c"}, names), "table 'a' is to be filled from 'b' and from 'c'"));
        names.rename = {{"b", "module.a"}, {"c", "a"}};
        names.prefixes = {"module."};
        CHECK(contains(error_of({"a"}, {"b", "c"}, names), "is to be filled from 'b' and from 'c'"));
    }
}
