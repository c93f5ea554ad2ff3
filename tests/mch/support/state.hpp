// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/state.hpp
/// \brief  The library's view of a simulated TorchRec world: its table, and the state of each rank over its buffers.
#pragma once

#include <reshard/mch/state.hpp>

#include "../../../examples/support/hash_zch.hpp"
#include "../../../examples/support/torchrec.hpp"

#include <random>
#include <string>
#include <vector>

namespace reshard::test::torchrec {

// The simulators of TorchRec's tables, which examples show and tests use.
using namespace demo::torchrec;

/// picker(random)(a, b, c) is one of them.
inline auto picker(std::mt19937_64& random) {
    return [&random](auto... choices) {
        std::vector const list{choices...};
        return list[random() % list.size()];
    };
}

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

inline MchTable table_of(BucketWorld const& world, std::string name = "item") {
    MchTable table;
    table.name = std::move(name);
    table.slots = mch_slots(Mesh{static_cast<Index>(world.identities.size())},
                            IndexList(world.offsets.data(), static_cast<Index>(world.offsets.size())));
    table.hash_size = world.hash_size;
    table.buckets = world.buckets;
    table.eviction = MchEviction::none;
    table.layout = MchLayout::buckets;
    table.metadata = {{"metadata", 4, 0xff}};
    return table;
}

inline MchState state_of(BucketWorld& world, std::size_t rank) {
    auto const size = static_cast<Index>(world.identities[rank].size());
    MchState state;
    state.ids = TensorView<Index>(world.identities[rank].data(), Shape{size, 1});
    state.metadata = {{"metadata", TensorView<std::int32_t>(world.hours[rank].data(), Shape{size, 1})}};
    return state;
}

}  // namespace reshard::test::torchrec
