// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/fold_chunks.hpp
/// \brief  A fold is carried out chunk after chunk: what arrives is folded while it is in the cache, and scratch memory
///         holds the addends of one chunk.
/// \depends plan/steps, plan/detail/share.
///
/// A chunk of what a rank folds is a part of its share along one dimension; every rank's share has the same number of
/// chunks, along the same dimension, and both sides of an exchange know all shares, so nobody asks. Where the result
/// lies in scratch memory, the exchange that takes it from there goes chunk by chunk as well, each behind its fold.
#pragma once

#include <reshard/plan/detail/share.hpp>
#include <reshard/plan/steps.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// The largest local shape under a distribution, without asking each rank: first parts are the longest, but for those
/// between boundaries, and dimensions do not share axes.
[[nodiscard]] constexpr Indices largest_extents(DynamicDistribution const& distribution) noexcept {
    Indices place;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        PlacementForm const& placement = distribution.signature()[axis];
        bool const bounded = placement.is_shard() && placement.split() == SplitKind::boundaries;
        Index const* const bounds = bounded ? distribution.rule(axis).numbers : nullptr;
        Index longest = 0;
        for (Index i = 1; bounded && i < distribution.mesh().extent(axis); ++i)
            if (bounds[i + 1] - bounds[i] > bounds[longest + 1] - bounds[longest]) longest = i;
        place.push_back(longest);
    }
    Indices extents;
    for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
        extents.push_back(distribution.index_set(place, dim).size());
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

/// Adds what lies within an interval of a dimension of a message, as few messages.
inline void add_within(std::vector<Message>& parts, Message const& message, int dim, Interval within) {
    int at = 0;
    while (at < message.repeats.size() && message.repeats[at].dim != dim) ++at;
    Interval hull = message.box[dim];  // of one repetition, with all that lies in it
    for (int inner = at + 1; inner < message.repeats.size() && message.repeats[inner].dim == dim; ++inner) {
        hull.end += message.repeats[inner].pitch * (message.repeats[inner].count - 1);
    }
    if (at == message.repeats.size()) {
        Interval const both = intersect(hull, within);
        if (both.empty()) return;
        parts.push_back(message);
        parts.back().box[dim] = both;
        return;
    }
    BoxRepeat const repeat = message.repeats[at];
    auto const begins = [&](Index k) { return hull.begin + k * repeat.pitch; };
    auto const ends = [&](Index k) { return hull.end + k * repeat.pitch; };
    Index k = first_where<Index>(0, repeat.count, [&](Index i) { return ends(i) > within.begin; });
    Index const last = first_where(k, repeat.count, [&](Index i) { return begins(i) >= within.end; });
    while (k < last) {  // those that lie inside go together, one that the interval cuts goes alone
        Index next = k + 1;
        bool const inside = begins(k) >= within.begin && ends(k) <= within.end;
        if (inside) next = first_where(next, last, [&](Index i) { return ends(i) > within.end; });
        Message const part = slice(message, {dim, at}, {k, next});
        inside ? parts.push_back(part) : add_within(parts, part, dim, within);
        k = next;
    }
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
        Layout const& folded = steps.to(*fold);
        Index const addends = steps.from(*fold).addends;
        areas_ = addends + (folded.place == Place::scratch || steps.converts ? 1 : 0);
        Indices const largest = detail::largest_extents(folded.distribution);
        Index const share = product(largest);
        Index const limit = detail::larger(steps.fold_elements, Index{1});
        if (detail::saturated_product(share, addends) <= detail::saturated_product(limit, 4))
            return;  // not worth the messages
        Index const chunk = detail::larger(detail::larger(limit / addends, limit / 32), Index{1});
        count_ = detail::smaller(detail::ceil_div(share, chunk), most);
        for (int dim = 1; dim < largest.size() && largest[dim_] < count_; ++dim)
            if (largest[dim] > largest[dim_]) dim_ = dim;
    }

    [[nodiscard]] Index count() const noexcept { return count_; }
    /// The dimension along which shares are cut: the outermost that is long enough, else the longest.
    [[nodiscard]] int dim() const noexcept { return dim_; }
    /// A chunk of so many local indices.
    [[nodiscard]] Interval part_of(Index extent, Index chunk) const noexcept {
        return detail::part({SplitKind::balanced, nullptr}, extent, count_, chunk);
    }
    /// The largest chunk of a share.
    [[nodiscard]] Indices largest_of(Indices share) const noexcept {
        if (count_ > 1) share[dim_] = detail::ceil_div(share[dim_], count_);
        return share;
    }
    /// Elements of scratch memory for a share: the addends of a chunk, and the result where it lies there.
    [[nodiscard]] Index scratch_elements(Indices const& share) const noexcept {
        return detail::saturated_product(product(largest_of(share)), areas_);
    }

    /// What of an exchange belongs to a chunk: of each message the part within that chunk of who folds it.
    /// \pre steps.in_chunks(exchange)
    [[nodiscard]] Exchange of(Exchange const& whole, Steps const& steps, Step const& exchange, Index rank,
                              Index chunk) const {
        if (count_ == 1) return whole;
        Exchange result;
        bool const brings = steps.to(exchange).addends != 0;  // else it passes on what is folded
        DynamicDistribution const& folded = (brings ? steps.to(exchange) : steps.from(exchange)).distribution;
        auto const cut = [&, this](std::vector<Message> const& messages, std::vector<Message>& parts, bool by_peer) {
            for (Message const& message : messages) {
                Indices const place = folded.mesh().coordinates(by_peer ? message.peer : rank);
                IndexSet const share = folded.index_set(place, dim_);
                Interval const mine = part_of(share.size(), chunk);
                if (mine.empty()) continue;
                Index const last = share.global_index(mine.end - 1);
                detail::add_within(parts, message, dim_, {share.global_index(mine.begin), last + 1});
            }
        };
        cut(whole.sends, result.sends, brings);
        cut(whole.receives, result.receives, !brings);
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

    Index count_ = 1;
    int dim_ = 0;
    Index areas_ = 0;  ///< of scratch memory, each of a chunk: the addends, and the result where it lies there
};

/// As how many exchanges one of a plan's is carried out.
[[nodiscard]] inline Index chunks_of(Steps const& steps, Step const& exchange) {
    return steps.in_chunks(exchange) ? FoldChunks(steps).count() : 1;
}

}  // namespace planning

}  // namespace reshard::inline v0_1
