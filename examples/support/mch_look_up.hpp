// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/mch_look_up.hpp
/// \brief  Asks for ids as a trainer does, and compares the rows that answer with those the ids had.
/// \depends mch_shard.hpp.
///
/// Written on its own: nothing of the library's routing, merging or validation is used, only the buffers it left. One
/// pass over the ids and one over the shard.
#pragma once

#include "mch_shard.hpp"

#include <algorithm>

namespace demo {

/// An id that has a row, and the row, as MchShard::row() tells it from others.
struct KnownId {
    std::int64_t id = 0;
    std::uint64_t row = 0;
};

/// All ids of a shard.
inline std::vector<KnownId> known_ids(MchShard const& shard) {
    std::vector<KnownId> known;
    bool const sorted = shard.table().layout == reshard::MchLayout::sorted;
    for (std::size_t i = 0; i < shard.ids().size(); ++i) {
        if (shard.ids()[i] == (sorted ? torchrec::no_id : -1)) continue;
        auto const place = sorted ? shard.slots()[i] - shard.first() : static_cast<reshard::Index>(i);
        known.push_back({shard.ids()[i], shard.row(place)});
    }
    return known;
}

/// What one rank answers to the ids that a trainer asks it for.
struct Answers {
    std::int64_t found = 0;            ///< with the row the id had
    std::int64_t wrong = 0;            ///< with another id's
    std::vector<std::int64_t> missed;  ///< no longer there: the row of misses answers
};

/// The rank that a trainer of W ranks asks for an id: fbgemm's block_bucketize_sparse_features with a bucket per rank.
inline int asked_rank(std::int64_t raw, std::int64_t hash_size, int ranks) {
    auto const id = static_cast<std::uint64_t>(raw);
    auto const count = static_cast<std::uint64_t>(ranks);
    std::uint64_t const block = (static_cast<std::uint64_t>(hash_size) - 1) / count + 1;
    return static_cast<int>(id < block * count ? id / block : id % count);
}

/// `known` of all ranks, ascending by id.
inline Answers look_up(std::vector<KnownId> const& known, MchShard const& shard) {
    Answers answers;
    reshard::MchTable const& table = shard.table();
    auto const ranks = static_cast<int>(table.slots.mesh().size());
    auto const check = [&](KnownId const& one, std::int64_t place) {
        bool const own = place >= 0 && place < shard.size() && shard.row(place) == one.row;
        ++(own ? answers.found : answers.wrong);
    };
    if (table.layout == reshard::MchLayout::sorted) {
        std::size_t at = 0;  // searchsorted(ids[:-1]), for ids that ascend
        for (KnownId const& one : known) {
            if (asked_rank(one.id, table.hash_size, ranks) != shard.rank()) continue;
            while (at + 1 < shard.ids().size() && shard.ids()[at] < one.id) ++at;
            if (at < shard.ids().size() && shard.ids()[at] == one.id) {
                check(one, shard.slots()[at] - shard.first());
            } else {
                answers.missed.push_back(one.id);
            }
        }
        if (!std::is_sorted(shard.ids().begin(), shard.ids().end())) answers.wrong += answers.found;  // none is found
        return answers;
    }
    torchrec::BucketWorld world(table.size(), table.buckets, table.offsets(), table.hash_size);
    if (shard.size() == 0) return answers;
    world.identities[static_cast<std::size_t>(shard.rank())] = shard.ids();
    std::int64_t const bucket_slots = table.size() / table.buckets;
    for (KnownId const& one : known) {
        std::int64_t const begin = world.bucket_of(one.id) * bucket_slots - shard.first();
        if (begin < 0 || begin >= shard.size()) continue;
        std::int64_t const slot = world.look_up(one.id);
        if (slot >= 0) {
            check(one, slot - shard.first());
        } else {
            answers.missed.push_back(one.id);
        }
    }
    return answers;
}

}  // namespace demo
