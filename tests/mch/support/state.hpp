// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/state.hpp
/// \brief  The library's view of a simulated TorchRec world: its table, and the state of each rank over its buffers.
#pragma once

#include <reshard/mch/state.hpp>

#include <mch/support/torchrec.hpp>

namespace reshard::test::torchrec {

inline MchEviction eviction(Policy policy) {
    return policy == Policy::lfu   ? MchEviction::lfu
           : policy == Policy::lru ? MchEviction::lru
                                   : MchEviction::distance_lfu;
}

inline MchTable table_of(World const& world, std::string name = "user") {
    MchTable table =
        mch_table(std::move(name), Mesh{static_cast<Index>(world.ranks.size())}, world.slots, eviction(world.policy));
    table.hash_size = world.hash_size;
    return table;
}

inline DynamicView view_of(Ids& column) {
    return TensorView<Index>(column.data(), Shape{static_cast<Index>(column.size())});
}

inline MchState state_of(Module& module) {
    MchState state;
    state.ids = view_of(module.raw);
    state.slots = view_of(module.mapping);
    if (has_counts(module.policy)) state.metadata.push_back({std::string(mch_counts), view_of(module.counts)});
    if (has_access(module.policy)) state.metadata.push_back({std::string(mch_last_access), view_of(module.last)});
    state.segments = view_of(module.segments);
    state.iteration = view_of(module.iteration);
    return state;
}

}  // namespace reshard::test::torchrec
