// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/redistribute.hpp and row_moves.hpp: whole worlds against a sequential oracle, and laws
// that need none. Up to 1024 ranks, all in one thread.
#include <reshard/mch/row_moves.hpp>

#include <doctest/doctest.h>

#include <mch/support/scenes.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;
using namespace reshard::test::reference;

/// One case in so many is tried where fewer are: a prime, so that each value of each loop has its turn.
int const thinning = fewer_seeds() ? 101 : 1;
int const fewer = fewer_seeds() ? 10 : 1;

constexpr Mode modes[] = {Mode::route, Mode::slot_owner_keep, Mode::slot_owner_drop};
constexpr Fill fills[] = {Fill::nothing, Fill::one_id, Fill::half, Fill::all_but_one, Fill::all};
constexpr IdKind kinds[] = {IdKind::small, IdKind::hash63, IdKind::any};
constexpr Id worlds[] = {1, 2, 3, 4, 6, 8};

template <class Get>
Id total(std::vector<Change> const& changes, Get const& get) {
    Id sum = 0;
    for (Change const& one : changes) sum += get(one);
    return sum;
}

/// Sum and exclusive or of a mix of every live id and its metadata: slots may change.
struct Checksum {
    std::uint64_t sum = 0;
    std::uint64_t mixed = 0;
    void add(std::uint64_t value) {
        sum += value;
        mixed ^= value;
    }
    [[nodiscard]] friend bool operator==(Checksum const&, Checksum const&) = default;
};
Checksum checksum_of(Table const& table, std::vector<ShardBuffers> const& shards,
                     std::unordered_set<Id> const& without = {}) {
    Checksum result;
    for (ShardBuffers const& shard : shards) {
        for (std::size_t i = 0; i < shard.raw.size(); ++i) {
            if (shard.raw[i] == INT64_MAX || without.count(shard.raw[i]) != 0) continue;
            std::uint64_t hash = 14695981039346656037U ^ static_cast<std::uint64_t>(shard.raw[i]);
            for (std::size_t c = 0; c < table.columns.size(); ++c) {
                auto const bytes = static_cast<std::size_t>(table.columns[c].bytes);
                for (std::size_t b = 0; b < bytes; ++b) {
                    hash = (hash ^ shard.metadata[c][i * bytes + b]) * 1099511628211U;
                }
            }
            result.add(hash ^ hash >> 29);
        }
    }
    return result;
}

/// Ids whose count redistribute() lowers.
Ids pinned_ids(Table const& table, std::vector<ShardBuffers> const& shards) {
    Ids result;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
        if (table.columns[c].name != "counts") continue;
        for (ShardBuffers const& shard : shards) {
            for (std::size_t i = 0; i < shard.raw.size(); ++i) {
                Id count = 0;
                std::memcpy(&count, shard.metadata[c].data() + 8 * i, 8);
                if (count == INT64_MAX && shard.raw[i] != INT64_MAX) result.push_back(shard.raw[i]);
            }
        }
    }
    return result;
}

/// What must hold whatever the oracle says; the first law that is broken.
std::string broken_law(Scene const& scene, Mode mode, Result const& result) {
    Table const& table = scene.table;
    Id const before = total(result.changes, [](Change const& c) { return c.live_before; });
    Id const after = total(result.changes, [](Change const& c) { return c.live_after; });
    Id const sent = total(result.changes, [](Change const& c) { return c.sent; });
    std::unordered_set<Id> gone;
    for (Change const& one : result.changes) {
        gone.insert(one.evicted.begin(), one.evicted.end());
        gone.insert(one.left_out.begin(), one.left_out.end());
    }
    if (before != after + static_cast<Id>(gone.size())) return "ids are lost that are not listed";
    if (sent != total(result.changes, [](Change const& c) { return c.received; })) return "sent, but not received";
    std::unordered_set<Id> changed = gone;
    for (Id id : pinned_ids(table, scene.loaded)) changed.insert(id);
    if (checksum_of(table, result.shards, changed) != checksum_of(table, scene.loaded, changed))
        return "ids or metadata changed";
    for (std::size_t r = 0; r < result.shards.size(); ++r) {
        ShardBuffers const& shard = result.shards[r];
        if (!shard.raw.empty() && (shard.raw.back() != INT64_MAX || shard.slots.back() != table.offsets[r + 1] - 1)) {
            return "the row of misses is not free";
        }
        for (Id id : shard.raw) {
            if (mode != Mode::slot_owner_keep && id != INT64_MAX && table.route(id) != r)
                return "an id is out of reach";
        }
    }
    // Slots that no id has, where one had them or misses: their rows are those of others.
    std::unordered_set<Id> had;
    for (Id const end : table.saved_offsets) had.insert(end - 1);
    for (ShardBuffers const& shard : scene.loaded) {
        for (std::size_t i = 0; i < shard.raw.size(); ++i)
            if (shard.raw[i] != INT64_MAX) had.insert(shard.slots[i]);
    }
    for (std::size_t r = 0; r < result.shards.size(); ++r) {
        ShardBuffers const& shard = result.shards[r];
        Ids const& freed = result.changes[r].freed;
        std::unordered_set<Id> const listed(freed.begin(), freed.end());
        for (std::size_t i = 0; i + 1 < shard.raw.size(); ++i) {
            bool const is_listed = listed.count(shard.slots[i]) != 0;
            if (shard.raw[i] != INT64_MAX && is_listed) return "the slot of an id is freed";
            if (shard.raw[i] == INT64_MAX && !is_listed && had.count(shard.slots[i]) != 0)
                return "a free slot has the row of an id that left";
        }
    }
    return {};
}

