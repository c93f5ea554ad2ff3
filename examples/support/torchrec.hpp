// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/torchrec.hpp
/// \brief  TorchRec's managed collision, written from its source: makes real states, and looks ids up in them. The
/// tests use it, too.
///
/// Nothing here uses the library. Module is one rank's MCHManagedCollisionModule (pytorch/torchrec,
/// torchrec/modules/mc_modules.py); World is a table sharded row-wise over ranks, with the routing of fbgemm's
/// block_bucketize_sparse_features in 128-bit arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace demo::torchrec {

using Id = std::int64_t;
using Ids = std::vector<Id>;
inline constexpr Id no_id = INT64_MAX;

inline constexpr Id all_ranks = -1;

enum class Policy { lfu, lru, distance_lfu };
inline constexpr bool has_counts(Policy policy) { return policy != Policy::lru; }
inline constexpr bool has_access(Policy policy) { return policy != Policy::lfu; }

/// One rank: z slots from global slot o. Members are TorchRec's buffers.
struct Module {
    Id z = 0;
    Id o = 0;
    Policy policy = Policy::lfu;
    Ids raw, mapping, counts, last;
    Ids segments = Ids(1025, -1);
    Ids iteration = Ids(1, 0);
    double exponent = 1.0;
    std::map<Id, std::pair<Id, Id>> history;  ///< since the last eviction: id -> (times seen, iteration last seen)

    Module(Id size, Id offset, Policy p)
        : z(size), o(offset), policy(p), raw(index(size), no_id), mapping(index(size)) {
        std::iota(mapping.begin(), mapping.end(), offset);
        counts.assign(has_counts(p) ? index(size) : 0, 0);
        last.assign(has_access(p) ? index(size) : 0, 0);
    }

    [[nodiscard]] Id live() const {
        return std::count_if(raw.begin(), raw.end(), [](Id id) { return id != no_id; });
    }

    /// One training step over the ids that were routed here.
    void profile(Ids const& ids) {
        ++iteration[0];
        for (Id id : ids) {
            auto& seen = history[id];
            ++seen.first;
            seen.second = iteration[0];
        }
    }

