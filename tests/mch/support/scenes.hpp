// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/scenes.hpp
/// \brief  Random tables as a checkpoint hands them to other ranks, for the oracle and for the library.
#pragma once

#include <reshard/mch/redistribute.hpp>

#include <mch/support/oracle.hpp>
#include <mch/support/replay.hpp>
#include <support/random.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <unordered_set>
#include <vector>

namespace reshard::test::reference {

enum class Fill { nothing, one_id, half, all_but_one, all };
enum class IdKind { small, hash63, any };

inline Ids chunk_offsets(Id slots, Id parts) {
    Id const block = (slots + parts - 1) / parts;
    Ids offsets;
    for (Id p = 0; p <= parts; ++p) offsets.push_back(std::min(block * p, slots));
    return offsets;
}

/// What a scene is made of; the rest is drawn.
struct Setup {
    Id from = 1;
    Id to = 1;
    Id slots = 10;
    Fill fill = Fill::half;
    IdKind kind = IdKind::hash63;
    int columns = 2;
    bool one_destination = false;  ///< all ids are looked up on one of the current ranks
    bool plain = false;            ///< TorchRec's cuts and default hash size, sound shards
};

inline std::string to_string(Setup const& s) {
    return errors::concat("(", s.from, " -> ", s.to, ") ", s.slots, " slots, fill ", static_cast<int>(s.fill),
                          ", kind ", static_cast<int>(s.kind), ", ", s.columns, " columns",
                          s.one_destination ? ", one destination" : "", s.plain ? ", plain" : "");
}

struct Scene {
    Table table;
    Id saved_buckets = 1;
    std::vector<ShardBuffers> saved;
    std::vector<ShardBuffers> loaded;
};

namespace detail {

inline void draw_columns(Table& table, int count, Random& random) {
    Column const counts{"counts"};
    Column const access{"last_access_iter"};
    Column const a{"a", random.pick(std::vector<Id>{1, 4, 12}), random.pick(std::vector<std::uint8_t>{0, 0xff})};
    Column const b{"b", random.pick(std::vector<Id>{1, 2, 8, 16}), 0};
    Column const c{"c", 3, 0xff};
    struct Choice {
        Policy policy;
        std::vector<Column> columns;
    };
    std::vector<Choice> const choices[] = {
        {{Policy::none, {}}},
        {{Policy::lfu, {counts}}, {Policy::lru, {access}}, {Policy::none, {a}}},
        {{Policy::distance_lfu, {counts, access}}, {Policy::lfu, {a, counts}}, {Policy::none, {a, b}}},
        {{Policy::distance_lfu, {access, a, counts}}, {Policy::lru, {a, access, b}}, {Policy::none, {a, b, c}}},
    };
    Choice const& choice = random.pick(choices[count]);
    table.policy = choice.policy;
    table.columns = choice.columns;
}

inline Ids draw_offsets(Id slots, Id parts, bool plain, Random& random) {
    if (plain || random.chance(80)) return chunk_offsets(slots, parts);
    Ids offsets{0, slots};
    while (static_cast<Id>(offsets.size()) <= parts) offsets.push_back(random.between(0, slots));
    std::sort(offsets.begin(), offsets.end());
    return offsets;
}

/// An id of a kind, looked up by one part if that can be arranged.
inline Id draw_id(Table const& table, Setup const& setup, Id part, Random& random) {
    std::uint64_t bits = random.engine()();
    if (setup.kind == IdKind::small) bits %= static_cast<std::uint64_t>(8 * setup.slots + 100);
    if (setup.kind == IdKind::hash63) bits >>= 1;
    if (setup.one_destination) {
        auto const nb = static_cast<std::uint64_t>(table.buckets);
        std::uint64_t const block = (static_cast<std::uint64_t>(table.hash_size) + nb - 1) / nb;
        std::uint64_t const local = nb / table.parts();
        if (block > static_cast<std::uint64_t>(16 * setup.slots)) {
            bits = bits % (block * local) + block * local * static_cast<std::uint64_t>(part);
        } else {  // beyond the blocks, where the remainder says
            bits = bits % (std::uint64_t{1} << 40) + (std::uint64_t{1} << 40);
            bits += block * nb;
            bits = bits - bits % nb + local * static_cast<std::uint64_t>(part);
        }
    }
    return static_cast<Id>(bits) == INT64_MAX ? 0 : static_cast<Id>(bits);
}

inline void put(std::vector<std::uint8_t>& column, std::size_t at, Id value) {
    std::memcpy(column.data() + at * 8, &value, 8);
}

}  // namespace detail

inline Scene draw_scene(Setup const& setup, Random& random) {
    using namespace detail;
    Scene scene;
    Table& table = scene.table;
    table.saved_offsets = draw_offsets(setup.slots, setup.from, setup.plain, random);
    table.offsets = draw_offsets(setup.slots, setup.to, setup.plain, random);
    Id const per_part = setup.plain || random.chance(80) ? 1 : 3;
    table.buckets = setup.to * per_part;
    scene.saved_buckets = setup.from * per_part;
    if (!setup.plain && random.chance(25)) table.hash_size = random.pick(std::vector<Id>{1, 1000, Id{1} << 62});
    draw_columns(table, setup.columns, random);
    Id const iteration = random.chance(10) ? 0 : random.between(1, 1000);
    Ids segments(static_cast<std::size_t>(std::max(setup.from, setup.to) + 1), -1);
    if (random.chance(50)) segments.assign(1025, -1);
    std::copy(table.saved_offsets.begin(), table.saved_offsets.end(), segments.begin());
    bool const uneven_counts = random.chance(50);
    bool const stale = !setup.plain && random.chance(30);
    Id const part = random.between(0, setup.to - 1);
    std::vector<std::size_t> filled;  // shards that may have the one id
    for (std::size_t p = 0; p + 1 < table.saved_offsets.size(); ++p)
        if (table.saved_offsets[p] != table.saved_offsets[p + 1]) filled.push_back(p);
    std::size_t const lucky = random.pick(filled);
    std::unordered_set<Id> used;
    for (std::size_t p = 0; p + 1 < table.saved_offsets.size(); ++p) {
        Id const begin = table.saved_offsets[p];
        Id const z = table.saved_offsets[p + 1] - begin;
        auto const size = static_cast<std::size_t>(z);
        Id live = setup.fill == Fill::half ? z / 2 : setup.fill == Fill::all_but_one ? z - 1 : z;
        if (setup.fill == Fill::nothing) live = 0;
        if (setup.fill == Fill::one_id) live = p == lucky ? 1 : 0;
        ShardBuffers shard;
        for (Id tries = 0; static_cast<Id>(shard.raw.size()) < live && tries < 8 * live; ++tries) {
            Id const id = draw_id(table, setup, part, random);
            if (used.insert(id).second) shard.raw.push_back(id);
        }
        std::sort(shard.raw.begin(), shard.raw.end());
        auto const ids = shard.raw.size();
        shard.raw.resize(size, INT64_MAX);
        shard.slots.resize(size);
        std::iota(shard.slots.begin(), shard.slots.end(), begin);
        bool const reserved_live = ids == size || (!setup.plain && random.chance(10));
        std::size_t const shuffled = reserved_live || size == 0 ? size : size - 1;
        for (std::size_t i = 0; i < ids; ++i) {
            auto const with = random.between(static_cast<Id>(i), static_cast<Id>(shuffled) - 1);
            std::swap(shard.slots[i], shard.slots[static_cast<std::size_t>(with)]);
        }
        std::sort(shard.slots.begin() + static_cast<std::ptrdiff_t>(ids), shard.slots.end());
        for (Column const& column : table.columns) {
            std::vector<std::uint8_t> bytes(size * static_cast<std::size_t>(column.bytes), column.empty);
            bool const count = column.name == "counts";
            bool const access = column.name == "last_access_iter";
            for (std::size_t i = 0; i < size; ++i) {
                bool const miss_row = i + 1 == size;
                if (i >= ids && !stale && !miss_row) continue;
                if (count) {
                    bool const pinned = i >= ids || (miss_row && random.chance(80)) || (stale && random.chance(2));
                    put(bytes, i, pinned ? INT64_MAX : random.between(0, uneven_counts ? 1000000 : 3));
                } else if (access) {
                    put(bytes, i, i >= ids ? iteration : random.between(0, iteration));
                } else {
                    for (Id b = 0; b < column.bytes; ++b) {
                        bytes[i * static_cast<std::size_t>(column.bytes) + static_cast<std::size_t>(b)] =
                            static_cast<std::uint8_t>(random.engine()());
                    }
                }
            }
            shard.metadata.push_back(std::move(bytes));
        }
        shard.segments = segments;
        shard.iteration = {iteration};
        scene.saved.push_back(std::move(shard));
    }
    scene.loaded = loaded_by_position(table, scene.saved);
    if (random.chance(10)) {  // a rank that started anew
        scene.loaded[static_cast<std::size_t>(random.between(0, setup.to - 1))].iteration[0] = 0;
        if (setup.to == 1) scene.loaded[0].iteration[0] = iteration;
    }
    return scene;
}

// ---- The library's view
// ----------------------------------------------------------------------------------------------

inline DynamicDistribution distribution_of(Ids const& offsets) {
    auto const parts = static_cast<Id>(offsets.size()) - 1;
    if (offsets == chunk_offsets(offsets.back(), parts)) return mch_slots(Mesh{parts}, offsets.back());
    return mch_slots(Mesh{parts}, IndexList(offsets.data(), parts + 1));
}

inline MchTable library_table(Table const& table, Ids const& offsets, Id buckets) {
    MchTable result;
    result.name = "user";
    result.slots = distribution_of(offsets);
    result.hash_size = table.hash_size;
    result.buckets = buckets;
    result.eviction = table.policy == Policy::none  ? MchEviction::none
                      : table.policy == Policy::lfu ? MchEviction::lfu
                      : table.policy == Policy::lru ? MchEviction::lru
                                                    : MchEviction::distance_lfu;
    result.layout = table.bucketed ? MchLayout::buckets : MchLayout::sorted;
    result.metadata.clear();
    for (Column const& column : table.columns) result.metadata.push_back({column.name, column.bytes, column.empty});
    return result;
}

inline MchState library_state(Table const& table, ShardBuffers& shard) {
    auto const z = static_cast<Index>(shard.raw.size());
    auto const integers = [](Ids& column) {
        return TensorView<Index>(column.data(), Shape{static_cast<Index>(column.size())});
    };
    MchState state;
    state.ids = integers(shard.raw);
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
        Column const& column = table.columns[c];
        std::uint8_t* const data = shard.metadata[c].data();
        if (column.bytes == 8) {
            state.metadata.push_back({column.name, DynamicView(data, DType::i64, Shape{z})});
        } else {
            state.metadata.push_back({column.name, DynamicView(data, DType::u8, Shape{z, column.bytes})});
        }
    }
    if (table.bucketed) return state;
    state.slots = integers(shard.slots);
    state.segments = integers(shard.segments);
    state.iteration = integers(shard.iteration);
    return state;
}

