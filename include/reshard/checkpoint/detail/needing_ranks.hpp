// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/needing_ranks.hpp
/// \brief  Which ranks need something of a box, without asking every rank.
/// \depends checkpoint/detail/load_match.hpp. No I/O, no communication.
#pragma once

#include <reshard/checkpoint/detail/load_match.hpp>

namespace reshard::inline v0::detail {

/// Looks along the axes that cut a dimension, one dimension after the other, and goes on only where the box is met: so
/// it takes about as many steps as those axes have coordinates, and one for each rank that is found.
template <class Visit>
class NeedingRanks {
public:
    NeedingRanks(WantedExtent const& extent, Box const& box, DynamicDistribution const& to, Visit& visit)
        : extent_(extent), box_(box), to_(to), visit_(visit), cutting_(static_cast<std::size_t>(box.rank())) {
        DynamicMesh const& mesh = to.mesh();
        for (int axis = 0; axis < mesh.axes(); ++axis) {
            coordinates_.push_back(0);
            PlacementForm const& placement = to.signature()[axis];
            if (placement.is_shard()) {
                cutting_[static_cast<std::size_t>(placement.dim())].push_back(axis);
            } else if (axis_change(Placement::replicate(), placement) != AxisChange::fill) {
                free_.push_back(axis);  // of a Partial with identities only coordinate 0 has values
            }
        }
    }
    /// False: the visitor has had enough.
    bool run() { return look(0); }

private:
    bool look(int dim) {
        if (dim == box_.rank()) return go_through(free_, [&] { return found(); });
        return go_through(cutting_[static_cast<std::size_t>(dim)], [&] {
            IndexSet const set = to_.index_set(coordinates_, dim);
            return set.local_index(box_.end(dim)) == set.local_index(box_.begin(dim)) || look(dim + 1);
        });
    }
    /// Does it for all coordinates along the axes, while it returns true.
    template <class Do>
    bool go_through(InlineList<int, max_axes> const& axes, Do&& work) {
        Index choices = 1;
        for (int axis : axes) choices *= to_.mesh().extent(axis);
        for (Index choice = 0; choice < choices; ++choice) {
            Index rest = choice;
            for (int i = axes.size() - 1; i >= 0; --i) {
                Index const extent = to_.mesh().extent(axes[i]);
                coordinates_[axes[i]] = rest % extent;
                rest /= extent;
            }
            if (!work()) return false;
        }
        return true;
    }
    bool found() {
        DynamicMesh const& mesh = to_.mesh();
        Index ordinal = 0;
        for (int axis = 0; axis < mesh.axes(); ++axis) ordinal = ordinal * mesh.extent(axis) + coordinates_[axis];
        Index const rank = mesh.rank_at(ordinal);
        return !extent_.is_for(mesh, rank) || visit_(rank);
    }

    WantedExtent const& extent_;
    Box const& box_;
    DynamicDistribution const& to_;
    Visit& visit_;
    std::vector<InlineList<int, max_axes>> cutting_;  ///< per dimension
    InlineList<int, max_axes> free_;
    Indices coordinates_;
};

/// visit(rank) for each rank that needs something of a box of an extent, each once, while it returns true.
template <class Visit>
void for_each_needing(WantedExtent const& extent, Box const& box, DynamicDistribution const& to, Visit&& visit) {
    static_cast<void>(NeedingRanks(extent, box, to, visit).run());
}

}  // namespace reshard::inline v0::detail
