// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/oracle.hpp
/// \brief  What redistribute() has to do to a table, written down sequentially over the shards of all ranks.
///
/// Nothing here uses the library. The rules are TorchRec's (torchrec/modules/mc_modules.py, fbgemm's
/// block_bucketize_sparse_features) and, where slots are given anew, those that redistribute() documents. Every entry
/// is looked at a constant number of times; sorting and maps stand in for the library's merges and bitmaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace reshard::test::reference {

using Id = std::int64_t;
using Ids = std::vector<Id>;

enum class Policy { none, lfu, lru, distance_lfu };
enum class Mode { route, slot_owner_keep, slot_owner_drop };

struct Column {
    std::string name;
    Id bytes = 8;
    std::uint8_t empty = 0;
};

/// What all ranks know. Offsets: of the shards, and Z.
struct Table {
    Ids saved_offsets;
    Ids offsets;
    Id hash_size = INT64_MAX;
    Id buckets = 1;  ///< of the current table
    bool bucketed = false;
    Policy policy = Policy::lfu;
    std::vector<Column> columns;

    [[nodiscard]] std::size_t parts() const { return offsets.size() - 1; }
    [[nodiscard]] Id slots() const { return offsets.back(); }
    [[nodiscard]] Id empty() const { return bucketed ? -1 : INT64_MAX; }
    [[nodiscard]] std::size_t owner(Id slot) const {
        return static_cast<std::size_t>(std::upper_bound(offsets.begin(), offsets.end(), slot) - offsets.begin() - 1);
    }
    /// The bucket an id falls into.
    [[nodiscard]] Id bucket(Id raw) const {
        __extension__ using Wide = unsigned __int128;
        Wide const id = static_cast<std::uint64_t>(raw);
        auto const nb = static_cast<Wide>(buckets);
        Wide const block = (static_cast<Wide>(hash_size) + nb - 1) / nb;
        return static_cast<Id>(id < block * nb ? id / block : id % nb);
    }
    /// The part that looks an id up.
    [[nodiscard]] std::size_t route(Id raw) const {
        if (bucketed) return owner(bucket(raw) * (slots() / buckets));
        return static_cast<std::size_t>(bucket(raw) / (buckets / static_cast<Id>(parts())));
    }
};

/// One rank's buffers.
struct ShardBuffers {
    Ids raw, slots;
    std::vector<std::vector<std::uint8_t>> metadata;
    Ids segments, iteration;

    [[nodiscard]] friend bool operator==(ShardBuffers const&, ShardBuffers const&) = default;
};

struct Change {
    Id live_before = 0, live_after = 0, sent = 0, received = 0, unreachable = 0, unpinned = 0;
    Ids left_out, evicted, freed;
    std::vector<std::pair<Id, Id>> moves;

    [[nodiscard]] friend bool operator==(Change const&, Change const&) = default;
};

struct Outcome {
    std::vector<ShardBuffers> shards;
    std::vector<Change> changes;
    Id bytes = 0;     ///< of entries that change ranks, packed: other widths than 8 padded to 16 per column and block
    Id messages = 0;  ///< pairs of ranks with entries between them
};

/// Saved columns cut by position.
inline std::vector<ShardBuffers> loaded_by_position(Table const& table, std::vector<ShardBuffers> const& saved) {
    ShardBuffers all;
    all.metadata.resize(table.columns.size());
    for (ShardBuffers const& shard : saved) {
        all.raw.insert(all.raw.end(), shard.raw.begin(), shard.raw.end());
        all.slots.insert(all.slots.end(), shard.slots.begin(), shard.slots.end());
        for (std::size_t c = 0; c < all.metadata.size(); ++c) {
            all.metadata[c].insert(all.metadata[c].end(), shard.metadata[c].begin(), shard.metadata[c].end());
        }
    }
    std::vector<ShardBuffers> result(table.parts());
    for (std::size_t p = 0; p < result.size(); ++p) {
        auto const cut = [&](auto const& column, Id width) {
            using List = std::decay_t<decltype(column)>;
            if (column.empty()) return List();
            return List(column.begin() + table.offsets[p] * width, column.begin() + table.offsets[p + 1] * width);
        };
        result[p].raw = cut(all.raw, 1);
        result[p].slots = cut(all.slots, 1);
        for (std::size_t c = 0; c < all.metadata.size(); ++c) {
            result[p].metadata.push_back(cut(all.metadata[c], table.columns[c].bytes));
        }
        result[p].segments = saved[0].segments;
        result[p].iteration = saved[0].iteration;
    }
    return result;
}

