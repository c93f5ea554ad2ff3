// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/index_list.hpp>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using namespace reshard;

namespace {

static_assert(std::is_trivially_copyable_v<IndexList>, "a list is a plain value whatever its length");
static_assert(IndexList{}.empty() && IndexList{}.size() == 0);
static_assert(IndexList{0, 3, 9}.size() == 3 && IndexList{0, 3, 9}[1] == 3 && IndexList{0, 3, 9}.back() == 9);
static_assert(IndexList{0, 3, 9} == IndexList{0, 3, 9});
static_assert(!(IndexList{0, 3, 9} == IndexList{0, 3, 8}));
static_assert(!(IndexList{0, 3} == IndexList{0, 3, 0}));

std::vector<Index> counting(Index count, Index first = 0) {
    std::vector<Index> values;
    for (Index i = 0; i < count; ++i) values.push_back(first + i);
    return values;
}
IndexList list_of(std::vector<Index> const& values) {
    return IndexList(values.data(), static_cast<Index>(values.size()));
}

}  // namespace

TEST_CASE("lists of every length keep their values, compare by them, and outlive their source") {
    for (Index count : {0, 1, 8, 9, 10, 11, 100, 5000}) {
        CAPTURE(count);
        IndexList list;
        {
            std::vector<Index> source = counting(count, 5);
            list = list_of(source);
            for (Index& value : source) value = -1;
        }
        REQUIRE(list.size() == count);
        for (Index i = 0; i < count; ++i) CHECK(list[i] == 5 + i);
        CHECK(list.end() - list.begin() == count);
        CHECK(list == list_of(counting(count, 5)));
        if (count > 0) CHECK_FALSE(list == list_of(counting(count, 6)));
        CHECK_FALSE(list == list_of(counting(count + 1, 5)));
    }
}

TEST_CASE("lists are made of a vector's numbers, of any integer type") {
    for (Index count : {0, 1, 9, 10, 1000}) {
        CAPTURE(count);
        std::vector<Index> const values = counting(count, 3);
        CHECK(IndexList(values) == list_of(values));
        CHECK(IndexList(std::vector<int>(values.begin(), values.end())) == list_of(values));
        CHECK(IndexList(std::vector<std::size_t>(values.begin(), values.end())) == list_of(values));
    }
    static_assert(IndexList(std::array{0, 3, 9}) == IndexList{0, 3, 9});
    static_assert(!std::is_convertible_v<std::vector<double>, IndexList>);
    static_assert(!std::is_convertible_v<std::string, IndexList>);
}

TEST_CASE("a copy of a short list does not point into the original") {
    std::vector<IndexList> copies;
    {
        IndexList const original{1, 2, 3};
        copies.push_back(original);
    }
    copies.reserve(100);  // moves the elements
    CHECK(copies[0] == IndexList{1, 2, 3});
    CHECK(copies[0].data() >= reinterpret_cast<Index const*>(&copies[0]));
    CHECK(copies[0].data() < reinterpret_cast<Index const*>(&copies[0] + 1));
}

TEST_CASE("long lists are stored once, also when threads make the same ones at the same time") {
    constexpr int threads = 4;
    constexpr Index lists = 50;
    std::vector<std::vector<Index const*>> seen(threads);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
            for (Index i = 0; i < lists; ++i)
                seen[static_cast<std::size_t>(t)].push_back(list_of(counting(20, i)).data());
        });
    }
    for (auto& thread : running) thread.join();
    for (int t = 1; t < threads; ++t) CHECK(seen[static_cast<std::size_t>(t)] == seen[0]);
    CHECK(seen[0][0] != seen[0][1]);
}

TEST_CASE("equal lists of two shared objects are equal, though each has interned its own") {
    struct Raw {  // as IndexList: a plugin with hidden visibility has another copy of the values
        Index const* interned;
        Index count;
        Index values[IndexList::inline_capacity];
    };
    std::vector<Index> const theirs = counting(20);
    std::vector<Index> const other = counting(20, 1);
    CHECK(std::bit_cast<IndexList>(Raw{theirs.data(), 20, {}}) == list_of(counting(20)));
    CHECK_FALSE(std::bit_cast<IndexList>(Raw{other.data(), 20, {}}) == list_of(counting(20)));
}
