// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/fold_chunks.hpp
/// \brief  A fold is carried out chunk after chunk: what arrives is folded while it is in the cache, and scratch memory
///         holds the addends of one chunk.
/// \depends plan/steps.
///
/// A chunk of what a rank folds is a part of its share along one dimension; every rank's share has the same number of
/// chunks, and both sides of an exchange know all shares, so nobody asks. Shares that interleave are many boxes:
/// they are folded at once.
#pragma once

#include <reshard/plan/steps.hpp>

namespace reshard::inline v0 {

namespace detail {

/// The largest local shape under a distribution, without asking each rank: the largest piece of a dimension is cut from
/// the largest piece, and dimensions do not share axes.
[[nodiscard]] constexpr Indices largest_extents(DynamicDistribution const& distribution) noexcept {
    Indices extents;
    for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
        Index extent = distribution.shape().extent(dim);
        for (int axis : distribution.cuts(dim)) {
            RuleRef const rule = distribution.rule(axis);
            Index const parts = distribution.mesh().extent(axis);
            if (rule.kind == SplitKind::boundaries) {
                Index longest = 0;
                for (Index i = 0; i < parts; ++i) longest = larger(longest, part(rule, extent, parts, i).size());
                extent = longest;
            } else if (interleaves(rule.kind)) {
                extent = IndexSet(Interval{0, extent}, rule, parts, 0).size();
            } else {
                extent = ceil_div(extent, parts);
            }
        }
        extents.push_back(extent);
    }
    return extents;
}
/// Its elements.
[[nodiscard]] constexpr Index largest_piece(DynamicDistribution const& distribution) noexcept {
    Index product = 1;
    for (Index extent : largest_extents(distribution)) product *= extent;
    return product;
}

/// a * b, or the largest number there is.
[[nodiscard]] constexpr Index saturated_product(Index a, Index b) noexcept {
    Index product = 0;
    return multiply_fits(a, b, product) ? product : INT64_MAX;
}

}  // namespace detail

namespace planning {

/// The chunks in which a plan's addends are folded.
class FoldChunks {
public:
    FoldChunks() = default;
    explicit FoldChunks(Steps const& steps) {
        Step const* const fold = steps.find(StepKind::fold);
        if (fold == nullptr) return;
        Layout const& slots = steps.from(*fold);
        Layout const& folded = steps.to(*fold);
        addends_ = slots.addends;
        waits_ = folded.place == Place::scratch;
        converts_ = steps.converts;
        if (interleaved(steps.layouts.front().distribution) || interleaved(folded.distribution)) return;
        Index const share = detail::largest_piece(folded.distribution);
        Index const limit = detail::larger(steps.fold_elements, Index{1});
        if (detail::saturated_product(share, addends_) <= detail::saturated_product(limit, 4))
            return;  // not worth the messages
        Index const chunk = detail::larger(detail::larger(limit / addends_, limit / 32), Index{1});
        count_ = detail::smaller(detail::ceil_div(share, chunk), most);
    }

    [[nodiscard]] Index count() const noexcept { return count_; }
    /// The dimension along which a share is cut: the outermost that is long enough, else the longest.
    [[nodiscard]] int dim_of(Indices const& share) const noexcept {
        int longest = 0;
        for (int dim = 0; dim < share.size(); ++dim) {
            if (share[dim] >= count_) return dim;
            if (share[dim] > share[longest]) longest = dim;
        }
        return longest;
    }
    /// A chunk of so many indices.
    [[nodiscard]] Interval part_of(Index extent, Index chunk) const noexcept {
        return detail::part({SplitKind::balanced, nullptr}, extent, count_, chunk);
    }
    /// The largest chunk of a share.
    [[nodiscard]] Indices largest_of(Indices share) const noexcept {
        if (count_ > 1) share[dim_of(share)] = detail::ceil_div(share[dim_of(share)], count_);
        return share;
    }
    /// Elements of scratch memory for a share: the addends of a chunk, and the result where it waits or is converted.
    [[nodiscard]] Index scratch_elements(Indices const& share) const noexcept {
        return scratch_elements(product(share), product(largest_of(share)));
    }
    /// The same for all ranks at once. \pre no share has an extent beyond `largest`.
    [[nodiscard]] Index largest_scratch(Indices const& largest) const noexcept {
        if (count_ == 1) return scratch_elements(product(largest), product(largest));
        Index chunk = 0;  // of a share that is cut along dim: those before it were too short
        Indices share = largest;
        for (int dim = 0; dim < largest.size(); ++dim) {
            share[dim] = detail::ceil_div(largest[dim], count_);
            chunk = detail::larger(chunk, product(share));
            share[dim] = detail::smaller(largest[dim], count_ - 1);
        }
        return scratch_elements(product(largest), chunk);
    }

    /// What of an exchange of addends belongs to a chunk: of each message the part within its receiver's chunk.
    [[nodiscard]] Exchange of(Exchange const& whole, DynamicDistribution const& folded, Index rank, Index chunk) const {
        if (count_ == 1) return whole;
        Exchange result;
        auto const cut = [&](std::vector<Message> const& messages, std::vector<Message>& parts, bool sent) {
            for (Message const& message : messages) {
                Box const share = folded.box(sent ? message.peer : rank);
                int const dim = dim_of(share.shape().extents());
                Interval const mine = part_of(share.extent(dim), chunk);
                Interval const both =
                    intersect(message.box[dim], {share.begin(dim) + mine.begin, share.begin(dim) + mine.end});
                if (both.empty()) continue;
                parts.push_back(message);
                parts.back().box[dim] = both;
            }
        };
        cut(whole.sends, result.sends, true);
        cut(whole.receives, result.receives, false);
        cut(whole.kept, result.kept, false);
        return result;
    }

private:
    static constexpr Index most = 64;  ///< so many exchanges are prepared

    [[nodiscard]] static Index product(Indices const& extents) noexcept {
        Index result = 1;
        for (Index extent : extents) result = detail::saturated_product(result, extent);
        return result;
    }
    [[nodiscard]] Index scratch_elements(Index share, Index chunk) const noexcept {
        Index const slots = detail::saturated_product(chunk, addends_);
        Index const result = waits_ ? share : converts_ ? chunk : 0;
        return slots > INT64_MAX - result ? INT64_MAX : slots + result;
    }
    [[nodiscard]] static bool interleaved(DynamicDistribution const& distribution) noexcept {
        for (PlacementForm const& placement : distribution.signature().placements)
            if (placement.is_shard() && interleaves(placement.split())) return true;
        return false;
    }

    Index count_ = 1;
    Index addends_ = 0;
    bool waits_ = false;
    bool converts_ = false;
};

}  // namespace planning

}  // namespace reshard::inline v0
