// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/draw.hpp
/// \brief  Pictures as text: which ranks hold which part of a tensor.
/// \depends notation, <string>. Not part of the umbrella: programs that draw are few.
#pragma once

#include <reshard/algebra/notation.hpp>

#include <algorithm>  // sort, unique

namespace reshard::inline v0_1 {

namespace detail {

/// Parts, or ranks, of a picture. Throws ShapeError for more than anybody can look at.
inline void check_drawable(Index count) {
    constexpr Index most = 1 << 14;
    if (count <= most) return;
    raise(ErrorCode::shape, "reshard::draw: more than ", most,
          " ranks, or ends of parts. Fix: draw a smaller mesh, or a smaller tensor cut alike.");
}

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
[[nodiscard]] inline std::vector<Index> cut_positions(DynamicDistribution const& distribution, int dim) {
    DynamicMesh const& mesh = distribution.mesh();
    std::vector<Index> positions{0, distribution.shape().extent(dim)};
    for (Index i = 0; i < mesh.size(); ++i) {
        IndexSet const set = distribution.index_set(mesh.coordinates(mesh.rank_at(i)), dim);
        check_drawable(set.segments());
        for (Index k = 0; k < set.segments(); ++k) {
            for (Index const position : {set.segment(k).begin, set.segment(k).end}) {
                auto const at = std::lower_bound(positions.begin(), positions.end(), position);
                if (at == positions.end() || *at != position) positions.insert(at, position);
            }
        }
        check_drawable(as_index(positions.size()));
    }
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());  // an extent of 0
    return positions;
}

/// "dimension 2 is cut by axis 0, and is not drawn", for each that a picture leaves out.
[[nodiscard]] inline std::vector<std::string> left_out(DynamicDistribution const& distribution) {
    std::vector<std::string> lines;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        PlacementForm const& placement = distribution.signature()[axis];
        if (!placement.is_shard() || placement.dim() < 2 || distribution.mesh().extent(axis) == 1) continue;
        lines.push_back(concat("dimension ", placement.dim(), " is cut by axis ", axis, ", and is not drawn"));
    }
    return lines;
}

}  // namespace detail

/// The parts of a tensor along its first two dimensions, and who holds each, or some of it along the others.
struct DrawnParts {
    std::vector<Index> rows{0, 1};  ///< where parts begin and end; {0, 1} for a dimension that is not there
    std::vector<Index> columns{0, 1};
    std::vector<std::vector<Index>> holders;  ///< of each part, row-major: ranks, in the order of the mesh
};

/// Throws ShapeError for what is too large to draw.
[[nodiscard]] inline DrawnParts drawn_parts(DynamicDistribution const& distribution) {
    int const rank = distribution.shape().rank();
    DrawnParts parts;
    detail::check_drawable(distribution.mesh().size());
    if (rank >= 1) parts.rows = detail::cut_positions(distribution, 0);
    if (rank >= 2) parts.columns = detail::cut_positions(distribution, 1);
    detail::check_drawable(detail::as_index(parts.rows.size() * parts.columns.size()));
    for (std::size_t r = 0; r + 1 < parts.rows.size(); ++r) {
        for (std::size_t c = 0; c + 1 < parts.columns.size(); ++c) {
            Index const first[] = {parts.rows[r], parts.columns[c]};
            auto& holders = parts.holders.emplace_back();
            for (Index i = 0; i < distribution.mesh().size(); ++i) {
                Index const holder = distribution.mesh().rank_at(i);
                Indices const at = distribution.mesh().coordinates(holder);
                bool holds = true;
                for (int dim = 0; dim < rank && holds; ++dim) {
                    IndexSet const set = distribution.index_set(at, dim);
                    holds =
                        dim < 2 ? set.contains(first[dim]) : set.size() > 0 || distribution.shape().extent(dim) == 0;
                }
                if (holds) holders.push_back(holder);
            }
        }
    }
    return parts;
}

