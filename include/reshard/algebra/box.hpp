// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/box.hpp
/// \brief  A product of half-open intervals of the global index space: what is held and what is needed.
/// \depends core, split. constexpr; no memory, no I/O.
#pragma once

#include <reshard/algebra/split.hpp>
#include <reshard/core/shape.hpp>

namespace reshard::inline v0_1 {

/// One interval per tensor dimension; a box of rank 0 holds the one element of a scalar.
class Box {
public:
    constexpr Box() = default;
    constexpr Box(std::initializer_list<Interval> intervals) {
        if (intervals.size() > detail::as_size(max_dims)) {
            errors::raise(ErrorCode::shape, "reshard::Box: ", intervals.size(), " intervals, at most ", max_dims,
                          " are supported. Fix: give one per tensor dimension.");
        }
        for (Interval interval : intervals) intervals_.push_back(interval);
    }
    /// The whole of a tensor.
    constexpr explicit Box(DynamicShape const& shape) noexcept {
        for (int d = 0; d < shape.rank(); ++d) intervals_.push_back({0, shape.extent(d)});
    }

    [[nodiscard]] constexpr int rank() const noexcept { return intervals_.size(); }
    [[nodiscard]] constexpr Index begin(int dim) const noexcept { return intervals_[dim].begin; }
    [[nodiscard]] constexpr Index end(int dim) const noexcept { return intervals_[dim].end; }
    [[nodiscard]] constexpr Index extent(int dim) const noexcept { return intervals_[dim].size(); }
    [[nodiscard]] constexpr Interval operator[](int dim) const noexcept { return intervals_[dim]; }
    constexpr void set(int dim, Interval interval) noexcept { intervals_[dim] = interval; }
    /// Throws ShapeError for more dimensions than a tensor has.
    constexpr void push_back(Interval interval) { intervals_.push_back(interval); }

    [[nodiscard]] constexpr Index size() const noexcept {
        Index product = 1;
        for (Interval interval : intervals_) product *= interval.size();
        return product;
    }
    [[nodiscard]] constexpr bool empty() const noexcept {  // not size() == 0, which a box of no tensor's could wrap to
        for (Interval interval : intervals_)
            if (interval.empty()) return true;
        return false;
    }
    [[nodiscard]] constexpr DynamicShape shape() const {
        Indices extents;
        for (int d = 0; d < rank(); ++d) extents.push_back(extent(d));
        return DynamicShape(extents);
    }
    [[nodiscard]] constexpr bool contains(Indices const& index) const noexcept {
        for (int d = 0; d < rank(); ++d)
            if (!intervals_[d].contains(index[d])) return false;
        return true;
    }
    [[nodiscard]] friend constexpr bool operator==(Box const&, Box const&) = default;

private:
    InlineList<Interval, max_dims> intervals_;
};

/// What both hold. \pre same rank. \post intersect(a, a) == a; commutative; associative up to empty boxes.
[[nodiscard]] constexpr Box intersect(Box const& a, Box const& b) noexcept {
    Box result = a;
    for (int d = 0; d < a.rank(); ++d) result.set(d, intersect(a[d], b[d]));
    return result;
}

/// Whether every element of `inner` is in `outer`; an empty box is inside any.
[[nodiscard]] constexpr bool contains(Box const& outer, Box const& inner) noexcept {
    return inner.empty() || intersect(outer, inner) == inner;
}

/// `inner` in indices that count from where `outer` begins. \pre same rank.
[[nodiscard]] constexpr Box relative_to(Box const& outer, Box const& inner) noexcept {
    Box result = inner;
    for (int d = 0; d < inner.rank(); ++d)
        result.set(d, {inner.begin(d) - outer.begin(d), inner.end(d) - outer.begin(d)});
    return result;
}

/// `[0:3,4:8]`: begin:end per dimension.
[[nodiscard]] inline std::string to_string(Box const& box) {
    std::string text = "[";
    for (int d = 0; d < box.rank(); ++d) {
        detail::append(text, {d == 0 ? "" : ",", box.begin(d), ":", box.end(d)});
    }
    detail::append(text, {"]"});
    return text;
}

}  // namespace reshard::inline v0_1
