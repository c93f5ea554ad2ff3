// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/held.hpp
/// \brief  The exchange among relays: everybody passes on its share, but to nobody what it held before.
/// \depends meeting, plan/steps.
///
/// What a rank holds is a product of index sets, one per dimension. A product minus a product is a product per
/// dimension: inside along the dimensions before it, outside along it, everything along those behind. Both sides
/// derive the same messages from it.
#pragma once

#include <reshard/plan/detail/meeting.hpp>
#include <reshard/plan/steps.hpp>

namespace reshard::inline v0::detail {

using IndexSets = InlineList<IndexSet, max_rank>;

/// What a rank has, or needs, of a layout; false when that is nothing.
[[nodiscard]] inline bool sets_of(planning::Layout const& layout, Index rank, IndexSets& sets) {
    DynamicDistribution const& holding = layout.distribution;
    if (!holding.contains(rank)) return false;
    Indices const coordinates = holding.mesh().coordinates(rank);
    if (!layout.owner.is_at(coordinates)) return false;
    sets = {};
    for (int dim = 0; dim < holding.shape().rank(); ++dim) {
        sets.push_back(holding.index_set(coordinates, dim));
        if (sets[dim].size() == 0) return false;
    }
    return true;
}

/// Calls `visit(set)` for index sets that together are [0, extent) without `set`.
template <class Visit>
void for_each_outside(IndexSet const& set, Index extent, Visit&& visit) {
    IndexSet const own = set.simplified();
    if (own.span().begin > 0) visit(IndexSet(Interval{0, own.span().begin}));
    if (!own.is_interval()) {
        Interval const first = own.segment(0);  // whole, because more blocks than parts follow each other
        Index const block = first.size();
        Index const parts = own.period() / block;
        for (Index i = 0; i < parts; ++i) {
            if (own.span().begin + i * block != first.begin) visit(IndexSet(own.span(), block, parts, i));
        }
    }
    if (own.span().end < extent) visit(IndexSet(Interval{own.span().end, extent}));
}

/// The messages of a product of sets, inside or outside of another one.
class Products {
public:
    /// \pre as many sets on both sides; all within `shape`.
    Products(DynamicShape const& shape, IndexSets const& sets, IndexSets const& others)
        : shape_(shape), sets_(sets), others_(others), forms_(dim_forms(sets.size(), sets.size(), [&](int dim) {
              return !sets[dim].simplified().is_interval() || !others[dim].simplified().is_interval();
          })) {}

    template <class Visit>
    void for_each_inside(Visit&& visit) const {
        Message message;
        inside(0, message, visit);
    }
    template <class Visit>
    void for_each_outside(Visit&& visit) const {
        Message message;
        outside(0, message, visit);
    }

private:
    /// Appends each piece of what `set` and the rank's set share along `dim`, and goes on with `next`.
    template <class Next>
    void each(int dim, IndexSet const& set, Message& message, Next&& next) const {
        int const repeats = message.repeats.size();
        for_each_sent(sets_[dim], set, forms_[dim].levels, [&](Segments const& segments) {
            append(message, segments);
            next();
            message.box.pop_back();
            message.repeats.count = repeats;
        });
    }
    template <class Visit>
    void everything(int dim, Message& message, Visit& visit) const {
        if (dim == sets_.size()) return visit(message);
        each(dim, IndexSet(Interval{0, shape_.extent(dim)}), message, [&] { everything(dim + 1, message, visit); });
    }
    template <class Visit>
    void inside(int dim, Message& message, Visit& visit) const {
        if (dim == sets_.size()) return visit(message);
        each(dim, others_[dim], message, [&] { inside(dim + 1, message, visit); });
    }
    template <class Visit>
    void outside(int dim, Message& message, Visit& visit) const {
        if (dim == sets_.size()) return;
        detail::for_each_outside(others_[dim], shape_.extent(dim), [&](IndexSet const& rest) {
            each(dim, rest, message, [&] { everything(dim + 1, message, visit); });
        });
        each(dim, others_[dim], message, [&] { outside(dim + 1, message, visit); });
    }

    DynamicShape const& shape_;
    IndexSets const& sets_;
    IndexSets const& others_;
    DimForms forms_;
};

/// Whether two products have an element in common.
[[nodiscard]] inline bool meet(IndexSets const& a, IndexSets const& b) {
    for (int dim = 0; dim < a.size(); ++dim) {
        bool met = false;
        for_each_shared(a[dim], b[dim], [&](Segments const&) { met = true; });
        if (!met) return false;
    }
    return true;
}

/// What a relay passes on from layout to layout, and what ranks held before all relays.
struct Passing {
    planning::Layout const& share;
    planning::Layout const& needed;
    planning::Layout const& held;

    /// Calls `visit(message)` for what `giver` passes on to `taker`.
    template <class Visit>
    void for_each(Index giver, Index taker, Visit&& visit) const {
        IndexSets shared;
        IndexSets wanted;
        IndexSets known;
        if (!sets_of(share, giver, shared) || !sets_of(needed, taker, wanted)) return;
        if (sets_of(held, taker, known) && meet(shared, known)) {
            Products(needed.distribution.shape(), shared, known).for_each_outside(visit);
        } else {
            Products(needed.distribution.shape(), shared, shared).for_each_inside(visit);
        }
    }
};

/// One rank's part of the exchange among relays. `axes`: those along which shares lie side by side.
[[nodiscard]] inline Exchange pass_on(Passing const& passing, AxisSubset const& axes, Index rank) {
    Exchange exchange;
    DynamicMesh const& mesh = passing.share.distribution.mesh();
    Index const own = mesh.ordinal(rank);
    if (own < 0) return exchange;
    Index const base = own - axes.ordinal(axes.index(own));
    for (Index i = 0; i < axes.size(); ++i) {
        Index const peer = mesh.rank_at(base + axes.ordinal(i));
        if (peer == rank) continue;
        auto const add = [&](auto& messages) {
            return [&](Message const& message) { add_message(messages, peer, message); };
        };
        passing.for_each(rank, peer, add(exchange.sends));
        passing.for_each(peer, rank, add(exchange.receives));
    }
    return exchange;
}

/// Everything that a rank needs and held before.
inline void keep_held(std::vector<Message>& kept, Passing const& passing, Index rank) {
    kept.clear();
    IndexSets wanted;
    IndexSets known;
    if (!sets_of(passing.needed, rank, wanted) || !sets_of(passing.held, rank, known)) return;
    Products(passing.needed.distribution.shape(), wanted, known).for_each_inside([&](Message const& message) {
        add_message(kept, rank, message);
    });
}

}  // namespace reshard::inline v0::detail