namespace detail {

struct Entry {
    Id raw = 0;
    Id slot = 0;
    std::size_t from = 0;  ///< rank and position it was loaded at
    std::size_t at = 0;
    Id counts = 0;  ///< if the policy counts
};

/// A score as a fraction, so that none is rounded.
struct Score {
    Id number = 0;
    Id age = 1;
    [[nodiscard]] bool operator<(Score const& other) const {
        __extension__ using Wide = __int128;
        return static_cast<Wide>(number) * other.age < static_cast<Wide>(other.number) * age;
    }
};

inline Id number_in(Table const& table, ShardBuffers const& shard, std::string const& name, std::size_t at) {
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
        if (table.columns[c].name != name) continue;
        Id value = 0;
        std::memcpy(&value, shard.metadata[c].data() + at * 8, 8);
        return value;
    }
    throw std::logic_error("oracle: no column " + name);
}

/// Lowest goes first: counts; the iteration of the last access; counts over age.
inline bool counts(Table const& table) { return table.policy == Policy::lfu || table.policy == Policy::distance_lfu; }
inline Score score(Table const& table, ShardBuffers const& shard, Entry const& entry, Id iteration) {
    bool const access = table.policy == Policy::lru || table.policy == Policy::distance_lfu;
    Id const age = access ? std::max<Id>(iteration - number_in(table, shard, "last_access_iter", entry.at) + 1, 1) : 1;
    if (table.policy == Policy::lru) return {-age, 1};
    return {entry.counts, age};
}

}  // namespace detail