std::string run(Scene const& scene, Mode mode) {
    Result const result = run_library(scene, mode);
    Outcome const expected = redistribute(scene.table, scene.loaded, mode);
    std::string const differs = difference(scene.table, result, expected);
    if (!differs.empty()) return differs;
    std::string const law = broken_law(scene, mode, result);
    if (!law.empty()) return law;
    // What travels: a header a pair of ranks, and the entries that change ranks, in one message a pair.
    Id const ranks = static_cast<Id>(result.ends.size());
    Traffic traffic;
    for (RankEnd const& end : result.ends) {
        if (end.exchanges != (ranks == 1 ? 0 : 2)) return "not one exchange of headers and one of entries";
        if (end.agreements != (ranks == 1 ? 0 : 3)) return "not an agreement before each exchange and before writing";
        traffic.bytes_sent += end.traffic.bytes_sent;
        traffic.bytes_received += end.traffic.bytes_received;
        traffic.messages_sent += end.traffic.messages_sent;
    }
    Id const pairs = ranks * (ranks - 1);
    if (traffic.bytes_sent != pairs * 16 + expected.bytes) return "bytes are not headers and entries that change ranks";
    if (traffic.bytes_received != traffic.bytes_sent) return "bytes sent and received differ";
    if (traffic.messages_sent != pairs + expected.messages) return "more messages than pairs of ranks";
    return {};
}

void check(Setup const& setup, std::uint64_t seed, Mode mode) {
    Random random(seed);
    std::string const error = run(draw_scene(setup, random), mode);
    if (error.empty()) return;
    CAPTURE(seed);
    INFO(to_string(setup));
    CAPTURE(static_cast<int>(mode));
    CHECK(error == "");
}

/// A setup of tables that take a moment.
Setup draw_setup(Random& random, Id most_slots = 3000) {
    Setup setup;
    setup.from = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
    setup.to = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
    setup.slots = random.chance(60) ? std::min<Id>(1000, most_slots) : random.between(1, most_slots);
    setup.fill = random.pick(std::vector<Fill>(std::begin(fills), std::end(fills)));
    setup.kind = random.pick(std::vector<IdKind>(std::begin(kinds), std::end(kinds)));
    setup.columns = static_cast<int>(random.between(0, 3));
    setup.one_destination = random.chance(20);
    setup.plain = random.chance(50);
    return setup;
}

/// What was made of a scene, saved and loaded again on the ranks whose shards begin at `offsets`.
Scene continued(Scene const& scene, Result const& result, Ids const& offsets, Id buckets) {
    Scene next = scene;
    next.table.saved_offsets = scene.table.offsets;
    next.saved_buckets = scene.table.buckets;
    next.table.offsets = offsets;
    next.table.buckets = buckets;
    next.saved = result.shards;
    next.loaded = loaded_by_position(next.table, next.saved);
    return next;
}

}  // namespace

