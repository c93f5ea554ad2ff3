// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/refinement.hpp
/// \brief  Cuts that a plan adds to a distribution, on the way: chosen so that ranks hold most of what they get.
/// \depends plan/steps, core/tensor_view; <bit>.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/plan/steps.hpp>

#include <bit>  // countr_zero

namespace reshard::inline v0::detail {

using planning::Layout;
using planning::Place;

/// What ranks hold of what they get, counted on a model: a mesh of at most 16 ranks, or of 2 along an axis, and a
/// tensor of ranks() * ranks() elements, whose cuts come out even. \pre no cut but the last of a dimension interleaves.
class HeldModel {
public:
    struct Count {
        Index all = 0;            ///< elements, of all ranks together
        Index least = INT64_MAX;  ///< of the rank that holds least of what it gets
    };

    explicit HeldModel(DynamicMesh const& mesh) : extents_(mesh.extents()) {
        for (Index& extent : extents_) extent = smaller<Index>(extent, mesh.size() > 16 ? 2 : 16);
        for (Index extent : extents_) ranks_ *= extent;
        strides_ = row_major_strides(DynamicShape(extents_));
    }
    [[nodiscard]] Index ranks() const noexcept { return ranks_; }
    /// Into how many parts axes cut.
    [[nodiscard]] Index parts(AxisList const& axes) const noexcept {
        Index product = 1;
        for (int axis : axes) product *= extents_[axis];
        return product;
    }
    /// Elements of a rank's part.
    [[nodiscard]] Index size(DynamicDistribution const& distribution) const noexcept {
        return ranks_ * ranks_ / parts(distribution.signature().order());
    }
    /// When ranks have `had` and get `next`.
    [[nodiscard]] Count held(DynamicDistribution const& had, DynamicDistribution const& next) const {
        Index both[1 << max_axes];
        Index const unit = size(had) * size(next) / (ranks_ * ranks_);
        for (Index rank = 0; rank < ranks_; ++rank) both[rank] = unit;
        Count count;
        for (int d = 0; d < next.shape().rank(); ++d) {
            Cuts given{had.cuts(d)};
            Cuts wanted{next.cuts(d)};
            if (given.axes.empty() && wanted.axes.empty()) continue;
            // What interleaves, and not on both sides alike, has its share of everything.
            auto const split = [&](DynamicDistribution const& side, Cuts& cuts) {
                if (cuts.axes.empty() || !interleaves(side.signature()[cuts.axes.back()].split())) return;
                int const last = cuts.axes.back();
                if (had.placement(last) == next.placement(last)) return;
                cuts.shares = extents_[last];
                cuts.axes.pop_back();
            };
            Index const length = parts(given.axes) * parts(wanted.axes);
            split(had, given);
            split(next, wanted);
            for (Index rank = 0; rank < ranks_; ++rank) {
                Interval const shared = intersect(part(given.axes, rank, length), part(wanted.axes, rank, length));
                both[rank] *= shared.size() / (given.shares * wanted.shares);
            }
        }
        for (Index rank = 0; rank < ranks_; ++rank) {
            count.all += both[rank];
            count.least = smaller(count.least, both[rank]);
        }
        return count;
    }

private:
    struct Cuts {
        AxisList axes;
        Index shares = 1;
    };
    /// A rank's part of a dimension.
    [[nodiscard]] Interval part(AxisList const& cuts, Index rank, Index length) const noexcept {
        Interval span{0, length};
        for (int axis : cuts) {
            Index const size = span.size() / extents_[axis];
            span.begin += rank / strides_[axis] % extents_[axis] * size;
            span.end = span.begin + size;
        }
        return span;
    }

    Indices extents_;
    Indices strides_;  ///< in ranks
    Index ranks_ = 1;
};

/// Whether the model is as good as the tensor, but for a remainder.
[[nodiscard]] constexpr bool cuts_evenly(DynamicDistribution const& distribution) noexcept {
    for (int axis : distribution.signature().order()) {
        SplitKind const kind = distribution.signature()[axis].split();
        if (kind != SplitKind::chunk && kind != SplitKind::balanced) return false;
    }
    return true;
}

/// Grows a distribution by one cut at a time, each behind the cuts already there.
class Refinement {
public:
    /// `have`: what ranks of the same mesh hold already; null: it lies elsewhere.
    explicit Refinement(DynamicDistribution const& base, DynamicDistribution const* have = nullptr,
                        Owner const& owner = {})
        : base_(base), have_(have), result_(base), owner_(owner) {}

