// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/reshape.hpp
/// \brief  Views of distributed tensors: dimensions merged, split, swapped, cut out. Nothing moves.
/// \depends permute, notation; <vector>. constexpr. Cost: the parts that a dimension is cut into.
///
/// As torch's flatten, unflatten, transpose, narrow and select: if every rank takes the view of its own part, the parts
/// are those of the view of the tensor, as the result says. Where they are those of no distribution, PlacementError
/// names the dimension and what to do first; ShapeError for dimensions and ranges that the tensor does not have.
///
/// d of [8,6] on (2)        | flatten(d, 0, 1) | unflatten(d, 0, {4, 2}) | narrow(d, 0, 2, 5) | select(d, 0, 3)
/// -------------------------|------------------|-------------------------|--------------------|----------------
/// S0                       | S0               | S0                      | S0[0,2,5]          | refused
/// S1                       | refused          | S2                      | S1                 | S0
/// S0[0,5,8]                | S0[0,30,48]      | refused: 5 is odd       | S0[0,3,5]          | refused
/// S0:cyc2                  | S0:cyc12         | S0:cyc1                 | refused            | refused
///
/// A rule stays where it makes the same parts of the result; otherwise it becomes boundaries, where one list fits.
///
/// Laws (tests/algebra/reshape.test.cpp): the elements of every rank, in the order of its memory, are those of the
/// view.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/algebra/permute.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace detail {

/// Where positions along a dimension are after a view: those of a range, times `times` or over `over`.
struct PositionMap {
    Interval range;
    Index times = 1;
    Index over = 1;

    [[nodiscard]] constexpr bool has(Index position) const noexcept { return position % over == 0; }
    [[nodiscard]] constexpr Index operator()(Index position) const noexcept {
        return (smaller(larger(position, range.begin), range.end) - range.begin) * times / over;
    }
    /// Blocks dealt to `parts` ranks after the view of these pieces; 0 where these are none.
    template <class Pieces>
    [[nodiscard]] constexpr Index block(Index block, Index parts, Pieces const& pieces) const noexcept {
        if (parts == 1) return 1;
        if (block % over != 0) return 0;
        Index period = 0;
        bool const repeats = multiply_fits(block, parts, period);
        for (Interval piece : pieces) {
            Index const skipped = larger(range.begin - piece.begin, Index{0});
            bool const starts = skipped == 0 || skipped >= piece.size() || (repeats && skipped % period == 0);
            if (!starts || !has(piece.begin) || !has(piece.end)) return 0;
        }
        Index longer = 0;
        return multiply_fits(block / over, larger(times, Index{1}), longer) ? longer : INT64_MAX;
    }
};

/// The cuts of dimension `dim` of `from`, as cuts of dimension `to` of the view. False where they are none.
template <class Intervals = std::vector<Interval>, class Positions = std::vector<Index>>
[[nodiscard]] constexpr bool recut(DynamicDistribution const& from, int dim, PositionMap const& map, int to,
                                   Placements& placements) {
    Intervals pieces{Interval{0, from.shape().extent(dim)}};
    for (int axis : from.cuts(dim)) {
        RuleRef const rule = from.rule(axis);
        Index const parts = from.mesh().extent(axis);
        if (rule.kind == SplitKind::strided) return false;
        if (rule.kind == SplitKind::cyclic) {  // always the last
            Index const block = map.block(rule.block(), parts, pieces);
            placements[axis] = Placement::shard(to, {rule.kind, block, {}});
            return block != 0;
        }
        bool stays = true;  // the rule makes these parts of the result, too
        bool alike = true;  // of every piece one list of positions does
        Positions list;
        Intervals next;
        for (Interval piece : pieces) {
            Index const begin = map(piece.begin);
            Index const size = map(piece.end) - begin;
            Positions positions;
            for (Index i = 0; i < parts; ++i) {
                Interval const old = part(rule, piece.size(), parts, i);
                next.push_back({piece.begin + old.begin, piece.begin + old.end});
                if (!map.has(next.back().begin) || !map.has(next.back().end)) return false;
                Interval const now{map(next.back().begin) - begin, map(next.back().end) - begin};
                positions.push_back(now.begin);
                Interval const kept = part(rule, size, parts, i);
                stays = stays && (now == kept || (now.empty() && kept.empty() && rule.kind != SplitKind::boundaries));
            }
            positions.push_back(size);
            if (list.empty()) list = positions;
            alike = alike && list == positions;
        }
        if (!stays && !alike) return false;
        // A list of more than 8 parts is kept for ever, and is none of a constant expression: only where it is needed.
        placements[axis] = Placement::shard(
            to, stays ? from.placement(axis).rule() : Boundaries(IndexList(list.data(), parts + 1)).rule(0, 0));
        pieces = next;
    }
    return true;
}

