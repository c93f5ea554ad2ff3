// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/cuda/work.hpp. What runs on a Work is tested by its users: merge_runs, mch.
#include <reshard/cuda/work.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;

TEST_CASE("device work: a sort looks at the bits that vary and no others") {
    auto const bits = [](std::vector<Index> const& ids) {
        std::uint64_t all_or = 0;
        std::uint64_t all_and = ~std::uint64_t{0};
        for (Index id : ids) {
            all_or |= static_cast<std::uint64_t>(id);
            all_and &= static_cast<std::uint64_t>(id);
        }
        auto const found = detail::sort_bits(all_or, all_and);
        return std::vector<int>{found.begin, found.end};
    };
    CHECK(bits({}) == std::vector<int>{0, 0});
    CHECK(bits({5}) == std::vector<int>{0, 0});
    CHECK(bits({-5, -5}) == std::vector<int>{0, 0});
    CHECK(bits({0, 1}) == std::vector<int>{0, 1});
    CHECK(bits({0, 255}) == std::vector<int>{0, 8});
    CHECK(bits({0, 256}) == std::vector<int>{8, 9});
    CHECK(bits({-1, 0}) == std::vector<int>{0, 64});
    CHECK(bits({-1, -2}) == std::vector<int>{0, 1});
    CHECK(bits({INT64_MIN, INT64_MAX}) == std::vector<int>{0, 64});
    CHECK(bits({INT64_MIN, 0}) == std::vector<int>{63, 64});
}
