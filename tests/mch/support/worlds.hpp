// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/worlds.hpp
/// \brief  A simulated world's columns as a checkpoint hands them to another number of ranks, and rows to tell apart.
#pragma once

#include <mch/support/state.hpp>

#include <vector>

namespace reshard::test::torchrec {

/// The saved columns cut by position: entries [o, o + z) of all shards one behind the other. Segments are the saved
/// ones, as TorchRec loads them.
inline World loaded_by_position(World const& saved, Id count) {
    World result(saved.slots, count, saved.policy, saved.hash_size);
    Ids raw, mapping, counts, last;
    for (Module const& module : saved.ranks) {
        raw.insert(raw.end(), module.raw.begin(), module.raw.end());
        mapping.insert(mapping.end(), module.mapping.begin(), module.mapping.end());
        counts.insert(counts.end(), module.counts.begin(), module.counts.end());
        last.insert(last.end(), module.last.begin(), module.last.end());
    }
    for (Module& module : result.ranks) {
        auto const cut = [&](Ids const& all) {
            return all.empty() ? Ids() : Ids(all.begin() + module.o, all.begin() + module.o + module.z);
        };
        module.raw = cut(raw);
        module.mapping = cut(mapping);
        module.counts = cut(counts);
        module.last = cut(last);
        module.segments = saved.ranks[0].segments;
        module.iteration = saved.ranks[0].iteration;
    }
    return result;
}

/// Every buffer of a world, to see that nothing was written.
inline std::vector<Ids> buffers(World const& world) {
    std::vector<Ids> all;
    for (Module const& m : world.ranks) {
        for (Ids const* column : {&m.raw, &m.mapping, &m.counts, &m.last, &m.segments, &m.iteration})
            all.push_back(*column);
    }
    return all;
}

}  // namespace reshard::test::torchrec