[[nodiscard]] constexpr bool is_cut(DynamicDistribution const& distribution, int dim) noexcept {
    for (int axis : distribution.cuts(dim))
        if (distribution.mesh().extent(axis) > 1) return true;
    return false;
}

/// The view of shape `shape`: dimension `carrier` becomes dimension `to`, mapped; `place(dim)` is where others are, and
/// -1 for those that are gone. \pre no cut of those has more than one part.
template <class Place>
[[nodiscard]] constexpr DynamicDistribution viewed(DynamicDistribution const& from, Indices const& extents, int carrier,
                                                   int to, PositionMap const& map, Place const& place,
                                                   std::string_view who, std::string_view fix) {
    Placements placements = from.placements();
    AxisList order;
    for (int axis : from.signature().order()) {
        int const dim = placements[axis].dim();
        int const now = dim == carrier ? to : place(dim);
        placements[axis] = now < 0 ? Placement::replicate() : Placement::shard(now, placements[axis].rule());
        if (now >= 0) order.push_back(static_cast<std::int8_t>(axis));
    }
    if (carrier >= 0 && !recut(from, carrier, map, to, placements)) {
        raise(ErrorCode::placement, "reshard::", who, ": ", to_string(from), " of ", to_string(from.shape()),
              ": the parts of dimension ", carrier, " are no parts of what it becomes. Fix: ", fix);
    }
    return DynamicDistribution(from.mesh(), DynamicShape(extents), placements, order);
}

[[noreturn]] inline void raise_view(std::string_view who, DynamicDistribution const& from, std::string_view what) {
    raise(ErrorCode::shape, "reshard::", who, ": a tensor of shape ", to_string(from.shape()), " has no such ", what,
          ". Fix: dimensions and positions count from 0 and stay below their number and the extent.");
}
[[noreturn]] inline void raise_cut(std::string_view who, DynamicDistribution const& from, int dim,
                                   std::string_view fix) {
    raise(ErrorCode::placement, "reshard::", who, ": ", to_string(from), " of ", to_string(from.shape()),
          ": dimension ", dim, " is cut. Fix: ", fix);
}

}  // namespace detail

/// Dimensions `first` to `last`, both included, as one. Of these only the first may be cut (of extents above 1).
[[nodiscard]] constexpr DynamicDistribution flatten(DynamicDistribution const& from, int first, int last) {
    DynamicShape const& shape = from.shape();
    if (first < 0 || first > last || last >= shape.rank()) detail::raise_view("flatten", from, "dimensions");
    int carrier = first;
    while (carrier < last && shape.extent(carrier) == 1 && !detail::is_cut(from, carrier)) ++carrier;
    Index inner = 1;
    for (int dim = last; dim > carrier; --dim) {
        if (detail::is_cut(from, dim)) {
            detail::raise_cut(
                "flatten", from, dim,
                "redistribute it first, so that of the dimensions that are merged only the first is cut.");
        }
        if (!detail::multiply_fits(inner, shape.extent(dim), inner)) detail::raise_view("flatten", from, "product");
    }
    Indices extents;
    for (int dim = 0; dim < shape.rank(); ++dim) {
        if (dim <= first || dim > last) extents.push_back(shape.extent(dim));
    }
    if (!detail::multiply_fits(shape.extent(carrier), inner, extents[first]))
        detail::raise_view("flatten", from, "product");
    return detail::viewed(
        from, extents, carrier, first, {{0, shape.extent(carrier)}, inner, 1},
        [&](int dim) { return dim < first   ? dim
                              : dim <= last ? -1
                                            : dim - (last - first); }, "flatten",
        "redistribute it first, so that every axis but the first cuts it evenly.");
}