/// \pre `loaded` is sound but for what redistribute() repairs: ids and slots are distinct, slots in their saved shards.
inline Outcome redistribute(Table const& table, std::vector<ShardBuffers> const& loaded, Mode mode) {
    using namespace detail;
    std::size_t const parts = table.parts();
    Outcome outcome;
    outcome.changes.resize(parts);
    outcome.shards = loaded;
    Id iteration = 0;
    for (ShardBuffers const& shard : loaded)
        if (!shard.iteration.empty()) iteration = std::max(iteration, shard.iteration[0]);

    std::vector<std::vector<Entry>> arriving(parts);
    for (std::size_t r = 0; r < parts; ++r) {
        ShardBuffers const& shard = loaded[r];
        Change& change = outcome.changes[r];
        std::vector<Id> entries_to(parts, 0);
        for (std::size_t i = 0; i < shard.raw.size(); ++i) {
            if (shard.raw[i] == table.empty()) continue;
            ++change.live_before;
            if (table.bucketed) {  // positions are slots: they stay, and are found in the bucket they are of
                Id const slot = table.offsets[r] + static_cast<Id>(i);
                ++change.live_after;
                change.unreachable += table.bucket(shard.raw[i]) != slot / (table.slots() / table.buckets) ? 1 : 0;
                continue;
            }
            std::size_t const asked = table.route(shard.raw[i]);
            std::size_t const to = mode == Mode::route ? asked : table.owner(shard.slots[i]);
            if (mode == Mode::slot_owner_drop && asked != to) {
                change.left_out.push_back(shard.raw[i]);
                continue;
            }
            Id const counted = counts(table) ? number_in(table, shard, "counts", i) : 0;
            arriving[to].push_back({shard.raw[i], shard.slots[i], r, i, counted});
            ++entries_to[to];
        }
        for (std::size_t to = 0; to < parts; ++to) {
            if (to == r || entries_to[to] == 0) continue;
            change.sent += entries_to[to];
            outcome.changes[to].received += entries_to[to];
            ++outcome.messages;
            outcome.bytes += 16 * entries_to[to];
            for (Column const& column : table.columns) {
                Id const bytes = column.bytes * entries_to[to];
                outcome.bytes += column.bytes == 8 ? bytes : (bytes + 15) / 16 * 16;
            }
        }
    }
    if (table.bucketed) return outcome;

    for (std::size_t p = 0; p < parts; ++p) {
        std::vector<Entry>& entries = arriving[p];
        Change& change = outcome.changes[p];
        ShardBuffers& shard = outcome.shards[p];
        Id const begin = table.offsets[p];
        Id const z = table.offsets[p + 1] - begin;
        Id const room = std::max<Id>(z - 1, 0);  // the last slot is the row of misses

        // TorchRec gives the last position of a shard a count that nothing surpasses; in a full shard that is an id's,
        // which would stay forever. The largest other count takes its place.
        Id largest = 0;
        for (Entry const& e : entries) largest = std::max(largest, e.counts == INT64_MAX ? 0 : e.counts);
        for (Entry& e : entries) {
            if (e.counts != INT64_MAX) continue;
            e.counts = largest;
            ++change.unpinned;
        }

        if (static_cast<Id>(entries.size()) > room) {
            std::vector<std::pair<Score, std::size_t>> scores;
            for (std::size_t i = 0; i < entries.size(); ++i) {
                scores.push_back({score(table, loaded[entries[i].from], entries[i], iteration), i});
            }
            std::sort(scores.begin(), scores.end(), [&](auto const& a, auto const& b) {
                if (a.first < b.first || b.first < a.first) return a.first < b.first;
                return entries[a.second].raw > entries[b.second].raw;  // of equal ones the largest id
            });
            scores.resize(entries.size() - static_cast<std::size_t>(room));
            std::unordered_set<Id> gone;
            for (auto const& one : scores) {
                change.evicted.push_back(entries[one.second].raw);
                gone.insert(entries[one.second].raw);
            }
            entries.erase(
                std::remove_if(entries.begin(), entries.end(), [&](Entry const& e) { return gone.count(e.raw) != 0; }),
                entries.end());
        }
        std::sort(entries.begin(), entries.end(), [](Entry const& a, Entry const& b) { return a.raw < b.raw; });

        auto const at_home = [&](Entry const& e) { return e.slot >= begin && e.slot < begin + room; };
        std::vector<bool> taken(static_cast<std::size_t>(z), false);
        for (Entry const& e : entries)
            if (at_home(e)) taken[static_cast<std::size_t>(e.slot - begin)] = true;
        Id free = begin;
        auto const next_free = [&] {
            while (free < begin + room && taken[static_cast<std::size_t>(free - begin)]) ++free;
            return free++;
        };
        shard.raw.clear();
        shard.slots.clear();
        for (auto& column : shard.metadata) column.clear();
        for (Entry const& e : entries) {
            Id slot = e.slot;
            if (!at_home(e)) {
                slot = next_free();
                change.moves.push_back({e.slot, slot});
            }
            shard.raw.push_back(e.raw);
            shard.slots.push_back(slot);
            change.unreachable += table.route(e.raw) != p ? 1 : 0;
            for (std::size_t c = 0; c < table.columns.size(); ++c) {
                auto const bytes = static_cast<std::size_t>(table.columns[c].bytes);
                auto const* const from = loaded[e.from].metadata[c].data() + e.at * bytes;
                shard.metadata[c].insert(shard.metadata[c].end(), from, from + bytes);
                if (counts(table) && table.columns[c].name == "counts") {
                    std::memcpy(shard.metadata[c].data() + shard.metadata[c].size() - 8, &e.counts, 8);
                }
            }
        }
        // The row of misses is that of the saved shard as far along; of shards without slots, of the next before.
        Ids const& saved = table.saved_offsets;
        if (z != 0) {
            std::size_t const reached = p * (saved.size() - 1) / parts;
            std::size_t from = 0;
            while (saved[from + 1] == 0) ++from;  // the first that has slots
            for (std::size_t q = from; q <= reached; ++q)
                if (saved[q] != saved[q + 1]) from = q;
            if (saved[from + 1] != begin + z) change.moves.push_back({saved[from + 1] - 1, begin + z - 1});
        }
        change.live_after = static_cast<Id>(entries.size());
        for (Id i = change.live_after; i < z; ++i) {
            shard.raw.push_back(INT64_MAX);
            shard.slots.push_back(next_free());  // beyond the others: the row of misses
        }
        // Rows begin anew unless the shard has the slots it was saved with, and every id that had one of them.
        bool all_here = p + 1 < saved.size() && saved[p] == begin && saved[p + 1] == begin + z;
        std::unordered_set<Id> const here(shard.raw.begin(), shard.raw.end());
        for (Id const raw : loaded[p].raw) all_here = all_here && (raw == INT64_MAX || here.count(raw) != 0);
        for (Id i = change.live_after; !all_here && i < z - 1; ++i)
            change.freed.push_back(shard.slots[static_cast<std::size_t>(i)]);
        for (std::size_t c = 0; c < table.columns.size(); ++c) {
            shard.metadata[c].resize(static_cast<std::size_t>(z * table.columns[c].bytes), table.columns[c].empty);
        }
        for (Id& one : shard.iteration) one = iteration;
        for (std::size_t i = 0; i < shard.segments.size(); ++i) {
            shard.segments[i] = i < table.offsets.size() ? table.offsets[i] : -1;
        }
    }
    return outcome;
}

}  // namespace reshard::test::reference