inline MchOptions library_options(Mode mode) {
    MchOptions options;
    options.mode = mode == Mode::route ? MchMode::route : MchMode::slot_owner;
    options.drop_unreachable = mode != Mode::slot_owner_keep;
    options.accept_strays = true;  // scenes draw ids for whatever shard
    return options;
}

inline Change change_of(MchChange const& change) {
    Change result{change.live_before, change.live_after, change.sent,    change.received, change.unreachable,
                  change.unpinned,    change.left_out,   change.evicted, change.freed,    {}};
    for (MchRowMove const& move : change.moves) result.moves.push_back({move.from, move.to});
    return result;
}

/// What the library makes of a scene's loaded shards, run rank by rank.
struct Result {
    std::vector<ShardBuffers> shards;
    std::vector<Change> changes;
    std::vector<RankEnd> ends;

    [[nodiscard]] std::string error() const {
        for (RankEnd const& end : ends)
            if (!end.message.empty()) return end.message;
        return {};
    }
};

inline Result run_library(Scene const& scene, Mode mode, bool accept_strays = true, int threads = 1) {
    MchOptions options = library_options(mode);
    options.accept_strays = accept_strays;
    options.threads = threads;
    Table const& table = scene.table;
    Result result{scene.loaded, std::vector<Change>(scene.loaded.size()), {}};
    MchTable const saved = library_table(table, table.saved_offsets, scene.saved_buckets);
    MchTable const current = library_table(table, table.offsets, table.buckets);
    ReplayWorld world(static_cast<int>(table.parts()));
    result.ends = world.run([&](ReplayCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        MchState const state = library_state(table, result.shards[r]);
        result.changes[r] = change_of(redistribute(saved, current, state, comm, options));
    });
    return result;
}