/// Dimension `dim` as several, whose extents multiply to its own. Its cuts become those of the first (above 1).
[[nodiscard]] constexpr DynamicDistribution unflatten(DynamicDistribution const& from, int dim, Indices const& sizes) {
    DynamicShape const& shape = from.shape();
    bool fits = dim >= 0 && dim < shape.rank() && !sizes.empty() && shape.rank() + sizes.size() <= max_dims + 1;
    Index whole = 1;
    for (Index size : sizes) fits = fits && size >= 0 && detail::multiply_fits(whole, size, whole);
    if (!fits || whole != shape.extent(dim)) {
        errors::raise(ErrorCode::shape, "reshard::unflatten: dimension ", dim, " of ", to_string(shape), " as ",
                      to_string(sizes), ". Fix: give extents that multiply to that of the dimension, ",
                      "for at most 8 dimensions in all.");
    }
    int carrier = 0;  // nothing is cut where one of the extents is 0
    while (carrier + 1 < sizes.size() && (whole == 0 ? sizes[carrier] != 0 : sizes[carrier] == 1)) ++carrier;
    Index inner = 1;
    for (int i = carrier + 1; i < sizes.size(); ++i) {
        if (!detail::multiply_fits(inner, detail::larger(sizes[i], Index{1}), inner))
            detail::raise_view("unflatten", from, "sizes");
    }
    Indices extents;
    for (int d = 0; d < shape.rank(); ++d) {
        if (d != dim) extents.push_back(shape.extent(d));
        for (int i = 0; d == dim && i < sizes.size(); ++i) extents.push_back(sizes[i]);
    }
    return detail::viewed(
        from, extents, dim, dim + carrier, {{0, shape.extent(dim)}, 1, inner},
        [&](int d) { return d < dim ? d : d + sizes.size() - 1; }, "unflatten",
        "redistribute it first, to parts of whole rows: cuts at multiples of the product of the later extents.");
}

/// Dimensions a and b swapped.
[[nodiscard]] constexpr DynamicDistribution transpose(DynamicDistribution const& from, int a, int b) {
    int const rank = from.shape().rank();
    if (a < 0 || b < 0 || a >= rank || b >= rank) detail::raise_view("transpose", from, "dimensions");
    Indices order;
    for (int dim = 0; dim < rank; ++dim) order.push_back(dim == a ? b : dim == b ? a : dim);
    return permute(from, order);
}

/// The positions [begin, begin + count) of a dimension. Each rank takes what it has of these: where the dimension is
/// cut, parts differ then, and become boundaries.
[[nodiscard]] constexpr DynamicDistribution narrow(DynamicDistribution const& from, int dim, Index begin, Index count) {
    DynamicShape const& shape = from.shape();
    if (dim < 0 || dim >= shape.rank() || begin < 0 || count < 0 || begin > shape.extent(dim) - count) {
        detail::raise_view("narrow", from, "range");
    }
    Indices extents = shape.extents();
    extents[dim] = count;
    return detail::viewed(
        from, extents, dim, dim, {{begin, begin + count}, 1, 1}, [](int d) { return d; }, "narrow",
        "redistribute it to R first, or to cuts by one axis that deals out no blocks.");
}

/// The tensor at one position of a dimension, which must not be cut.
[[nodiscard]] constexpr DynamicDistribution select(DynamicDistribution const& from, int dim, Index position) {
    DynamicShape const& shape = from.shape();
    if (dim < 0 || dim >= shape.rank() || position < 0 || position >= shape.extent(dim)) {
        detail::raise_view("select", from, "position");
    }
    if (detail::is_cut(from, dim)) {
        detail::raise_cut("select", from, dim, "redistribute it to R first: others would hold nothing.");
    }
    Indices extents;
    for (int d = 0; d < shape.rank(); ++d)
        if (d != dim) extents.push_back(shape.extent(d));
    return detail::viewed(
        from, extents, -1, -1, {}, [&](int d) { return d == dim  ? -1
                                                       : d < dim ? d
                                                                 : d - 1; }, "select", "");
}

}  // namespace reshard::inline v0_1
