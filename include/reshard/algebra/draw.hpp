// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/draw.hpp
/// \brief  Pictures as text: which ranks hold which part of a tensor.
/// \depends notation, <string>. Not part of the umbrella: programs that draw are few.
#pragma once

#include <reshard/algebra/notation.hpp>

namespace reshard::inline v0 {

namespace detail {

/// `0-3,6`: ranks with runs shortened.
template <class Ranks>
[[nodiscard]] std::string ranks_text(Ranks const& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (!text.empty()) text += ',';
        text += std::to_string(ranks[i]);
        if (last > i) text += concat(last > i + 1 ? "-" : ",", ranks[last]);
        i = last + 1;
    }
    return text.empty() ? "none" : text;
}

/// Where some rank's part begins or ends along a dimension, ascending, with the extent itself last.
template <AnyDistribution D>
[[nodiscard]] std::vector<Index> cut_positions(D const& distribution, int dim) {
    Index const extent = distribution.shape().extent(dim);
    std::vector<Index> positions{0};
    while (positions.back() < extent) {
        Index next = extent;
        for (Index i = 0; i < distribution.mesh().size(); ++i) {
            Indices const at = distribution.mesh().coordinates(distribution.mesh().rank_at(i));
            IndexSet const set = distribution.index_set(at, dim);
            for (Index k = 0; k < set.segments(); ++k) {
                for (Index edge : {set.segment(k).begin, set.segment(k).end}) {
                    if (edge > positions.back()) next = smaller(next, edge);
                }
            }
        }
        positions.push_back(next);
    }
    return positions;
}

inline void pad(std::string& text, std::string const& cell, std::size_t width) {
    text += cell;
    text.append(width - cell.size(), ' ');
}

}  // namespace detail

/// A grid of the first two dimensions (one for vectors): rows and columns are the parts, each cell names the ranks
/// that hold it. For small meshes: cost grows with ranks times parts.
template <AnyDistribution D>
[[nodiscard]] std::string draw(D const& any) {
    DynamicDistribution const& distribution = any;
    std::string text = concat(to_string(distribution), "  shape ", to_string(distribution.shape()), "\n");
    int const rank = distribution.shape().rank();
    std::vector<Index> rows{0, 1};
    std::vector<Index> columns{0, 1};
    if (rank >= 1) rows = detail::cut_positions(distribution, 0);
    if (rank >= 2) columns = detail::cut_positions(distribution, 1);

    std::vector<std::vector<std::string>> table;
    table.emplace_back(1, "");
    for (std::size_t c = 0; rank >= 2 && c + 1 < columns.size(); ++c) {
        table[0].push_back(concat(columns[c], ":", columns[c + 1]));
    }
    for (std::size_t r = 0; r + 1 < rows.size(); ++r) {
        std::vector<std::string> line(1, rank >= 1 ? concat(rows[r], ":", rows[r + 1]) : std::string("scalar"));
        for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
            Box box(distribution.shape());
            if (rank >= 1) box.set(0, {rows[r], rows[r] + 1});
            if (rank >= 2) box.set(1, {columns[c], columns[c] + 1});
            for (int dim = 2; dim < rank; ++dim) box.set(dim, {0, smaller<Index>(1, distribution.shape().extent(dim))});
            line.push_back(detail::ranks_text(distribution.holders(box)));
        }
        table.push_back(line);
    }
    if (rank < 2) table.erase(table.begin());

    std::vector<std::size_t> widths;
    for (auto const& line : table) {
        for (std::size_t c = 0; c < line.size(); ++c) {
            if (c == widths.size()) widths.push_back(0);
            widths[c] = larger(widths[c], line[c].size());
        }
    }
    for (auto const& line : table) {
        for (std::size_t c = 0; c < line.size(); ++c) {
            text += c == 0 ? "  " : " | ";
            detail::pad(text, line[c], widths[c]);
        }
        while (text.back() == ' ') text.pop_back();
        text += '\n';
    }
    return text;
}

}  // namespace reshard::inline v0