    /// _coalesce_history and _update_and_evict.
    void evict() {
        if (z == 0) return history.clear();
        Ids ids, seen, when;  // torch.unique: ascending
        for (auto const& [id, what] : history) {
            ids.push_back(id);
            seen.push_back(what.first);
            when.push_back(what.second);
        }
        history.clear();
        std::vector<std::size_t> fresh;
        for (std::size_t i : order(ids.size(), [&](std::size_t a, std::size_t b) { return seen[a] > seen[b]; })) {
            std::size_t const at = search(ids[i]);
            if (raw[at] != ids[i]) {
                fresh.push_back(i);
                continue;
            }
            if (has_counts(policy)) counts[at] += seen[i];
            if (has_access(policy)) last[at] = when[i];
        }
        std::size_t const size = index(z);
        if (has_counts(policy)) counts[size - 1] = INT64_MAX;  // the miss row: best of all, never evicted
        if (has_access(policy)) last[size - 1] = iteration[0];
        std::vector<double> scores;
        for (std::size_t i = 0; i < size; ++i) {
            scores.push_back(score(has_counts(policy) ? counts[i] : 0, has_access(policy) ? last[i] : 0));
        }
        for (std::size_t i : fresh) scores.push_back(score(seen[i], when[i]));
        std::vector<std::size_t> const best =
            order(scores.size(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
        std::vector<std::size_t> chosen, evicted;
        for (std::size_t i = 0; i < best.size(); ++i) {
            if (i < size && best[i] >= size) chosen.push_back(fresh[best[i] - size]);
            if (i >= size && best[i] < size) evicted.push_back(best[i]);
        }
        for (std::size_t i = 0; i < evicted.size(); ++i) {
            raw[evicted[i]] = ids[chosen[i]];
            if (has_counts(policy)) counts[evicted[i]] = seen[chosen[i]];
            if (has_access(policy)) last[evicted[i]] = when[chosen[i]];
        }
        sort();
    }

    /// _sort_mch_buffers.
    void sort() {
        std::vector<std::size_t> const by_id =
            order(raw.size(), [&](std::size_t a, std::size_t b) { return raw[a] < raw[b]; });
        for (Ids* column : {&raw, &mapping, &counts, &last}) {
            if (column->empty()) continue;
            Ids sorted;
            for (std::size_t i : by_id) sorted.push_back((*column)[i]);
            *column = sorted;
        }
    }

    /// _mch_remap: the slot of an id, or the miss row.
    [[nodiscard]] Id remap(Id id) const {
        std::size_t const at = search(id);
        return raw[at] == id ? mapping[at] : o + z - 1;
    }
    [[nodiscard]] bool hits(Id id) const { return id != no_id && z > 0 && raw[search(id)] == id; }

private:
    static std::size_t index(Id i) { return static_cast<std::size_t>(i); }
    /// searchsorted(sorted[:-1], id).
    [[nodiscard]] std::size_t search(Id id) const {
        return static_cast<std::size_t>(std::lower_bound(raw.begin(), raw.end() - 1, id) - raw.begin());
    }
    [[nodiscard]] double score(Id count, Id access) const {
        if (policy == Policy::lfu) return static_cast<double>(count);
        double const age = std::pow(static_cast<double>(iteration[0] - access + 1), exponent);
        return policy == Policy::lru ? -age : static_cast<double>(count) / age;
    }
    template <class Before>
    static std::vector<std::size_t> order(std::size_t count, Before const& before) {
        std::vector<std::size_t> places(count);
        std::iota(places.begin(), places.end(), std::size_t{0});
        std::stable_sort(places.begin(), places.end(), before);
        return places;
    }
};

/// A table of Z slots over W ranks.
struct World {
    Id slots = 0;
    Id hash_size = INT64_MAX;
    Policy policy = Policy::lfu;
    std::vector<Module> ranks;

    World(Id total, Id count, Policy p, Id hash = INT64_MAX) : slots(total), hash_size(hash), policy(p) {
        Id const block = (total + count - 1) / count;
        for (Id r = 0; r < count; ++r) {
            Id const begin = std::min(block * r, total);
            ranks.emplace_back(std::min(block, total - begin), begin, p);
        }
        for (Module& module : ranks) {
            for (std::size_t r = 0; r < ranks.size(); ++r) module.segments[r] = ranks[r].o;
            module.segments[ranks.size()] = total;
        }
    }

    /// The rank that looks an id up.
    [[nodiscard]] std::size_t rank_of(Id raw) const {
        __extension__ using Wide = unsigned __int128;
        Wide const id = static_cast<std::uint64_t>(raw);
        Wide const count = ranks.size();
        Wide const block = (static_cast<Wide>(hash_size) + count - 1) / count;
        return static_cast<std::size_t>(id < block * count ? id / block : id % count);
    }
    /// One training step of a batch, on all ranks or on one alone.
    void train(Ids const& batch, Id only = all_ranks) {
        std::vector<Ids> shares(ranks.size());
        for (Id id : batch) shares[rank_of(id)].push_back(id);
        for (std::size_t r = 0; r < ranks.size(); ++r)
            if (takes_part(r, only)) ranks[r].profile(shares[r]);
    }
    void evict(Id only = all_ranks) {
        for (std::size_t r = 0; r < ranks.size(); ++r)
            if (takes_part(r, only)) ranks[r].evict();
    }
    /// The row a trainer reads for an id; -1 where it misses.
    [[nodiscard]] Id look_up(Id raw) const {
        Module const& module = ranks[rank_of(raw)];
        return module.hits(raw) ? module.remap(raw) : -1;
    }
    /// All live ids and their slots, by rank.
    [[nodiscard]] std::vector<std::pair<Id, Id>> live() const {
        std::vector<std::pair<Id, Id>> result;
        for (Module const& module : ranks) {
            for (std::size_t i = 0; i < module.raw.size(); ++i) {
                if (module.raw[i] != no_id) result.emplace_back(module.raw[i], module.mapping[i]);
            }
        }
        return result;
    }

    /// What a load by slot gives on another number of ranks: every entry on the rank that owns its slot, empties with
    /// the slots that are left, ascending, and no metadata; sorted.
    [[nodiscard]] World by_slot_owner(Id count) const {
        World result(slots, count, policy, hash_size);
        for (Module& to : result.ranks) {
            Ids free;
            std::map<Id, std::pair<Module const*, std::size_t>> held;  // by slot
            for (Module const& from : ranks) {
                for (std::size_t i = 0; i < from.raw.size(); ++i) {
                    bool const mine = from.mapping[i] >= to.o && from.mapping[i] < to.o + to.z;
                    if (mine && from.raw[i] != no_id) held[from.mapping[i]] = {&from, i};
                }
            }
            std::size_t at = 0;
            for (auto const& [slot, where] : held) {
                to.raw[at] = where.first->raw[where.second];
                to.mapping[at] = slot;
                if (has_counts(policy)) to.counts[at] = where.first->counts[where.second];
                if (has_access(policy)) to.last[at] = where.first->last[where.second];
                ++at;
            }
            for (Id slot = to.o; slot < to.o + to.z; ++slot) {
                if (held.find(slot) == held.end()) to.mapping[at++] = slot;
            }
            to.iteration = ranks[0].iteration;
            to.sort();
        }
        return result;
    }

private:
    static bool takes_part(std::size_t rank, Id only) { return only == all_ranks || static_cast<Id>(rank) == only; }
};

/// Ids of one kind.
enum class Kind { low, hash63, any };
inline Id random_id(std::mt19937_64& random, Kind kind) {
    std::uint64_t const bits = random();
    if (kind == Kind::low) return static_cast<Id>(bits % 100'000);
    Id const id = static_cast<Id>(kind == Kind::hash63 ? bits >> 1 : bits);
    return id == no_id ? 0 : id;
}

/// A world that has trained: over `intervals` evictions as many new ids are seen as fill the share `fill` of all slots
/// (more than 1 evicts), in random order, and old ones are seen again. Ranks that simulate the same world each train
/// `only` theirs.
inline World trained(std::uint64_t seed, Id slots, Id count, Policy policy, Kind kind = Kind::hash63,
                     double fill = 0.95, int intervals = 64, Id hash_size = INT64_MAX, Id only = all_ranks) {
    World world(slots, count, policy, hash_size);
    std::mt19937_64 random(seed);
    Ids known;
    double const wanted = fill * static_cast<double>(slots) / intervals;
    for (int interval = 0; interval < intervals; ++interval) {
        int const steps = 1 + static_cast<int>(random() % 2);
        auto const total = static_cast<std::size_t>(wanted * (interval + 1));
        Ids batch;
        while (known.size() < total) {
            known.push_back(random_id(random, kind));
            batch.push_back(known.back());
        }
        for (std::size_t i = 0; i < batch.size() / 4 + 1 && !known.empty(); ++i) {
            batch.push_back(known[random() % known.size()]);
        }
        for (int step = 0; step < steps; ++step) world.train(batch, only);
        world.evict(only);
    }
    return world;
}

}  // namespace demo::torchrec
