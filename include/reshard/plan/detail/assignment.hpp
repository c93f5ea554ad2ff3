// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/assignment.hpp
/// \brief  The linear assignment problem, exactly: a column for every row, so that the sum of gains is the largest.
/// \depends core; <vector>.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Gains of rows and columns, row-major.
struct GainTable {
    Index rows = 0;
    Index columns = 0;
    std::vector<Index> gains;

    GainTable(Index r, Index c) : rows(r), columns(c), gains(as_size(r * c), 0) {}
    [[nodiscard]] Index& at(Index row, Index column) noexcept { return gains[as_size(row * columns + column)]; }
    [[nodiscard]] Index at(Index row, Index column) const noexcept { return gains[as_size(row * columns + column)]; }
};

/// The column of every row. \pre rows <= columns, gains >= 0. Throws ShapeError when sums do not fit 64 bits.
///
/// Shortest augmenting paths over reduced costs (Hungarian method; Jonker and Volgenant, Computing 38, 1987): rows are
/// added one at a time, each along the cheapest path that frees a column for it. O(rows^2 columns).
[[nodiscard]] inline std::vector<Index> best_assignment(GainTable const& table) {
    Index most = 0;
    for (Index gain : table.gains) most = larger(most, gain);
    Index limit = 0;
    if (!multiply_fits(most, 2 * (table.columns + 1), limit)) {
        raise(ErrorCode::shape,
              "reshard::relabel: the bytes of all ranks are more than 64 bits count. "
              "Fix: relabel by a smaller tensor of the same placements.");
    }
    auto const at = [](Index i) { return as_size(i); };
    // Rows and columns count from 1 here: column 0 stands for "the row that is being added".
    std::vector<Index> row_price(at(table.rows + 1), 0);
    std::vector<Index> column_price(at(table.columns + 1), 0);
    std::vector<Index> row_of(at(table.columns + 1), 0);
    std::vector<Index> previous(at(table.columns + 1), 0);
    std::vector<Index> distance(at(table.columns + 1), 0);
    std::vector<char> reached(at(table.columns + 1), 0);
    for (Index row = 1; row <= table.rows; ++row) {
        row_of[0] = row;
        Index column = 0;
        distance.assign(distance.size(), INT64_MAX);
        reached.assign(reached.size(), 0);
        do {
            reached[at(column)] = 1;
            Index const from = row_of[at(column)];
            Index nearest = INT64_MAX;
            Index next = 0;
            Index const* const gains = &table.gains[at((from - 1) * table.columns)];
            for (Index j = 1; j <= table.columns; ++j) {
                if (reached[at(j)] != 0) continue;
                Index const step = -gains[j - 1] - row_price[at(from)] - column_price[at(j)];
                if (step < distance[at(j)]) {
                    distance[at(j)] = step;
                    previous[at(j)] = column;
                }
                if (distance[at(j)] < nearest) {
                    nearest = distance[at(j)];
                    next = j;
                }
            }
            for (Index j = 0; j <= table.columns; ++j) {
                if (reached[at(j)] != 0) {
                    row_price[at(row_of[at(j)])] += nearest;
                    column_price[at(j)] -= nearest;
                } else if (j != 0) {
                    distance[at(j)] -= nearest;
                }
            }
            column = next;
        } while (row_of[at(column)] != 0);
        while (column != 0) {
            row_of[at(column)] = row_of[at(previous[at(column)])];
            column = previous[at(column)];
        }
    }
    std::vector<Index> result(at(table.rows), -1);
    for (Index j = 1; j <= table.columns; ++j) {
        if (row_of[at(j)] != 0) result[at(row_of[at(j)] - 1)] = j - 1;
    }
    return result;
}

}  // namespace reshard::inline v0_1::detail
