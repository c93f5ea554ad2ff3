// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/hash_zch.hpp
/// \brief  TorchRec's HashZCH tables, written from its source: ids are probed for inside their bucket, position is
/// slot.
///
/// Nothing here uses the library (pytorch/torchrec, torchrec/modules/hash_mc_modules.py). The hash is any hash: where
/// in its bucket an id lies is nobody's business but the table's.
#pragma once

#include "torchrec.hpp"

namespace demo::torchrec {

/// Z slots in nb buckets, in ranges of whole buckets over ranks. `identities` and `hours` are the ranks' buffers.
struct BucketWorld {
    Id slots = 0;
    Id buckets = 1;
    Id hash_size = INT64_MAX;
    Ids offsets;  ///< of the ranks, and Z
    std::vector<Ids> identities;
    std::vector<std::vector<std::int32_t>> hours;

    BucketWorld(Id total, Id count, Ids cut, Id hash = INT64_MAX)
        : slots(total), buckets(count), hash_size(hash), offsets(std::move(cut)) {
        for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
            identities.emplace_back(static_cast<std::size_t>(offsets[r + 1] - offsets[r]), Id{-1});
            hours.emplace_back(identities.back().size(), -1);
        }
    }

    [[nodiscard]] Id bucket_of(Id raw) const {
        __extension__ using Wide = unsigned __int128;
        Wide const id = static_cast<std::uint64_t>(raw);
        auto const count = static_cast<Wide>(buckets);
        Wide const block = (static_cast<Wide>(hash_size) + count - 1) / count;
        return static_cast<Id>(id < block * count ? id / block : id % count);
    }
    /// The slot of an id, or where it would go; -1 when it is not there and its bucket is full.
    [[nodiscard]] Id probe(Id raw) const {
        Id const size = slots / buckets;
        Id const begin = bucket_of(raw) * size;
        std::uint64_t const hash = (static_cast<std::uint64_t>(raw) ^ (static_cast<std::uint64_t>(raw) >> 31)) *
                                   std::uint64_t{0x9e3779b97f4a7c15};
        for (Id step = 0; step < size; ++step) {
            Id const slot =
                begin + static_cast<Id>((hash + static_cast<std::uint64_t>(step)) % static_cast<std::uint64_t>(size));
            Id const held = at(slot);
            if (held == raw || held == -1) return slot;
        }
        return -1;
    }
    void admit(Id raw, std::int32_t hour) {
        Id const slot = probe(raw);
        if (slot < 0) return;
        auto const [rank, position] = place(slot);
        identities[rank][position] = raw;
        hours[rank][position] = hour;
    }
    /// The row a trainer reads for an id; -1 where it misses.
    [[nodiscard]] Id look_up(Id raw) const {
        Id const slot = probe(raw);
        return slot >= 0 && at(slot) == raw ? slot : -1;
    }
    /// The same table cut elsewhere: every position keeps its slot.
    [[nodiscard]] BucketWorld cut_at(Ids other) const {
        BucketWorld result(slots, buckets, std::move(other), hash_size);
        for (Id slot = 0; slot < slots; ++slot) {
            auto const [from, at_from] = place(slot);
            auto const [to, at_to] = result.place(slot);
            result.identities[to][at_to] = identities[from][at_from];
            result.hours[to][at_to] = hours[from][at_from];
        }
        return result;
    }

private:
    [[nodiscard]] std::pair<std::size_t, std::size_t> place(Id slot) const {
        std::size_t rank = 0;
        while (slot >= offsets[rank + 1]) ++rank;
        return {rank, static_cast<std::size_t>(slot - offsets[rank])};
    }
    [[nodiscard]] Id at(Id slot) const {
        auto const [rank, position] = place(slot);
        return identities[rank][position];
    }
};

}  // namespace demo::torchrec
