// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/planner.hpp
/// \brief  What one rank sends to whom and receives from whom between two grids, in closed form.
/// \depends detail/same_mesh, detail/two_meshes. No communication: both sides derive the same list from rank numbers.
///
/// Cost grows with the pieces a rank's box meets and, where cuts are block-cyclic, with the blocks in one common period
/// instead of all of them; between meshes that share ranks also with the copies of those pieces. Copies on the source
/// side are chosen so that the load is shared (detail/share.hpp); a rank that holds what it needs never asks for it.
#pragma once

#include <reshard/plan/detail/same_mesh.hpp>
#include <reshard/plan/detail/two_meshes.hpp>

namespace reshard::inline v0::detail {

/// One rank's part of the exchange between two grids of the same extents. \pre same mesh unless `across`.
[[nodiscard]] inline Exchange plan_exchange(Grid const& from, Grid const& to, Index rank, bool across) {
    Exchange exchange;
    if (!across && !from.mesh->contains(rank)) return exchange;
    if (across) {
        TwoMeshes(from, to).plan(rank, exchange);
    } else {
        SameMesh(from, to).plan(rank, exchange);
    }
    sort_messages(exchange.sends);
    sort_messages(exchange.receives);
    sort_messages(exchange.kept);
    return exchange;
}

}  // namespace reshard::inline v0::detail
