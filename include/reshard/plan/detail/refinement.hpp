// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/refinement.hpp
/// \brief  Cuts that a plan adds to a distribution, on the way: chosen so that ranks hold most of what they get.
/// \depends plan/steps, core/tensor_view; <bit>.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/plan/steps.hpp>

#include <bit>  // countr_zero

namespace reshard::inline v0_1::detail {

using planning::Layout;
using planning::Place;

/// Into parts of one size, but for a remainder.
[[nodiscard]] constexpr bool is_even(SplitKind kind) noexcept {
    return kind == SplitKind::chunk || kind == SplitKind::balanced;
}

/// The axes by which `other` cuts a dimension evenly behind `cuts`, those of `side`, up to `axis`; none where it does
/// not begin with these.
[[nodiscard]] inline AxisList cuts_behind(AxisList const& cuts, DynamicDistribution const& side,
                                          DynamicDistribution const& other, int dim, int axis) {
    AxisList result;
    AxisList const all = other.cuts(dim);
    for (int i = 0; i < all.size() && all[i] != axis; ++i) {
        bool const behind = i >= cuts.size();
        bool const both = !behind && all[i] == cuts[i] && side.placement(all[i]) == other.placement(all[i]);
        if (behind ? !is_even(other.signature()[all[i]].split()) : !both) break;
        if (behind) result.push_back(all[i]);
    }
    return result;
}

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
    [[nodiscard]] Index extent(int axis) const noexcept { return extents_[axis]; }
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
            Index const length = parts(given.axes) * parts(wanted.axes);
            // What interleaves, and not on both sides alike, has its share of everything; but of pieces that the other
            // side makes this has one, and all that matters is how that is cut.
            auto const split = [&](DynamicDistribution const& side, DynamicDistribution const& other, Cuts& cuts) {
                if (cuts.axes.empty() || !interleaves(side.signature()[cuts.axes.back()].split())) return;
                std::int8_t const last = cuts.axes.back();
                if (had.placement(last) == next.placement(last)) return;
                RuleRef const rule = side.rule(last);
                cuts.axes.pop_back();
                AxisList axes = cuts.axes;
                Index pieces = rule.kind == SplitKind::strided ? rule.block() : 0;
                for (std::int8_t axis : cuts_behind(cuts.axes, side, other, d, last)) {
                    if (pieces <= 1) break;
                    pieces = pieces % side.mesh().extent(axis) == 0 ? pieces / side.mesh().extent(axis) : 0;
                    axes.push_back(axis);
                }
                axes.push_back(last);
                pieces == 1 ? cuts.axes = axes : cuts.shares = extents_[last];
            };
            split(had, next, given);
            split(next, had, wanted);
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
    for (int axis : distribution.signature().order())
        if (!is_even(distribution.signature()[axis].split())) return false;
    return true;
}

