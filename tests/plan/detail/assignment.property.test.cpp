// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/detail/assignment.hpp: against every assignment there is.
#include <reshard/plan/detail/assignment.hpp>

#include <doctest/doctest.h>

#include "support/random.hpp"

#include <algorithm>  // next_permutation
#include <numeric>    // iota
#include <vector>

namespace {
using namespace reshard;

Index gain_of(detail::GainTable const& table, std::vector<Index> const& columns) {
    Index sum = 0;
    for (Index row = 0; row < table.rows; ++row) sum += table.at(row, columns[static_cast<std::size_t>(row)]);
    return sum;
}

/// The largest sum over all ways to give each row a column of its own.
Index best_of_all(detail::GainTable const& table) {
    std::vector<Index> columns(static_cast<std::size_t>(table.columns));
    std::iota(columns.begin(), columns.end(), 0);
    Index best = 0;
    do {
        best = std::max(best, gain_of(table, columns));
    } while (std::next_permutation(columns.begin(), columns.end()));
    return best;
}

}  // namespace

TEST_SUITE("plan/detail/assignment") {
    TEST_CASE("no assignment gains more") {
        for (std::uint64_t seed : test::seeds(1000)) {
            CAPTURE(seed);
            test::Random random(seed);
            Index const columns = random.between(1, 7);
            detail::GainTable table(random.between(1, columns), columns);
            Index const most = random.pick(std::vector<Index>{1, 3, 1000, Index{1} << 50});
            for (Index& gain : table.gains) gain = random.chance(30) ? 0 : random.between(0, most);
            std::vector<Index> const found = detail::best_assignment(table);
            std::vector<char> taken(static_cast<std::size_t>(columns), 0);
            REQUIRE(static_cast<Index>(found.size()) == table.rows);
            for (Index column : found) {
                REQUIRE(column >= 0);
                REQUIRE(column < columns);
                REQUIRE(taken[static_cast<std::size_t>(column)]++ == 0);
            }
            REQUIRE(gain_of(table, found) == best_of_all(table));
        }
    }

    TEST_CASE("a hidden permutation of 500 is found") {
        test::Random random(7);
        detail::GainTable table(500, 500);
        std::vector<Index> hidden(500);
        std::iota(hidden.begin(), hidden.end(), 0);
        std::shuffle(hidden.begin(), hidden.end(), random.engine());
        for (Index& gain : table.gains) gain = random.between(0, 90);
        for (Index row = 0; row < 500; ++row) table.at(row, hidden[static_cast<std::size_t>(row)]) = 100;
        bool const found = detail::best_assignment(table) == hidden;
        CHECK(found);
    }

    TEST_CASE("gains whose sums do not fit are refused") {
        detail::GainTable table(2, 2);
        table.at(0, 0) = INT64_MAX / 2;
        CHECK_THROWS_AS(static_cast<void>(detail::best_assignment(table)), ShapeError);
    }
}
