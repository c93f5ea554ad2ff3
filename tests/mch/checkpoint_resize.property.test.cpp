// SPDX-License-Identifier: Apache-2.0
// Mirrors MchLoadOptions::resize of include/reshard/mch/checkpoint_types.hpp, and MchTable::decay_exponent where it
// decides. The oracle: all entries of all saved shards in one list, asked one by one where they go.
#include <reshard/mch/checkpoint.hpp>

#include <doctest/doctest.h>

#include <reshard/mch/validate.hpp>

#include <mch/support/saved.hpp>
#include <support/random.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test::torchrec;
using checkpoint_test::contains;
using checkpoint_test::TempFolder;
namespace torchrec = reshard::test::torchrec;

struct Entry {
    Id id, slot, count, last;
    double score;
};

/// One shard of the resized table: buffers, rows, what it evicts, and slots whose rows begin anew.
struct Expected {
    Module module;
    Rows rows;
    std::vector<Index> evicted, freed;

    Expected(World const& saved, World const& wanted, std::size_t part, double exponent)
        : module(wanted.ranks[part]), rows(wanted.ranks[part]) {
        Id const z = module.z;
        module.iteration = saved.ranks[0].iteration;
        std::vector<Entry> entries;
        Id largest = 0;
        for (Module const& from : saved.ranks) {
            for (std::size_t i = 0; i < from.raw.size(); ++i) {
                if (from.raw[i] == no_id || wanted.rank_of(from.raw[i]) != part) continue;
                entries.push_back({from.raw[i], from.mapping[i], has_counts(saved.policy) ? from.counts[i] : 0,
                                   has_access(saved.policy) ? from.last[i] : 0, 0});
                if (entries.back().count != INT64_MAX) largest = std::max(largest, entries.back().count);
            }
        }
        for (Entry& one : entries) {
            if (one.count == INT64_MAX) one.count = largest;
            double const age = std::pow(static_cast<double>(module.iteration[0] - one.last + 1), exponent);
            if (saved.policy == Policy::lfu) one.score = static_cast<double>(one.count);
            if (saved.policy == Policy::lru) one.score = -age;
            if (saved.policy == Policy::distance_lfu) one.score = static_cast<double>(one.count) / age;
        }
        std::sort(entries.begin(), entries.end(),
                  [](Entry const& a, Entry const& b) { return a.score != b.score ? a.score < b.score : a.id > b.id; });
        while (static_cast<Id>(entries.size()) > std::max<Id>(z - 1, 0)) {
            evicted.push_back(entries.front().id);
            entries.erase(entries.begin());
        }
        std::sort(entries.begin(), entries.end(), [](Entry const& a, Entry const& b) { return a.id < b.id; });
        place(saved, entries, part, wanted.ranks.size());
    }

private:
    void place(World const& saved, std::vector<Entry> const& entries, std::size_t part, std::size_t parts) {
        Id const z = module.z;
        Id const o = module.o;
        auto const stays = [&](Id slot) { return o <= slot && slot < o + z - 1; };
        std::set<Id> free;
        for (Id slot = o; slot < o + z - 1; ++slot) free.insert(slot);
        for (Entry const& one : entries) free.erase(one.slot);
        std::map<Id, Id> source;  // of the row at a slot: a slot of the saved table
        for (Id slot = o; slot < o + z; ++slot) source[slot] = slot < saved.slots ? slot : -1;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            Entry const& one = entries[i];
            Id slot = one.slot;
            if (!stays(slot)) {
                slot = *free.begin();
                free.erase(free.begin());
            }
            source[slot] = one.slot;
            module.raw[i] = one.id;
            module.mapping[i] = slot;
            if (has_counts(saved.policy)) module.counts[i] = one.count;
            if (has_access(saved.policy)) module.last[i] = one.last;
        }
        std::size_t at = entries.size();
        for (Id slot : free) module.mapping[at++] = slot;
        if (z == 0) return;
        module.mapping[at] = o + z - 1;
        bool all_here = part < saved.ranks.size() && saved.ranks[part].o == o && saved.ranks[part].z == z;
        for (std::size_t i = 0; all_here && i < saved.ranks[part].raw.size(); ++i) {
            Id const id = saved.ranks[part].raw[i];
            all_here = id == no_id || std::find(module.raw.begin(), module.raw.end(), id) != module.raw.end();
        }
        if (!all_here) freed.assign(free.begin(), free.end());
        std::size_t from = part * saved.ranks.size() / parts;  // the row of misses
        while (from > 0 && saved.ranks[from].z == 0) --from;
        source[o + z - 1] = saved.ranks[from].o + saved.ranks[from].z - 1;
        rows.clear();
        for (auto const& [slot, was] : source) {
            auto const i = static_cast<std::size_t>(slot - o);
            rows.weights[2 * i] = was < 0 ? 0 : weight(was, 0);
            rows.weights[2 * i + 1] = was < 0 ? 0 : weight(was, 1);
            rows.momenta[i] = was < 0 ? 0 : momentum(was);
        }
    }
};