[[nodiscard]] constexpr bool is_interleaved(DynamicDistribution const& distribution, int dim) noexcept {
    AxisList const cuts = distribution.cuts(dim);
    return !cuts.empty() && interleaves(distribution.signature()[cuts.back()].split());
}
/// Whether what ranks have of `inner` lies apart in what they have of `outer`.
[[nodiscard]] constexpr bool lies_apart(DynamicDistribution const& inner, DynamicDistribution const& outer) noexcept {
    for (int dim = 0; dim < outer.shape().rank(); ++dim)
        if (is_interleaved(inner, dim) && !is_interleaved(outer, dim)) return true;
    return false;
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
    /// owns it. `then`: the axes that are cut behind these, for which ranks hold most when all is cut. `in_pieces`:
    /// whether what a rank gets may be several intervals.
    void cut(unsigned axes, unsigned then = 0, bool in_pieces = false) {
        while (axes != 0) {
            Cut best;
            for (int axis = 0; axis < base_.mesh().axes(); ++axis)
                if ((axes >> axis & 1U) != 0) choose(best, axis, then, in_pieces ? axes : 0);
            if (best.dim < 0) best.axis = std::countr_zero(axes);
            axes &= ~(1U << best.axis);
            best.dim < 0 ? own(best.axis, 0) : cut_as_source(best.axis, best.dim, best.pieces);
        }
    }
    /// Whether ranks hold all that they get.
    [[nodiscard]] bool holds_all() const {
        HeldModel const model(base_.mesh());
        return !knows() || model.held(*have_, result_).all == model.ranks() * model.size(result_);
    }
    /// Whether a cut behind the others is possible: one that interleaves is always the last.
    [[nodiscard]] bool open(int dim) const noexcept { return !is_interleaved(result_, dim); }

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
    /// As the source cuts the dimension, or each of so many pieces, along this axis, where that is into even parts.
    void cut_as_source(int axis, int dim, Index pieces) {
        if (pieces > 1) return cut(axis, dim, {SplitKind::strided, pieces, {}});
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
        Index pieces = 1;  ///< each cut for itself: no axis cuts the dimension behind this one then
        HeldModel::Count held;
    };
    /// The better of `best` and a cut along `axis`, of the dimensions of the first rank's box that are longer than 1.
    /// `axes`: those yet to be cut, where pieces may be.
    void choose(Cut& best, int axis, unsigned then, unsigned axes) const {
        DynamicMesh const& mesh = base_.mesh();
        Indices const first = mesh.coordinates(mesh.rank_at(0));
        Index const others = axes == 0 ? 0 : AxisSubset(mesh, axes & ~(1U << axis)).size();
        auto const extent = [&, this](int dim) { return open(dim) ? result_.index_set(first, dim).size() : 0; };
        for (int dim = 0; dim < base_.shape().rank(); ++dim) {
            Cut cut{axis, dim, extent(dim), 1, {}};
            if (cut.extent <= 1) continue;
            AxisList pieces;
            if (knows() && axes != 0) {
                bool room = others == 1;  // for the other axes, in other dimensions
                for (int d = 0; d < base_.shape().rank(); ++d) room = room || (d != dim && extent(d) >= others);
                if (room) pieces = cuts_behind(result_.cuts(dim), result_, *have_, dim, axis);
            }
            for (int i = 0; i <= pieces.size(); ++i) {
                if (i != 0) cut.pieces *= mesh.extent(pieces[i - 1]);
                if (i != 0 && cut.extent % (cut.pieces * mesh.extent(axis)) != 0) break;
                if (knows()) cut.held = held_by(cut, then);
                bool const whole = cut.pieces == 1;
                bool const more = cut.held.all != best.held.all       ? cut.held.all > best.held.all
                                  : cut.held.least != best.held.least ? cut.held.least > best.held.least
                                  : whole != (best.pieces == 1)       ? whole
                                  : whole                             ? axis == best.axis && cut.extent > best.extent
                                                                      : mesh.extent(axis) > mesh.extent(best.axis);
                if (best.dim < 0 || more) best = cut;
            }
        }
    }
    /// With this cut, and those that are best behind it.
    [[nodiscard]] HeldModel::Count held_by(Cut const& cut, unsigned then) const {
        HeldModel const model(base_.mesh());
        Refinement ahead = *this;
        ahead.cut_as_source(cut.axis, cut.dim, cut.pieces);
        if (cut.pieces == 1) ahead.cut(then);
        HeldModel::Count count = model.held(*have_, ahead.result_);
        if (cut.pieces == 1) return count;
        // What is folded then can be cut as the source is: the axes that cut nothing there take their part.
        for (int axis = 0; axis < base_.mesh().axes(); ++axis) {
            if ((then >> axis & 1U) == 0 || have_->signature()[axis].is_shard()) continue;
            count.all /= model.extent(axis);
            count.least /= model.extent(axis);
        }
        return count;
    }

    DynamicDistribution const& base_;
    DynamicDistribution const* have_;
    DynamicDistribution result_;
    Owner owner_;
};

}  // namespace reshard::inline v0_1::detail