    /// Lets one coordinate along `axis` have everything.
    void own(int axis, Index coordinate) {
        set(axis, Placement::replicate());
        owner_.axes.push_back(static_cast<std::int8_t>(axis));
        owner_.coordinates.push_back(static_cast<std::int32_t>(coordinate));
    }
    void cut(int axis, int dim, SplitRule const& rule) { set(axis, Placement::shard(dim, rule)); }
    /// Cuts along each of these axes (bits), next always the axis and dimension after which ranks hold most of what
    /// they get; of those the first axis and the longest dimension. Where there is nothing left to cut, coordinate 0
    /// owns it. `then`: the axes that are cut behind these, for which ranks hold most when all is cut.
    void cut(unsigned axes, unsigned then = 0) {
        while (axes != 0) {
            Cut best;
            for (int axis = 0; axis < base_.mesh().axes(); ++axis)
                if ((axes >> axis & 1U) != 0) choose(best, axis, then);
            if (best.dim < 0) best.axis = std::countr_zero(axes);
            axes &= ~(1U << best.axis);
            best.dim < 0 ? own(best.axis, 0) : cut_as_source(best.axis, best.dim);
        }
    }
    /// Whether ranks hold all that they get.
    [[nodiscard]] bool holds_all() const {
        HeldModel const model(base_.mesh());
        return !knows() || model.held(*have_, result_).all == model.ranks() * model.size(result_);
    }
    /// Whether a cut behind the others is possible: one that interleaves is always the last.
    [[nodiscard]] bool open(int dim) const noexcept {
        AxisList const cuts = result_.cuts(dim);
        return cuts.empty() || !interleaves(result_.signature()[cuts.back()].split());
    }

    [[nodiscard]] Layout layout(Place place = Place::destination) const { return {place, result_, owner_}; }

private:
    /// \pre the axis cuts nothing yet.
    void set(int axis, Placement const& placement) {
        Placements placements = result_.placements();
        AxisList order = result_.signature().order();
        placements[axis] = placement;
        if (placement.is_shard()) order.push_back(static_cast<std::int8_t>(axis));
        result_ = DynamicDistribution(base_.mesh(), base_.shape(), placements, order);
    }
    /// As the source cuts the dimension along this axis, where that is into even parts.
    void cut_as_source(int axis, int dim) {
        bool const chunk = have_ != nullptr && have_->signature()[axis].is_shard() &&
                           have_->signature()[axis].dim() == dim &&
                           have_->signature()[axis].split() == SplitKind::chunk;
        cut(axis, dim, {chunk ? SplitKind::chunk : SplitKind::balanced, 0, {}});
    }
    /// Whether it matters where a cut goes.
    [[nodiscard]] bool knows() const noexcept { return have_ != nullptr && have_->signature().shards != 0; }

    struct Cut {
        int axis = -1;
        int dim = -1;
        Index extent = 0;
        HeldModel::Count held;
    };
    /// The better of `best` and a cut along `axis`, of the dimensions of the first rank's box that are longer than 1.
    void choose(Cut& best, int axis, unsigned then) const {
        Indices const first = base_.mesh().coordinates(base_.mesh().rank_at(0));
        for (int dim = 0; dim < base_.shape().rank(); ++dim) {
            Cut cut{axis, dim, result_.index_set(first, dim).size(), {}};
            if (!open(dim) || cut.extent <= 1) continue;
            if (knows()) {
                Refinement ahead = *this;
                ahead.cut_as_source(axis, dim);
                ahead.cut(then);
                cut.held = HeldModel(base_.mesh()).held(*have_, ahead.result_);
            }
            bool const more = cut.held.all != best.held.all       ? cut.held.all > best.held.all
                              : cut.held.least != best.held.least ? cut.held.least > best.held.least
                                                                  : axis == best.axis && cut.extent > best.extent;
            if (best.dim < 0 || more) best = cut;
        }
    }

    DynamicDistribution const& base_;
    DynamicDistribution const* have_;
    DynamicDistribution result_;
    Owner owner_;
};

}  // namespace reshard::inline v0::detail
