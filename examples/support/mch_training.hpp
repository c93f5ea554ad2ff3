// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/mch_training.hpp
/// \brief  Managed-collision tables as training leaves them on the ranks of a simulated world.
/// \depends mch_shard.hpp.
#pragma once

#include "mch_shard.hpp"

namespace demo {

inline std::vector<std::string> const policy_names{"LFU", "LRU", "DistanceLFU"};  // as torchrec::Policy lists them

/// \pre one of these names.
inline torchrec::Policy policy_of(std::string const& name) {
    int policy = 0;
    while (policy_names[static_cast<std::size_t>(policy)] != name) ++policy;
    return static_cast<torchrec::Policy>(policy);
}

struct IdKind {
    torchrec::Kind kind;
    char const* name;
    char const* text;
};
inline constexpr IdKind id_kinds[] = {{torchrec::Kind::hash63, "uniform", "ids of 63 bits"},
                                      {torchrec::Kind::low, "small", "ids below 100000"},
                                      {torchrec::Kind::any, "signed", "ids of 64 bits"}};

struct MchTraining {
    int from = 2;  ///< ranks
    reshard::Index slots = 24576;
    torchrec::Policy policy = torchrec::Policy::lfu;
    torchrec::Kind ids = torchrec::Kind::hash63;
    int intervals = 64;  ///< evictions in which ids are admitted
    double fill = 0.95;  ///< ids that are seen, as a share of the slots
    std::uint64_t seed = 1;
};

/// TorchRec's MCHManagedCollisionModule: ids are admitted over many evictions, in random order, so that slots know
/// nothing of ids. Each rank trains its own shard.
inline MchShard train_sorted(MchTraining const& training, std::string name, int rank) {
    using namespace reshard;
    MchEviction const eviction = training.policy == torchrec::Policy::lfu   ? MchEviction::lfu
                                 : training.policy == torchrec::Policy::lru ? MchEviction::lru
                                                                            : MchEviction::distance_lfu;
    MchShard shard(mch_table(std::move(name), Mesh{training.from}, training.slots, eviction), rank);
    if (rank >= training.from) return shard;
    auto const world = torchrec::trained(training.seed, training.slots, training.from, training.policy, training.ids,
                                         training.fill, training.intervals, shard.table().hash_size, rank);
    shard.fill(world.ranks[static_cast<std::size_t>(rank)]);
    return shard;
}

/// TorchRec's default: most numbers of ranks divide it.
inline constexpr reshard::Index hash_zch_buckets = 768;

/// Slots cut over ranks where buckets end, as evenly as that goes.
inline reshard::DynamicDistribution whole_buckets(int ranks, reshard::Index slots, reshard::Index buckets) {
    using namespace reshard;
    std::vector<Index> offsets;
    for (Index r = 0; r <= ranks; ++r) offsets.push_back(r * buckets / ranks * (slots / buckets));
    return mch_slots(Mesh{ranks}, offsets);
}

/// TorchRec's HashZchManagedCollisionModule: an id stays in its bucket, and ranks hold whole buckets.
inline MchShard train_buckets(MchTraining const& training, std::string name, int rank) {
    using namespace reshard;
    MchTable table;
    table.name = std::move(name);
    Index const slots = detail::larger<Index>(training.slots / hash_zch_buckets, 1) * hash_zch_buckets;
    table.slots = whole_buckets(training.from, slots, hash_zch_buckets);
    table.buckets = hash_zch_buckets;
    table.eviction = MchEviction::none;
    table.layout = MchLayout::buckets;
    table.metadata = {{"metadata", 4, 0xff}};
    MchShard shard(table, rank);
    if (rank >= training.from) return shard;
    torchrec::BucketWorld world(slots, table.buckets, table.offsets(), table.hash_size);
    std::mt19937_64 random(training.seed);
    auto const ids = static_cast<Index>(training.fill * static_cast<double>(slots));
    for (Index i = 0; i < ids; ++i) {
        world.admit(torchrec::random_id(random, training.ids), static_cast<std::int32_t>(i * training.intervals / ids));
    }
    shard.fill(world.identities[static_cast<std::size_t>(rank)], world.hours[static_cast<std::size_t>(rank)]);
    return shard;
}

}  // namespace demo
