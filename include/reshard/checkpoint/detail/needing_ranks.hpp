// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/needing_ranks.hpp
/// \brief  Which ranks need something of a box, without asking every rank.
/// \depends checkpoint/detail/load_match.hpp. No I/O, no communication.
#pragma once

#include <reshard/checkpoint/detail/load_match.hpp>

namespace reshard::inline v0::detail {

/// visit(rank) for each rank that needs something of a box of an extent, each once, while it returns true. Parts that
/// the box meets are found by division, as the planner finds them: it takes a step for each rank that is found.
template <class Visit>
void for_each_needing(WantedExtent const& extent, Box const& box, DynamicDistribution const& to, Visit&& visit) {
    Grid const grid(to);
    unsigned with_copies = 0;  // of a Partial with identities only coordinate 0 has values
    for (int axis = 0; axis < to.mesh().axes(); ++axis) {
        PlacementForm const& placement = to.signature()[axis];
        bool const has_copies =
            !placement.is_shard() && axis_change(Placement::replicate(), placement) != AxisChange::fill;
        if (has_copies) with_copies |= 1U << static_cast<unsigned>(axis);
    }
    AxisSubset const copies(to.mesh(), with_copies);
    bool more = true;
    auto const look = [&](auto const& self, int dim, Index ordinal) -> void {
        if (dim != box.rank()) {
            grid.for_each_part(dim, IndexSet(box[dim]), [&](IndexSet const& part, Index along_dim) {
                bool const meets = part.local_index(box.begin(dim)) != part.local_index(box.end(dim));
                if (more && meets) self(self, dim + 1, ordinal + along_dim);
            });
            return;
        }
        for (Index i = 0; i < copies.size() && more; ++i) {
            Index const rank = to.mesh().rank_at(ordinal + copies.ordinal(i));
            if (extent.is_for(to.mesh(), rank)) more = visit(rank);
        }
    };
    look(look, 0, 0);
}

}  // namespace reshard::inline v0::detail