TEST_SUITE("mch/redistribute") {
    TEST_CASE("equals the oracle: all changes of ranks, fills, ids, columns and modes of small tables") {
        std::uint64_t seed = seeds(1)[0];
        int count = 0;
        auto const run_one = [&](Setup const& setup, Mode mode) {
            if (count++ % thinning == 0) check(setup, ++seed, mode);
        };
        for (Id from : worlds) {
            for (Id to : worlds) {
                for (Id slots : {to, Id{10}}) {
                    for (Fill fill : fills) {
                        for (IdKind kind : kinds) {
                            for (int rest = 0; rest < 4 * 2 * 3; ++rest) {
                                run_one({from, to, slots, fill, kind, rest / 6, rest % 2 == 0, count % 4 < 2},
                                        modes[rest / 2 % 3]);
                            }
                        }
                    }
                }
            }
        }
        CHECK(count == 36 * 2 * 5 * 3 * 4 * 2 * 3);
    }

    TEST_CASE("equals the oracle: samples of tables of a thousand slots and of 378801") {
        for (std::uint64_t seed : seeds(1500 / fewer)) {
            Random random(seed * 7919);
            Setup setup = draw_setup(random);
            if (seed % 300 == 0) setup.slots = 378801;
            check(setup, seed, modes[random.between(0, 2)]);
        }
    }

    TEST_CASE("equals the oracle: 1 rank becomes 255 or 256, 7 become 1024") {
        std::uint64_t seed = seeds(1)[0];
        Id const many = fewer_seeds() ? 100 : 1024;  // ranks, whose headers take most of the time
        for (auto const& pair : {std::pair<Id, Id>{1, 255}, {1, 256}, {7, many}, {many, 7}}) {
            for (Id slots : {pair.second, Id{10}, Id{1000}, Id{378801}}) {
                ++seed;
                if (fewer_seeds() && (seed % 4 != 0 || pair.second == 255)) continue;
                Random random(seed);
                Setup setup = draw_setup(random);
                setup.from = pair.first;
                setup.to = pair.second;
                setup.slots = slots;
                if (setup.fill == Fill::nothing) setup.fill = Fill::half;
                check(setup, seed, modes[seed % 3]);
            }
        }
    }

    TEST_CASE("run twice is run once: nothing is sent, moved or written, in any mode") {
        for (std::uint64_t seed : seeds(600 / fewer)) {
            Random random(seed);
            Scene const scene = draw_scene(draw_setup(random), random);
            for (Mode mode : modes) {
                Result const once = run_library(scene, mode);
                Result const twice =
                    run_library(continued(scene, once, scene.table.offsets, scene.table.buckets), mode);
                CAPTURE(seed);
                CAPTURE(static_cast<int>(mode));
                CHECK(twice.error() == "");
                CHECK((twice.shards == once.shards));
                for (Change const& one : twice.changes) {
                    CHECK(one.sent + one.received == 0);
                    CHECK(one.evicted.size() + one.left_out.size() + one.moves.size() + one.freed.size() == 0);
                }
            }
        }
    }

    TEST_CASE("a retry with the saved world's table changes nothing but rows of misses, or is refused") {
        int refused = 0;
        for (std::uint64_t seed : seeds(600 / fewer)) {
            Random random(seed);
            Scene const scene = draw_scene(draw_setup(random), random);
            for (Mode mode : modes) {
                Result const once = run_library(scene, mode);
                Scene again = scene;  // its saved offsets and buckets are not those of these shards
                again.loaded = once.shards;
                Result const twice = run_library(again, mode);
                CAPTURE(seed);
                CAPTURE(static_cast<int>(mode));
                CHECK((twice.shards == once.shards));
                if (!twice.error().empty()) {
                    CHECK(twice.error().find("outside its saved shard") != std::string::npos);
                    ++refused;
                    continue;
                }
                for (std::size_t r = 0; r < twice.changes.size(); ++r) {
                    Change const& one = twice.changes[r];
                    CHECK(one.sent + one.received == 0);
                    CHECK(one.evicted.size() + one.left_out.size() == 0);
                    for (auto const& [from, to] : one.moves) CHECK(to == scene.table.offsets[r + 1] - 1);  // misses
                }
            }
        }
        CHECK(refused > 0);
    }

    TEST_CASE("slot_owner: there and back again restores every shard, but for the order of its empty slots") {
        for (std::uint64_t seed : seeds(600 / fewer)) {
            Random random(seed);
            Setup setup = draw_setup(random);
            setup.fill = random.pick(std::vector<Fill>{Fill::one_id, Fill::half, Fill::all_but_one});
            setup.plain = true;
            Scene scene = draw_scene(setup, random);
            for (ShardBuffers& shard : scene.loaded) shard.iteration = scene.saved[0].iteration;
            std::set<Id> reserved;  // slots that misses need on some ranks: who holds one has to move
            for (Ids const* offsets : {&scene.table.saved_offsets, &scene.table.offsets}) {
                for (std::size_t p = 1; p < offsets->size(); ++p) reserved.insert((*offsets)[p] - 1);
            }
            for (ShardBuffers& shard : scene.loaded) {
                for (std::size_t i = 0; i < shard.raw.size(); ++i)
                    if (reserved.count(shard.slots[i]) != 0) shard.raw[i] = INT64_MAX;
            }
            CAPTURE(seed);
            INFO(to_string(setup));
            Result const there = run_library(scene, Mode::slot_owner_keep);
            Ids const home = scene.table.saved_offsets;
            Scene const returning = continued(scene, there, home, scene.saved_buckets);
            Result const back = run_library(returning, Mode::slot_owner_keep);
            CHECK(there.error() == "");
            CHECK(back.error() == "");
            // The same on the saved ranks, without a detour.
            Scene direct = returning;
            direct.table.saved_offsets = home;
            direct.saved = scene.saved;
            for (ShardBuffers& shard : direct.saved) {
                for (std::size_t i = 0; i < shard.raw.size(); ++i)
                    if (reserved.count(shard.slots[i]) != 0) shard.raw[i] = INT64_MAX;
            }
            direct.loaded = direct.saved;
            Outcome const expected = redistribute(direct.table, direct.loaded, Mode::slot_owner_keep);
            CHECK((back.shards == expected.shards));
            for (std::size_t r = 0; r < back.changes.size(); ++r) {
                for (auto const& [from, to] : back.changes[r].moves) CHECK(to == home[r + 1] - 1);  // misses
            }
        }
    }

    TEST_CASE("route: there and back again every id is found with its metadata") {
        for (std::uint64_t seed : seeds(600 / fewer)) {
            Random random(seed);
            Setup const setup = draw_setup(random);
            Scene const scene = draw_scene(setup, random);
            CAPTURE(seed);
            INFO(to_string(setup));
            Result const there = run_library(scene, Mode::route);
            Scene const returning = continued(scene, there, scene.table.saved_offsets, scene.saved_buckets);
            Result const back = run_library(returning, Mode::route);
            CHECK(back.error() == "");
            std::unordered_set<Id> evicted;
            for (Result const* one : {&there, &back}) {
                for (Change const& change : one->changes) {
                    evicted.insert(change.evicted.begin(), change.evicted.end());
                    CHECK(change.unreachable == 0);
                }
            }
            for (Id id : pinned_ids(scene.table, scene.loaded)) evicted.insert(id);
            CHECK((checksum_of(scene.table, back.shards, evicted) == checksum_of(scene.table, scene.loaded, evicted)));
            CHECK(broken_law(returning, Mode::route, back) == "");
        }
    }

    TEST_CASE("many tables at once end as each by itself, in one message a pair of ranks") {
        for (std::uint64_t seed : seeds(300 / fewer)) {
            Random random(seed);
            Id const to = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
            std::vector<Scene> scenes;
            std::vector<Outcome> expected;
            Mode const mode = modes[random.between(0, 2)];
            for (Id count = random.between(0, 4); count > 0; --count) {
                Setup setup = draw_setup(random, 400);
                setup.to = to;
                scenes.push_back(draw_scene(setup, random));
                expected.push_back(redistribute(scenes.back().table, scenes.back().loaded, mode));
            }
            std::vector<Result> results;
            for (Scene const& scene : scenes)
                results.push_back({scene.loaded, std::vector<Change>(scene.loaded.size()), {}});
            auto const ends = ReplayWorld(static_cast<int>(to)).run([&](ReplayCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                std::vector<MchTransition> tables;
                for (std::size_t t = 0; t < scenes.size(); ++t) {
                    Table const& table = scenes[t].table;
                    tables.push_back({library_table(table, table.saved_offsets, scenes[t].saved_buckets),
                                      library_table(table, table.offsets, table.buckets),
                                      library_state(table, results[t].shards[r])});
                    tables.back().saved.name = tables.back().current.name = errors::concat("table ", t);
                }
                auto const changes = redistribute(tables, comm, library_options(mode));
                for (std::size_t t = 0; t < scenes.size(); ++t) results[t].changes[r] = change_of(changes.at(t));
            });
            CAPTURE(seed);
            Id bytes = to * (to - 1) * 16 * static_cast<Id>(scenes.size());
            for (std::size_t t = 0; t < scenes.size(); ++t) {
                CAPTURE(t);
                CHECK(difference(scenes[t].table, results[t], expected[t]) == "");
                bytes += expected[t].bytes;
            }
            for (RankEnd const& end : ends) {
                CHECK(end.message == "");
                CHECK(end.exchanges <= 2);
                CHECK(end.traffic.messages_sent <= 2 * (to - 1));
                bytes -= end.traffic.bytes_sent;
            }
            CHECK(bytes == 0);
        }
    }

    TEST_CASE("bucketed tables keep their places in every mode") {
        for (std::uint64_t seed : seeds(300 / fewer)) {
            Random random(seed);
            Scene scene;
            Table& table = scene.table;
            table.bucketed = true;
            table.policy = Policy::none;
            table.buckets = scene.saved_buckets = 24 * random.between(1, 3);
            Id const size = random.between(1, 20);
            Id const to = random.pick(std::vector<Id>{1, 2, 3, 4, 6, 8});
            auto const cut = [&](Id parts) {
                Ids offsets{0, table.buckets * size};
                while (static_cast<Id>(offsets.size()) <= parts)
                    offsets.push_back(random.between(0, table.buckets) * size);
                std::sort(offsets.begin(), offsets.end());
                return random.chance(50) ? chunk_offsets(offsets.back(), parts) : offsets;
            };
            table.offsets = cut(to);
            table.saved_offsets = cut(random.pick(std::vector<Id>{1, 2, 3, 4, 6, 8}));
            if (random.chance(50)) table.columns = {{"hours", 4, 0xff}};
            for (std::size_t p = 0; p < table.parts(); ++p) {
                auto const z = static_cast<std::size_t>(table.offsets[p + 1] - table.offsets[p]);
                ShardBuffers shard;
                shard.raw.assign(z, -1);
                for (Id& id : shard.raw)
                    if (random.chance(60)) id = static_cast<Id>(random.engine()() >> random.between(0, 60));
                for (Column const& column : table.columns)
                    shard.metadata.emplace_back(z * static_cast<std::size_t>(column.bytes), std::uint8_t{7});
                scene.loaded.push_back(shard);
            }
            for (Mode mode : modes) {
                CAPTURE(seed);
                CHECK(difference(table, run_library(scene, mode), redistribute(table, scene.loaded, mode)) == "");
            }
        }
    }

    TEST_CASE("rows follow their ids, of any width, and rows that no move names stay") {
        for (std::uint64_t seed : seeds(600 / fewer)) {
            Random random(seed);
            Setup const setup = draw_setup(random, 400);
            Scene const scene = draw_scene(setup, random);
            Table const& table = scene.table;
            Mode const mode = modes[random.between(0, 2)];
            Outcome const expected = redistribute(table, scene.loaded, mode);
            Id const width = random.pick(std::vector<Id>{1, 3, 8});
            std::vector<std::uint16_t> all(static_cast<std::size_t>(table.slots() * width));
            for (std::uint16_t& one : all) one = static_cast<std::uint16_t>(random.engine()());
            std::vector<std::uint16_t> moved = all;
            auto const copy_row = [&](Id from, Id to) {
                std::copy(all.begin() + from * width, all.begin() + (from + 1) * width, moved.begin() + to * width);
            };
            for (Change const& change : expected.changes)
                for (auto const& [from, to] : change.moves) copy_row(from, to);

            std::vector<std::vector<std::uint16_t>> rows;
            for (std::size_t p = 0; p < table.parts(); ++p)
                rows.emplace_back(all.begin() + table.offsets[p] * width, all.begin() + table.offsets[p + 1] * width);
            MchTable const current = library_table(table, table.offsets, table.buckets);
            auto const ends = ReplayWorld(static_cast<int>(table.parts())).run([&](ReplayCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                std::vector<MchRowMove> moves;
                for (auto const& [from, to] : expected.changes[r].moves) moves.push_back({from, to});
                auto const z = static_cast<Index>(rows[r].size()) / width;
                apply_row_moves(moves, current, DynamicView(rows[r].data(), DType::u16, Shape{z, width}), comm);
            });
            CAPTURE(seed);
            INFO(to_string(setup));
            for (RankEnd const& end : ends) CHECK(end.message == "");
            std::vector<std::uint16_t> result;
            for (auto const& part : rows) result.insert(result.end(), part.begin(), part.end());
            CHECK((result == moved));
            // Said without moves: the row of an id is the one it had.
            std::map<Id, Id> slot_of;
            for (ShardBuffers const& shard : scene.loaded)
                for (std::size_t i = 0; i < shard.raw.size(); ++i) slot_of[shard.raw[i]] = shard.slots[i];
            Index wrong = 0;
            for (ShardBuffers const& shard : expected.shards) {
                for (std::size_t i = 0; i < shard.raw.size(); ++i) {
                    if (shard.raw[i] == INT64_MAX) continue;
                    wrong += std::equal(result.begin() + shard.slots[i] * width,
                                        result.begin() + (shard.slots[i] + 1) * width,
                                        all.begin() + slot_of[shard.raw[i]] * width)
                                 ? 0
                                 : 1;
                }
            }
            CHECK(wrong == 0);
        }
    }
}