/// A grid of the first two dimensions (one for vectors): rows and columns are the parts, each cell names the ranks
/// that hold it, or some of it along the others; where these are cut, a line below says so. Cost grows with ranks times
/// parts. Throws ShapeError for what is too large to draw.
[[nodiscard]] inline std::string draw(DynamicDistribution const& distribution) {
    DrawnParts const parts = drawn_parts(distribution);
    int const rank = distribution.shape().rank();
    std::vector<std::vector<std::string>> table(1, {""});
    for (std::size_t c = 0; c + 1 < parts.columns.size(); ++c) {
        table[0].push_back(errors::concat(parts.columns[c], ":", parts.columns[c + 1]));
    }
    auto holders = parts.holders.begin();
    for (std::size_t r = 0; r + 1 < parts.rows.size(); ++r) {
        table.emplace_back(1,
                           rank >= 1 ? errors::concat(parts.rows[r], ":", parts.rows[r + 1]) : std::string("scalar"));
        for (std::size_t c = 0; c + 1 < parts.columns.size(); ++c)
            table.back().push_back(detail::ranks_text(*holders++));
    }
    if (rank < 2) table.erase(table.begin());

    std::string text = errors::concat(to_string(distribution), "  shape ", to_string(distribution.shape()), "\n");
    std::vector<std::size_t> widths;
    for (auto const& line : table) {
        for (std::size_t c = 0; c < line.size(); ++c) {
            if (c == widths.size()) widths.push_back(0);
            widths[c] = detail::larger(widths[c], line[c].size());
        }
    }
    for (auto const& line : table) {
        for (std::size_t c = 0; c < line.size(); ++c) {
            text += c == 0 ? "  " : " | ";
            text += line[c];
            text.append(widths[c] - line[c].size(), ' ');
        }
        while (text.back() == ' ') text.pop_back();
        text += '\n';
    }
    for (std::string const& line : detail::left_out(distribution)) text += errors::concat("  ", line, "\n");
    return text;
}

/// The same picture as an SVG file: a cell for each part, coloured by the first rank that holds it.
[[nodiscard]] inline std::string draw_svg(DynamicDistribution const& distribution) {
    DrawnParts const parts = drawn_parts(distribution);
    constexpr Index height = 28;
    constexpr Index left = 110;  // of the grid: begin and end of each row stand there
    constexpr Index top = 56;
    std::size_t longest = 4;
    for (auto const& holders : parts.holders) longest = detail::larger(longest, detail::ranks_text(holders).size());
    Index const width = 16 + 8 * detail::as_index(longest);
    auto const rows = detail::as_index(parts.rows.size()) - 1;
    auto const columns = detail::as_index(parts.columns.size()) - 1;
    std::vector<std::string> const left_out = detail::left_out(distribution);
    Index const grid = top + rows * height;
    Index const bottom = grid + 20 * detail::as_index(left_out.size());
    std::string svg = errors::concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
                                     left + detail::larger<Index>(columns * width, 320), "\" height=\"", bottom + 8,
                                     "\" font-family=\"monospace\" font-size=\"13\">\n");
    auto const text_at = [&](Index x, Index y, std::string_view anchor, std::string const& text) {
        svg += errors::concat("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">");
        for (char c : text)
            svg += c == '<' ? std::string("&lt;") : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
        svg += "</text>\n";
    };
    text_at(8, 20, "start", errors::concat(to_string(distribution), "  shape ", to_string(distribution.shape())));
    for (Index c = 0; c < columns && distribution.shape().rank() >= 2; ++c) {
        auto const at = detail::as_size(c);
        text_at(left + c * width + width / 2, top - 8, "middle",
                errors::concat(parts.columns[at], ":", parts.columns[at + 1]));
    }
    auto holders = parts.holders.begin();
    for (Index r = 0; r < rows; ++r) {
        auto const at = detail::as_size(r);
        Index const y = top + r * height;
        if (distribution.shape().rank() >= 1) {
            text_at(left - 8, y + 19, "end", errors::concat(parts.rows[at], ":", parts.rows[at + 1]));
        }
        for (Index c = 0; c < columns; ++c, ++holders) {
            Index const hue = holders->empty() ? 0 : holders->front() * 137 % 360;  // neighbours far apart
            svg += errors::concat("<rect x=\"", left + c * width, "\" y=\"", y, "\" width=\"", width, "\" height=\"",
                                  height, "\" stroke=\"black\" fill=\"hsl(", hue,
                                  holders->empty() ? ",0%,95%)" : ",60%,80%)", "\"/>\n");
            text_at(left + c * width + width / 2, y + 19, "middle", detail::ranks_text(*holders));
        }
    }
    for (std::size_t i = 0; i < left_out.size(); ++i)
        text_at(8, grid + 20 * (detail::as_index(i) + 1), "start", left_out[i]);
    return svg + "</svg>\n";
}

}  // namespace reshard::inline v0_1
