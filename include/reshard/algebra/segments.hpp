// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/segments.hpp
/// \brief  What two index sets share, as a short list of regular families of intervals.
/// \depends split. constexpr; no memory, no I/O.
///
/// Block-cyclic sets repeat, and so does what two of them share: with the least common multiple of both periods. One
/// period is looked at, whatever the extent; a last round that is cut at other places is looked at by itself. The
/// families are those of Ramaswamy and Banerjee (FALLS, "Automatic generation of efficient array redistribution
/// routines for distributed memory multicomputers", Frontiers '95), two of them nested.
#pragma once

#include <reshard/algebra/split.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// `count` times, `pitch` apart.
struct Repeat {
    Index pitch = 0;
    Index count = 1;
    friend constexpr bool operator==(Repeat const&, Repeat const&) = default;
};

/// Intervals of equal size at regular distances: the first one, repeated as `inner` says, all of that repeated as
/// `outer` says. With both counts 1, an interval.
struct Segments {
    Interval first;
    Repeat outer{};
    Repeat inner{};

    [[nodiscard]] constexpr Index count() const noexcept { return outer.count * inner.count; }
    [[nodiscard]] constexpr Index size() const noexcept { return count() * first.size(); }
    /// How many of the repeats are any: 0 for an interval.
    [[nodiscard]] constexpr int levels() const noexcept {
        return (outer.count > 1 ? 1 : 0) + (inner.count > 1 ? 1 : 0);
    }
    friend constexpr bool operator==(Segments const&, Segments const&) = default;
};

/// The least common multiple of the periods of two sets (0: none), or `limit` when that is less.
[[nodiscard]] constexpr Index common_period(Index a, Index b, Index limit) noexcept {
    if (a == 0 || b == 0) return smaller(a + b, limit);
    Index divisor = a;
    for (Index rest = b; rest != 0;) {
        Index const next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    Index period = 0;
    return multiply_fits(a / divisor, b, period) ? smaller(period, limit) : limit;
}

/// Joins families of equal size and count whose first intervals lie at equal distances.
template <class Visit>
class Joining {
public:
    constexpr Joining(Index period, Visit& visit) noexcept : period_(period), visit_(visit) {}
    constexpr void add(Interval interval, Index count) {
        Index const pitch = interval.begin - last_;
        bool const fits = segments_.outer.count == count && segments_.first.size() == interval.size() &&
                          (segments_.inner.count == 1 || segments_.inner.pitch == pitch);
        if (fits) {
            segments_.inner = {pitch, segments_.inner.count + 1};
        } else {
            finish();
            segments_ = {interval, {count == 1 ? 0 : period_, count}, {}};
        }
        last_ = interval.begin;
    }
    [[gnu::noinline]] constexpr void finish() {  // (add() calls it too)
        if (!segments_.first.empty()) visit_(segments_);
    }

private:
    Index period_;
    Visit& visit_;
    Segments segments_;
    Index last_ = 0;
};

/// for_each_shared() within `hull`, where both sets are regular.
template <class Visit>
constexpr void for_each_shared_in(Interval hull, IndexSet const& a, IndexSet const& b, Visit& visit) {
    if (a.is_interval() && b.is_interval()) return visit(Segments{hull});
    Index const period = common_period(a.period(), b.period(), hull.size());
    Index const last = hull.begin + (period - 1);  // families begin up to here
    Joining joining(period, visit);
    for (Index position = hull.begin; position <= last;) {
        Interval const from_a = a.segment_from(position);
        Interval const from_b = b.segment_from(position);
        Interval const both = intersect(from_a, from_b);
        if (both.empty()) {
            position = both.begin;  // where the later of the two begins
            continue;
        }
        if (both.begin > last) break;
        // Where the hull's begin cuts a block the rest of it is ragged: its repetitions are found as another family.
        Index const begin =
            larger(a.is_interval() ? hull.begin - 1 : from_a.begin, b.is_interval() ? hull.begin - 1 : from_b.begin);
        bool const cut = begin < hull.begin;
        Interval const whole{larger(both.begin, hull.begin), smaller(both.end, hull.end)};
        Index const rest = hull.end - whole.end;
        joining.add(whole, cut ? 1 : rest / period + 1);
        // The last repetition, where the hull's end cuts it.
        Index const tail = rest % period - (period - whole.size());
        if (!cut && tail > 0) visit(Segments{{hull.end - tail, hull.end}});
        position = both.end;
    }
    joining.finish();
}

/// Calls `visit(Segments)` for families that together are what `a` and `b` share, every element once. The families
/// depend on what the two sets are and on nothing else: not on their order, so that two ranks that look at each other
/// list the same. Cost: the blocks in one common period, or in what both span if that is shorter.
template <class Visit>
constexpr void for_each_shared(IndexSet const& a, IndexSet const& b, Visit&& visit) {
    Interval hull = intersect(a.span(), b.span());
    if (hull.empty()) return;
    Index const end = smaller(a.regular_end(), b.regular_end());
    Index const last = hull.end;
    hull.end = smaller(hull.end, end);
    if (!hull.empty()) for_each_shared_in(hull, a, b, visit);
    if (end >= last) return;
    // From there on what was regular up to there is an interval.
    for_each_shared<Visit>(a.regular_end() == end ? IndexSet(a.last()) : a,
                           b.regular_end() == end ? IndexSet(b.last()) : b, static_cast<Visit&&>(visit));
}

/// How many elements both have.
[[nodiscard]] constexpr Index shared_size(IndexSet const& a, IndexSet const& b) {
    Index size = 0;
    for_each_shared(a, b, [&](Segments const& segments) { size += segments.size(); });
    return size;
}

}  // namespace detail

}  // namespace reshard::inline v0_1