MchTable saved_table(World const& world, double exponent) {
    MchTable table = table_of(world);
    table.decay_exponent = exponent;
    return table;
}

}  // namespace

TEST_SUITE("mch/checkpoint_resize") {
    TEST_CASE("law: tables of another size have every id that fits, its row, and a list of those that do not") {
        Index grown = 0;
        Index evicted = 0;
        int const step = reshard::test::fewer_seeds() ? 5 : 1;
        for (std::uint64_t seed = 1; seed <= 120; seed += static_cast<std::uint64_t>(step)) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            auto const pick = picker(random);
            Id const slots = pick(Id{8}, Id{10}, Id{97}, Id{300});
            Id const from = pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{6});
            Id const to = pick(Id{1}, Id{2}, Id{3}, Id{4}, Id{8});
            auto const kind = pick(torchrec::Kind::low, torchrec::Kind::hash63, torchrec::Kind::any);
            World saved = trained(seed, slots, from, pick(Policy::lfu, Policy::lru, Policy::distance_lfu), kind,
                                  pick(0.05, 0.5, 0.95, 1.3), 16, pick(INT64_MAX, Id{5000}));
            double const exponent = pick(1.0, 0.5, 3.0);
            World loaded(slots * pick(Id{1}, Id{3}, Id{4}, Id{5}, Id{16}) / 4, to, saved.policy, saved.hash_size);
            TempFolder const folder;
            for (std::string const &error :
                 save_world(folder.path(), saved,
                            [&](int, MchTableToSave&one, std::string&) { one.table.decay_exponent = exponent; })) {
                REQUIRE(error == "");
            }
            std::vector<Expected> expected;
            Index live = 0;
            for (std::size_t p = 0; p < loaded.ranks.size(); ++p) expected.emplace_back(saved, loaded, p, exponent);
            for (std::size_t p = 0; p < loaded.ranks.size(); ++p) {
                CAPTURE(p);
                Rows rows(loaded.ranks[p]);
                rows.clear();
                MchChange const change =
                    MchCheckpoint::open(folder.path())
                        .load_redistributed("user", saved_table(loaded, exponent), static_cast<Index>(p),
                                            state_of(loaded.ranks[p]), rows.views(), {}, {.resize = true})
                        .change;
                CHECK(change.evicted == expected[p].evicted);
                CHECK(change.freed == expected[p].freed);
                CHECK(rows == expected[p].rows);
                CHECK(change.unreachable == 0);
                live += change.live_after;
                evicted += static_cast<Index>(change.evicted.size());
                loaded.ranks[p].iteration = expected[p].module.iteration;  // of a shard without slots, too
                expected[p].module.segments = loaded.ranks[p].segments;
                for (auto const member : {&Module::raw, &Module::mapping, &Module::counts, &Module::last})
                    CHECK(loaded.ranks[p].*member == expected[p].module.*member);
                CHECK(
                    validate(saved_table(loaded, exponent), state_of(loaded.ranks[p]), static_cast<Index>(p)).total() ==
                    0);
            }
            if (loaded.slots / to > slots) {  // no rank can be short of slots
                CHECK(live == static_cast<Index>(saved.live().size()));
                ++grown;
            }
        }
        CHECK(grown > 0);  // the cases were worth it
        CHECK(evicted > (step == 1 ? 500 : 0));
    }

    TEST_CASE("a size that differs is refused where nobody said so, and where slots cannot stay with their owners") {
        World saved = trained(3, 40, 2, Policy::distance_lfu);
        TempFolder const folder;
        save_world(folder.path(), saved);
        World loaded(60, 2, saved.policy);
        Rows rows(loaded.ranks[0]);
        auto const before = buffers(loaded);
        auto const refused = [&](MchTable const& table, MchOptions const& mode, MchLoadOptions const& options) {
            auto const error = checkpoint_test::caught([&] {
                static_cast<void>(
                    MchCheckpoint::open(folder.path())
                        .load_redistributed("user", table, 0, state_of(loaded.ranks[0]), rows.views(), mode, options));
            });
            CHECK(error.code == ErrorCode::mismatch);
            CHECK(buffers(loaded) == before);
            return error.message;
        };
        CHECK(contains(refused(table_of(loaded), {}, {}), "number of slots differs: saved 40, current 60"));
        CHECK(contains(refused(table_of(loaded), {.mode = MchMode::slot_owner}, {.resize = true}),
                       "slots of another number have no saved owner. Fix: MchMode::route"));
        CHECK(contains(refused(saved_table(loaded, 2.5), {}, {.resize = true}),
                       "the decay exponent differs, so that other ids would be evicted: saved 1, current 2.5"));
        CHECK(contains(refused(saved_table(loaded, -1), {}, {.resize = true}), "decay exponent -1. Fix: a number"));
        CHECK(contains(refused(saved_table(loaded, std::nan("")), {}, {.resize = true}), "decay exponent nan"));
    }

    TEST_CASE("the shard with the row of misses is opened before rows are written, though nothing else of it is read") {
        World saved(90, 3, Policy::lfu);
        for (Id i = 0; i < 10; ++i) saved.ranks[0].raw[static_cast<std::size_t>(i)] = i + 1;
        TempFolder const folder;
        save_world(folder.path(), saved);
        World loaded(30, 3, Policy::lfu);
        Rows rows(loaded.ranks[2]);
        rows.clear();
        MchCheckpoint whole = MchCheckpoint::open(folder.path());
        MchCheckpoint broken = MchCheckpoint::open(folder.path());
        auto const load = [&](MchCheckpoint& files) {
            return files.load_redistributed("user", table_of(loaded), 2, state_of(loaded.ranks[2]), rows.views(), {},
                                            {.resize = true});
        };
        MchLoadResult const done = load(whole).loaded;
        CHECK(done.shards_read == 2);
        CHECK(rows.momenta.front() == momentum(20));
        CHECK(rows.momenta.back() == momentum(89));
        rows.clear();
        Rows const before = rows;
        std::filesystem::remove(folder / leaf_in(folder.path(), 2));
        CHECK(checkpoint_test::caught([&] { static_cast<void>(load(broken)); }).code == ErrorCode::io);
        CHECK(rows == before);
    }

    TEST_CASE("ranks outside the mesh of a resized table, and those without slots, pass null rows") {
        World saved = trained(3, 8, 2, Policy::lfu);
        TempFolder const folder;
        save_world(folder.path(), saved);
        MchTable const table = table_of(World(3, 4, Policy::lfu));
        REQUIRE(table.range(3).empty());
        MchRows const nothing[] = {{"weights", {}}, {"momentum", {}}};
        for (Index rank : {3, 4}) {
            MchLoadedChange const done =
                MchCheckpoint::open(folder.path())
                    .load_redistributed("user", table, rank, {}, nothing, {}, {.resize = true});
            CHECK(done.change.live_after == 0);
        }
    }

    TEST_CASE("the decay exponent is saved with the table") {
        World saved = trained(3, 40, 2, Policy::distance_lfu);
        TempFolder const folder;
        save_world(folder.path(), saved,
                   [](int, MchTableToSave& one, std::string&) { one.table.decay_exponent = 0.7; });
        MchCheckpoint const files = MchCheckpoint::open(folder.path());
        CHECK(files.table("user").decay_exponent == 0.7);
        CHECK(contains(to_string(files.table("user")), "DistanceLFU^0.7"));
        CHECK(files.table("user") == saved_table(saved, 0.7));
        CHECK(digest(files.table("user")) != digest(table_of(saved)));
    }
}