/// The first thing in which the two differ; nothing if they do not.
inline std::string difference(Table const& table, Result const& is, Outcome const& should) {
    std::string const error = is.error();
    if (!error.empty()) return error;
    for (std::size_t r = 0; r < is.shards.size(); ++r) {
        ShardBuffers const& a = is.shards[r];
        ShardBuffers const& b = should.shards[r];
        auto const where = [&](std::string_view what, auto const& one, auto const& other) {
            std::size_t i = 0;
            while (i < one.size() && i < other.size() && one[i] == other[i]) ++i;
            return errors::concat("rank ", r, ": ", what, " differ at ", i, ": ",
                                  i < one.size() ? errors::concat(static_cast<Id>(one[i])) : std::string("end"),
                                  " instead of ",
                                  i < other.size() ? errors::concat(static_cast<Id>(other[i])) : std::string("end"));
        };
        if (a.raw != b.raw) return where("ids", a.raw, b.raw);
        if (a.slots != b.slots) return where("slots", a.slots, b.slots);
        for (std::size_t c = 0; c < a.metadata.size(); ++c) {
            if (a.metadata[c] == b.metadata[c]) continue;
            return where(errors::concat("bytes of column ", table.columns[c].name), a.metadata[c], b.metadata[c]);
        }
        if (a.segments != b.segments) return where("segments", a.segments, b.segments);
        if (a.iteration != b.iteration) return where("iterations", a.iteration, b.iteration);
        Change const& x = is.changes[r];
        Change const& y = should.changes[r];
        if (x == y) continue;
        if (x.evicted != y.evicted) return where("evicted ids", x.evicted, y.evicted);
        if (x.left_out != y.left_out) return where("ids left out", x.left_out, y.left_out);
        if (x.freed != y.freed) return where("freed slots", x.freed, y.freed);
        if (x.moves != y.moves) return errors::concat("rank ", r, ": moves differ");
        return errors::concat("rank ", r, ": counts differ: before ", x.live_before, "/", y.live_before, ", after ",
                              x.live_after, "/", y.live_after, ", sent ", x.sent, "/", y.sent, ", received ",
                              x.received, "/", y.received, ", unreachable ", x.unreachable, "/", y.unreachable,
                              ", unpinned ", x.unpinned, "/", y.unpinned);
    }
    return {};
}

}  // namespace reshard::test::reference
