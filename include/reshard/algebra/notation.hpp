// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/notation.hpp
/// \brief  The one notation of distributions, printed and parsed: `(2,4):(R,S0)`, `(8):(P+)`, `(2,4):(S0,S0)@1,0`.
/// \depends distribution, <string>.
///
///     distribution = mesh ":" ( "(" placements ")" [ "@" axes ] | "[" cuts "]" )
///     mesh         = "(" extents ")" [ "+" first rank | "[" ranks "]" ]
///     extent       = [ name "=" ] number
///     placement    = "R" | "S" dim [ ":bal" | ":cyc" block | ":str" factor | "[" boundaries "]" ]
///                  | "P" ( "+" | "*" | "<" | ">" | "&" | "|" | "^" | "avg" )
///     cut          = "-" | axis | "(" axes ")"
///
/// `@` lists, first cut first, the axes of every dimension whose cutting order is not ascending. Spaces are
/// ignored when parsing. Law: parse(print(d)) == d. Of what can be said in several ways only one is printed:
///
///     (dp=2,tp=4):[tp,-]           (dp=2,tp=4):(R,S0)    per dimension the axes that cut it, as JAX's PartitionSpec
///     (dp=2,tp=4):[(tp,dp)]        (dp=2,tp=4):(S0,S0)@1,0    first cut first; what is not listed is not cut
///     (2,4):(R,S-1) of a matrix    (2,4):(R,S1)          dimensions from the end
#pragma once

#include <reshard/algebra/distribution.hpp>

namespace reshard::inline v0_1 {

namespace detail {
/// Axes of the dimensions with a cutting order of their own, merged so that equal distributions print alike.
[[nodiscard]] AxisList printed_order(Signature const& signature);

struct PlacementsRead {
    Placements placements;
    AxisList order;
};
/// What a text says of a tensor of so many dimensions, whatever their extents. Throws NotationError.
[[nodiscard]] PlacementsRead read_placements(std::string_view text, DynamicMesh const& mesh, int dims);
/// As to_string(), with so many of the ranks that a mesh lists.
[[nodiscard, gnu::cold]] std::string text_of(DynamicMesh const& mesh, Index most);
[[nodiscard, gnu::cold]] std::string text_of(DynamicDistribution const& distribution, Index most);
/// What messages say of a mesh or a distribution: few of its ranks. Those that tell two apart say all.
[[nodiscard]] std::string brief(auto const& placed) { return text_of(placed, 16); }
}  // namespace detail

[[nodiscard]] std::string to_string(Placement const& placement);

/// `(2,4)`, with `+8` when its first rank is 8 and `[4,0,2]` when its ranks are listed.
[[nodiscard]] inline std::string to_string(DynamicMesh const& mesh) { return detail::text_of(mesh, INT64_MAX); }

/// `(2,4):(R,S0)`.
[[nodiscard]] inline std::string to_string(DynamicDistribution const& distribution) {
    return detail::text_of(distribution, INT64_MAX);
}

/// Placements from text: `distribution(mesh, shape, "S0,R")`. Throws NotationError or PlacementError.
[[nodiscard]] DynamicDistribution distribution(DynamicMesh const& mesh, DynamicShape const& shape,
                                               std::string_view placements);

/// The whole notation; the shape is not part of it. Throws NotationError, MeshError or PlacementError.
[[nodiscard]] DynamicDistribution parse(std::string_view text, DynamicShape const& shape);

/// `[8192,1024]`; `[]` is a scalar. Throws NotationError or ShapeError. parse_shape(to_string(s)) == s.
[[nodiscard]] DynamicShape parse_shape(std::string_view text);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/algebra/notation.ipp>
#endif
