// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/algebra/total_bound.hpp
/// \brief  How few elements the busiest rank and all ranks together can move in a transition: the table of bound.hpp.
/// \depends bound; <vector>. constexpr. Not part of the umbrella: for tables, tests and small clusters.
#pragma once

#include <reshard/algebra/bound.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

struct TotalBound {
    bool known = false;
    Index received = 0;  ///< elements received by the rank that receives most
    Index sent = 0;      ///< elements sent by the rank that sends most
    Index total = 0;     ///< elements that cross ranks
    friend constexpr bool operator==(TotalBound const&, TotalBound const&) = default;
};

namespace detail {

/// The most elements any rank of the source must send, if nothing is folded.
[[nodiscard]] constexpr Index most_copied_out(DynamicDistribution const& from, DynamicDistribution const& to) {
    DynamicMesh const& sources = from.mesh();
    DynamicMesh const& targets = to.mesh();
    Index most = 0;
    // Per piece of the source: every element that somebody without it needs leaves one of its copies at least once.
    for (Index i = 0; i < sources.size(); ++i) {
        Index const rank = sources.rank_at(i);
        auto const piece = from.boxes(rank);
        if (piece.empty()) continue;
        Index copies = 0;
        for (Index j = 0; j < sources.size(); ++j) {
            if (from.boxes(sources.rank_at(j)) == piece) ++copies;
        }
        std::vector<std::vector<Box>> seen;  // the destination's pieces are equal or disjoint
        Index needed = 0;
        for (Index j = 0; j < targets.size(); ++j) {
            Index const receiver = targets.rank_at(j);
            auto const wanted = to.boxes(receiver);
            if (from.contains(receiver) && from.boxes(receiver) == piece) continue;
            bool counted = false;
            for (auto const& earlier : seen) counted = counted || earlier == wanted;
            if (counted) continue;
            seen.push_back(wanted);
            for (Box const& a : piece)
                for (Box const& b : wanted) needed += intersect(a, b).size();
        }
        most = larger(most, ceil_div(needed, copies));
    }
    return most;
}

}  // namespace detail

/// The fewest elements that must be received and sent, by the busiest rank and in all. Cost: ranks squared; for
/// tables, tests and small clusters.
[[nodiscard]] constexpr TotalBound total_bound(DynamicDistribution const& from, DynamicDistribution const& to,
                                               bool across = false) {
    TotalBound result;
    DynamicMesh const& sources = from.mesh();
    DynamicMesh const& targets = to.mesh();
    detail::FoldShape fold;
    if (across) {
        bool const owes = from.signature().axes_of(PlacementKind::partial) != 0;
        bool const fills = to.signature().axes_of(PlacementKind::partial) != 0;
        bool const to_one = sources.axes() == 1 && detail::one_rank_of(targets, sources);
        bool const from_one = targets.axes() == 1 && detail::one_rank_of(sources, targets);
        if (owes && to_one && !fills) {
            Index const whole = from.shape().size();
            Index const others = sources.size() - 1;
            result = {true, others == 0 ? 0 : whole, others == 0 ? 0 : whole, 0};
            detail::add_to_bound(result.total, whole, others);
            return result;
        }
        if (fills && from_one && !owes) return {true, 0, 0, 0};
        if (owes || fills) return result;
    } else {
        if (kind_of(from, to) != TransitionKind::collective) return {true, 0, 0, 0};
        fold = detail::fold_shape(from, to);
    }
    if (fold.form == detail::FoldForm::mixed) return result;
    result.known = true;
    if (fold.form != detail::FoldForm::none) {
        Index const factor = fold.form == detail::FoldForm::to_copies ? 2 : 1;
        Index whole = 0;  // of each group once: its n ranks hold as many elements, and each counts for one n-th
        Index rest = 0;
        for (Index i = 0; i < sources.size(); ++i) {
            Index const local = from.local_shape(sources.rank_at(i)).size();
            result.received = detail::larger(result.received, detail::shared(factor, fold.ranks, local));
            detail::add_to_bound(whole, local / fold.ranks);
            rest += local % fold.ranks;
        }
        detail::add_to_bound(whole, rest / fold.ranks);
        detail::add_to_bound(result.total, whole, factor * (fold.ranks - 1));
        result.sent = result.received;
        return result;
    }
    for (Index i = 0; i < targets.size(); ++i) {
        Index const missing = detail::missing(from, to, targets.rank_at(i));
        result.received = detail::larger(result.received, missing);
        detail::add_to_bound(result.total, missing);
    }
    result.sent = detail::most_copied_out(from, to);
    return result;
}

}  // namespace reshard::inline v0_1
