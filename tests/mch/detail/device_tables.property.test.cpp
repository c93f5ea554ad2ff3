// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/device_*.hpp: redistribute() on devices, its kernels run on the host, against the
// sequential oracle and against the host's redistribute().
#include <reshard/mch/detail/device_row_moves.hpp>
#include <reshard/mch/detail/device_tables.hpp>

#include <doctest/doctest.h>

#include <mch/support/on_device.hpp>
#include <support/around.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;
using namespace reshard::test::reference;

constexpr Id worlds[] = {1, 2, 3, 4, 6, 8};

/// Makes one of eight things wrong with a shard, if there are entries.
void spoil(Scene& scene, std::size_t kind, Random& random) {
    auto const any = [&] {
        return static_cast<std::size_t>(random.between(0, static_cast<Id>(scene.loaded.size()) - 1));
    };
    ShardBuffers& shard = scene.loaded[any()];
    ShardBuffers const& other = scene.loaded[any()];
    if (shard.raw.empty() || other.raw.empty()) return;
    auto const at = [&](ShardBuffers const& of) {
        return static_cast<std::size_t>(random.between(0, static_cast<Id>(of.raw.size()) - 1));
    };
    std::size_t const i = at(shard);
    std::size_t const j = at(other);
    auto const number = [&](std::string_view name, Id value) {
        for (std::size_t c = 0; c < scene.table.columns.size(); ++c) {
            if (scene.table.columns[c].name != name) continue;
            std::memcpy(shard.metadata[c].data() + 8 * i, &value, 8);
        }
    };
    switch (kind) {
        case 0: shard.raw[i] = other.raw[j]; break;
        case 1: shard.slots[i] = other.slots[j]; break;
        case 2: shard.slots[i] = random.pick(Ids{-1, INT64_MIN, INT64_MAX, scene.table.offsets.back()}); break;
        case 3: number("counts", random.pick(Ids{-1, INT64_MIN, INT64_MAX})); break;
        case 4: number("last_access_iter", random.pick(Ids{-1, 2000, INT64_MAX})); break;
        case 5: shard.iteration[0] = 1001; break;
        case 6:
            shard.raw.assign(shard.raw.size(), 0);
            if (random.chance(50)) shard.slots.assign(shard.raw.size(), 0);
            break;
        default: std::swap(shard.slots[i], shard.slots[at(shard)]); break;
    }
}

}  // namespace

TEST_CASE("redistribute on devices: equals the oracle in all modes and orders of threads") {
    for (std::uint64_t seed : seeds(300)) {
        Random random(seed);
        Setup setup;
        setup.from = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
        setup.to = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
        setup.slots = random.chance(50) ? random.between(1, 40) : random.between(1, fewer_seeds() ? 400 : 1500);
        setup.fill = random.pick(
            std::vector<Fill>{Fill::nothing, Fill::one_id, Fill::half, Fill::all_but_one, Fill::all, Fill::all});
        setup.kind = random.pick(std::vector<IdKind>{IdKind::small, IdKind::hash63, IdKind::any});
        setup.columns = static_cast<int>(random.between(0, 3));
        setup.one_destination = random.chance(20);
        setup.plain = random.chance(50);
        Scene const scene = draw_scene(setup, random);
        Mode const mode = modes[random.between(0, 2)];
        auto const threads =
            random.pick(std::vector<ThreadOrder>{ThreadOrder::up, ThreadOrder::down, ThreadOrder::shuffled});
        CAPTURE(seed);
        INFO(to_string(setup));
        CAPTURE(static_cast<int>(mode));
        CHECK(check_on_device(scene, mode, threads) == "");
    }
}

TEST_CASE("redistribute on devices: equals the oracle for shards of about a tile, or several") {
    for (std::uint64_t seed : seeds(6)) {
        Random random(seed);
        Setup setup;
        setup.from = random.between(1, 3);
        setup.to = random.between(1, 3);
        Id const limit = random.pick(Ids{reshard::detail::block_threads, reshard::detail::merge_tile});
        setup.slots = around(random, limit) * (random.chance(50) ? setup.from : setup.to);
        setup.fill = random.pick(std::vector<Fill>{Fill::half, Fill::all_but_one, Fill::all});
        setup.kind = random.pick(std::vector<IdKind>{IdKind::small, IdKind::hash63, IdKind::any});
        setup.columns = static_cast<int>(random.between(0, 3));
        setup.plain = random.chance(50);
        Scene const scene = draw_scene(setup, random);
        Mode const mode = modes[random.between(0, 2)];
        CAPTURE(seed);
        INFO(to_string(setup));
        CAPTURE(static_cast<int>(mode));
        CHECK(check_on_device(scene, mode, ThreadOrder::shuffled) == "");
    }
}

TEST_CASE(
    "redistribute on devices: what is wrong with a shard is the host's error, word for word, and nothing is written") {
    int refused = 0;
    int strays = 0;
    std::vector<int> kinds(8, 0);  // that were refused
    for (std::uint64_t seed : seeds(300)) {
        Random random(seed);
        Setup setup;
        setup.from = random.pick(std::vector<Id>{1, 2, 3, 4});
        setup.to = random.pick(std::vector<Id>{1, 2, 3, 4});
        setup.slots = random.between(4, 60);
        setup.fill = random.pick(std::vector<Fill>{Fill::half, Fill::all_but_one, Fill::all});
        setup.kind = random.pick(std::vector<IdKind>{IdKind::small, IdKind::hash63, IdKind::any});
        setup.columns = 2;
        Scene scene = draw_scene(setup, random);
        std::size_t kind = 0;
        for (Id times = random.between(1, 2); times > 0; --times) {
            kind = times == 1 ? seed % 8 : static_cast<std::size_t>(random.between(0, 7));  // few seeds have all
            spoil(scene, kind, random);
        }
        Mode const mode = modes[random.between(0, 2)];
        bool const accept_strays = random.chance(70);
        Result const host = run_library(scene, mode, accept_strays);
        strays += host.error().find("it was looked up on rank") != std::string::npos ? 1 : 0;
        DeviceRun const device =
            run_on_device(scene, mode, random.pick(std::vector<ThreadOrder>{ThreadOrder::down, ThreadOrder::shuffled}),
                          accept_strays);
        CAPTURE(seed);
        INFO(to_string(setup));
        CAPTURE(static_cast<int>(mode));
        CHECK(device.result.error() == host.error());
        CHECK((device.result.shards == host.shards));
        CHECK((device.result.changes == host.changes));
        for (RankEnd const& end : device.result.ends) CHECK(end.message == host.error());
        refused += host.error().empty() ? 0 : 1;
        kinds[kind] += host.error().empty() ? 0 : 1;
    }
    CHECK(refused > test::of_seeds(100));
    CHECK(strays > test::of_seeds(5));
    for (std::size_t kind = 0; kind < 7; ++kind) {
        CAPTURE(kind);
        CHECK((kinds[kind] > 0 || test::fewer_seeds()));
    }
}

TEST_CASE("redistribute on devices: many tables in one message a pair of ranks; bucketed ones keep their places") {
    for (std::uint64_t seed : seeds(40)) {
        Random random(seed);
        Id const to = random.pick(std::vector<Id>{1, 2, 3, 4});
        Mode const mode = modes[random.between(0, 2)];
        std::vector<Scene> scenes;
        for (Id count = random.between(0, 3); count > 0; --count) {
            Setup setup;
            setup.from = random.between(1, 4);
            setup.to = to;
            setup.slots = random.between(1, 200);
            setup.columns = static_cast<int>(random.between(0, 3));
            scenes.push_back(draw_scene(setup, random));
        }
        Scene bucketed;
        bucketed.table.bucketed = true;
        bucketed.table.policy = Policy::none;
        bucketed.table.buckets = bucketed.saved_buckets = 24;
        bucketed.table.saved_offsets = chunk_offsets(48, 2);
        bucketed.table.offsets = chunk_offsets(48, to);
        for (std::size_t p = 0; p < bucketed.table.parts(); ++p) {
            ShardBuffers shard;
            shard.raw.assign(static_cast<std::size_t>(bucketed.table.offsets[p + 1] - bucketed.table.offsets[p]), -1);
            for (Id& id : shard.raw)
                if (random.chance(60)) id = static_cast<Id>(random.engine()() >> random.between(0, 60));
            bucketed.loaded.push_back(shard);
        }
        scenes.push_back(bucketed);
        HostDevice device;
        std::vector<Result> results;
        for (Scene const& scene : scenes) {
            results.push_back({scene.loaded, std::vector<Change>(scene.loaded.size()), {}});
            for (ShardBuffers const& shard : results.back().shards) claim(device, shard);
        }
        auto const ends = ReplayWorld(static_cast<int>(to)).run([&](ReplayCommunicator& replay) {
            OnDevice comm(replay, device);
            HostWork work(device);
            auto const r = static_cast<std::size_t>(comm.rank());
            std::vector<MchTransition> tables;
            for (std::size_t t = 0; t < scenes.size(); ++t) {
                Table const& table = scenes[t].table;
                tables.push_back({library_table(table, table.saved_offsets, scenes[t].saved_buckets),
                                  library_table(table, table.offsets, table.buckets),
                                  library_state(table, results[t].shards[r])});
                tables.back().saved.name = tables.back().current.name = errors::concat("table ", t);
            }
            if (r == 0) device.downloads = 0;
            auto changes = reshard::detail::redistribute_with(work, std::span<MchTransition const>(tables), comm,
                                                              library_options(mode));
            if (r == 0) CHECK(device.downloads <= most_downloads);
            for (std::size_t t = 0; t < scenes.size(); ++t) results[t].changes[r] = change_of(changes.at(t).on_host());
        });
        CAPTURE(seed);
        for (RankEnd const& end : ends) {
            CHECK(end.message == "");
            CHECK(end.traffic.messages_sent <= 2 * (to - 1));
        }
        for (std::size_t t = 0; t < scenes.size(); ++t) {
            CAPTURE(t);
            Outcome const expected = redistribute(scenes[t].table, scenes[t].loaded, mode);
            CHECK(difference(scenes[t].table, results[t], expected) == "");
        }
    }
}

TEST_CASE("redistribute on devices: of what comes to many tables each step is one launch for all, and one upload") {
    auto const calls = [](std::size_t tables) {
        Random random(3);
        Setup setup;
        setup.from = setup.to = 4;
        setup.slots = 400;
        setup.fill = Fill::half;
        setup.kind = IdKind::hash63;
        setup.columns = 2;
        Scene const scene = draw_scene(setup, random);
        Outcome const expected = redistribute(scene.table, scene.loaded, Mode::route);
        std::vector<Result> results(tables, {scene.loaded, std::vector<Change>(scene.loaded.size()), {}});
        HostDevice device;
        for (Result const& result : results)
            for (ShardBuffers const& shard : result.shards) claim(device, shard);
        Index launched = 0;
        Index uploaded = 0;
        auto const ends = ReplayWorld(4).run([&](ReplayCommunicator& replay) {
            OnDevice comm(replay, device);
            HostWork work(device);
            auto const r = static_cast<std::size_t>(comm.rank());
            std::vector<MchTransition> list;
            for (Result& result : results) {
                list.push_back({library_table(scene.table, scene.table.saved_offsets, scene.saved_buckets),
                                library_table(scene.table, scene.table.offsets, scene.table.buckets),
                                library_state(scene.table, result.shards[r])});
                list.back().saved.name = list.back().current.name = errors::concat("table ", list.size());
            }
            if (r == 0) device.launches = device.uploads = 0;
            auto changes = reshard::detail::redistribute_with(work, std::span<MchTransition const>(list), comm,
                                                              library_options(Mode::route));
            if (r == 0) launched = device.launches;
            if (r == 0) uploaded = device.uploads;
            for (std::size_t t = 0; t < tables; ++t) results[t].changes[r] = change_of(changes[t].on_host());
        });
        for (RankEnd const& end : ends) CHECK(end.message == "");
        for (Result const& result : results) CHECK(difference(scene.table, result, expected) == "");
        return std::pair{launched, uploaded};
    };
    auto const [one, one_told] = calls(1);
    auto const [twenty, twenty_told] = calls(20);
    CHECK(one == 23);
    CHECK(twenty == 32);  // arguments of 20 tables do not always fit one launch
    CHECK(one_told == 9);
    CHECK(twenty_told == 11);
}

TEST_CASE("redistribute on devices: of many tables that are wrong the host's first is named, and nothing is written") {
    int refused = 0;
    int beside = 0;  // where a later table is wrong as well
    for (std::uint64_t seed : seeds(200)) {
        Random random(seed);
        Id const to = random.between(1, 3);
        Mode const mode = modes[random.between(0, 2)];
        MchOptions options = library_options(mode);
        options.accept_strays = random.chance(70);
        std::vector<Scene> scenes;
        int spoilt = 0;
        for (Id count = random.between(2, 4); count > 0; --count) {
            Setup setup;
            setup.from = random.between(1, 3);
            setup.to = to;
            setup.slots = random.between(4, 60);
            setup.fill = random.pick(std::vector<Fill>{Fill::half, Fill::all_but_one, Fill::all});
            setup.kind = IdKind::hash63;
            setup.columns = 2;
            scenes.push_back(draw_scene(setup, random));
            if (random.chance(40)) continue;
            spoil(scenes.back(), static_cast<std::size_t>(random.between(0, 7)), random);
            ++spoilt;
        }
        auto const carry = [&](std::vector<std::vector<ShardBuffers>>& shards, auto const& redistribute) {
            return ReplayWorld(static_cast<int>(to)).run([&](ReplayCommunicator& comm) {
                std::vector<MchTransition> tables;
                for (std::size_t t = 0; t < scenes.size(); ++t) {
                    Table const& table = scenes[t].table;
                    tables.push_back({library_table(table, table.saved_offsets, scenes[t].saved_buckets),
                                      library_table(table, table.offsets, table.buckets),
                                      library_state(table, shards[t][static_cast<std::size_t>(comm.rank())])});
                    tables.back().saved.name = tables.back().current.name = errors::concat("table ", t);
                }
                redistribute(std::span<MchTransition const>(tables), comm);
            });
        };
        std::vector<std::vector<ShardBuffers>> loaded;
        for (Scene const& scene : scenes) loaded.push_back(scene.loaded);
        auto on_host = loaded;
        auto const expected = carry(on_host, [&](auto tables, ReplayCommunicator& comm) {
            static_cast<void>(reshard::redistribute(tables, comm, options));
        });
        auto on_device = loaded;
        HostDevice device;
        device.order = ThreadOrder::shuffled;
        for (auto const& shards : on_device)
            for (ShardBuffers const& shard : shards) claim(device, shard);
        auto const ends = carry(on_device, [&](auto tables, ReplayCommunicator& replay) {
            OnDevice comm(replay, device);
            HostWork work(device);
            static_cast<void>(reshard::detail::redistribute_with(work, tables, comm, options));
        });
        CAPTURE(seed);
        for (std::size_t r = 0; r < ends.size(); ++r) CHECK(ends[r].message == expected[r].message);
        CHECK((on_device == on_host));
        bool const fails = !ends[0].message.empty();
        CHECK((on_device == loaded || !fails));
        refused += fails ? 1 : 0;
        beside += fails && spoilt > 1 ? 1 : 0;
    }
    CHECK(refused > test::of_seeds(100));
    CHECK(beside > test::of_seeds(50));
}

TEST_CASE("redistribute on devices: memory of the host, misaligned or refused is the same error on every rank") {
    Random random(7);
    Setup setup;
    setup.from = 2;
    setup.to = 3;
    setup.slots = 90;
    Scene const scene = draw_scene(setup, random);
    Table const& table = scene.table;
    MchTable const saved = library_table(table, table.saved_offsets, scene.saved_buckets);
    MchTable const current = library_table(table, table.offsets, table.buckets);
    auto const run = [&](auto const& spoil, Index refused_from = INT64_MAX) {
        std::vector<ShardBuffers> shards = scene.loaded;
        HostDevice device;  // knows of nothing that lay where this memory is
        device.refused_from = refused_from;
        for (ShardBuffers const& shard : shards) claim(device, shard);
        auto const ends = ReplayWorld(3).run([&](ReplayCommunicator& replay) {
            OnDevice comm(replay, device);
            HostWork work(device);
            std::vector<MchTransition> list{
                {saved, current, library_state(table, shards[static_cast<std::size_t>(comm.rank())])}};
            device.allocations = 0;
            if (comm.rank() == 1) spoil(device, list);
            static_cast<void>(reshard::detail::redistribute_with(work, std::span<MchTransition const>(list), comm,
                                                                 library_options(Mode::route)));
        });
        CHECK((shards == scene.loaded) == (ends[0].code != ErrorCode::none));
        for (RankEnd const& end : ends) CHECK(end.message == ends[0].message);
        return ends[0];
    };
    using List = std::vector<MchTransition>;
    RankEnd end = run([](HostDevice& where, List& list) { where.release(list[0].state.slots.data()); });
    CHECK(end.code == ErrorCode::buffer);
    CAPTURE(end.message);
    CHECK(end.message.find("'user': on rank 1: the column of slots is memory of the host") != std::string::npos);
    end = run([](HostDevice&, List& list) {
        DynamicView& ids = list[0].state.ids;
        ids = DynamicView(ids.data() + 4, DType::i64, ids.shape());
    });
    CHECK(end.code == ErrorCode::buffer);
    end = run([](HostDevice&, List& list) {
        list.push_back(list[0]);
        list[1].saved.name = list[1].current.name = "item";
    });
    CHECK(end.code == ErrorCode::buffer);
    CHECK(end.message.find("'item': on rank 1: a column overlaps one of table 'user'. Fix: ") != std::string::npos);
    std::vector<Id> zeros(16);
    end = run([&](HostDevice& where, List& list) {
        Table buckets;
        buckets.bucketed = true;
        buckets.policy = Policy::none;
        buckets.buckets = 24;
        buckets.saved_offsets = chunk_offsets(48, 2);
        buckets.offsets = chunk_offsets(48, 3);
        where.claim(zeros.data(), 8 * 16);
        list[0].saved = library_table(buckets, buckets.saved_offsets, 24);
        list[0].current = library_table(buckets, buckets.offsets, 24);
        list[0].state = MchState{};
        list[0].state.ids = TensorView<Id>(zeros.data(), Shape{16});
    });
    CHECK(end.code == ErrorCode::mismatch);
    CHECK(end.message.find("all 16 ids from position 16 on are zero: the state was never loaded") != std::string::npos);
    end = run([](HostDevice&, List& list) {
        MchTransition& one = list[0];
        for (int c = 0; c < 15; ++c) {
            std::string const name = errors::concat("more ", c);
            one.saved.metadata.push_back({name, 1, 0});
            one.current.metadata.push_back({name, 1, 0});
            static std::vector<std::vector<std::uint8_t>> memory;
            memory.emplace_back(30);
            one.state.metadata.push_back({name, TensorView<std::uint8_t>(memory.back().data(), Shape{30})});
        }
    });
    CHECK(end.code == ErrorCode::shape);
    for (Index nth = 0; nth < 100; ++nth) {
        end = run([](HostDevice&, List&) {}, nth);
        if (end.code == ErrorCode::none) break;
        CHECK(end.code == ErrorCode::out_of_memory);
        CHECK(nth < 90);
    }
}

TEST_CASE("redistribute on devices: rows follow their ids as on the host") {
    for (std::uint64_t seed : seeds(80)) {
        Random random(seed);
        Setup setup;
        setup.from = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
        setup.to = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
        setup.slots = random.between(1, 300);
        setup.fill = random.pick(std::vector<Fill>{Fill::half, Fill::all_but_one, Fill::all});
        setup.kind = IdKind::hash63;
        Scene const scene = draw_scene(setup, random);
        Table const& table = scene.table;
        Outcome const expected = redistribute(table, scene.loaded, Mode::route);
        Index const width = random.pick(std::vector<Index>{1, 3, 4, 8, 20});
        std::vector<std::vector<std::uint8_t>> rows;
        std::vector<std::vector<float>> states;
        for (std::size_t p = 0; p < table.parts(); ++p) {
            auto const z = static_cast<std::size_t>(table.offsets[p + 1] - table.offsets[p]);
            rows.emplace_back(z * static_cast<std::size_t>(width));
            states.emplace_back(z);
            for (auto& byte : rows.back()) byte = static_cast<std::uint8_t>(random.engine()());
            for (auto& number : states.back()) number = static_cast<float>(random.between(0, 1000));
        }
        auto const views_of = [&](auto& bytes, auto& numbers, std::size_t r) {
            auto const z = static_cast<Index>(numbers[r].size());
            return std::vector<DynamicView>{DynamicView(bytes[r].data(), DType::u8, Shape{z, width}),
                                            DynamicView(numbers[r].data(), DType::f32, Shape{z})};
        };
        MchTable const current = library_table(table, table.offsets, table.buckets);
        auto host_rows = rows;
        auto host_states = states;
        HostDevice device;
        device.order = ThreadOrder::shuffled;
        std::vector<std::vector<MchRowMove>> moves(table.parts());
        for (std::size_t r = 0; r < table.parts(); ++r) {
            for (auto const& [from, to] : expected.changes[r].moves) moves[r].push_back({from, to});
            device.claim(moves[r].data(), 16 * static_cast<Index>(moves[r].size()));
            device.claim(rows[r].data(), static_cast<Index>(rows[r].size()));
            device.claim(states[r].data(), 4 * static_cast<Index>(states[r].size()));
        }
        auto const ends = ReplayWorld(static_cast<int>(table.parts())).run([&](ReplayCommunicator& replay) {
            OnDevice comm(replay, device);
            HostWork work(device);
            auto const r = static_cast<std::size_t>(comm.rank());
            reshard::detail::apply_row_moves_with(work, moves[r], current, views_of(rows, states, r), comm);
        });
        static_cast<void>(ReplayWorld(static_cast<int>(table.parts())).run([&](ReplayCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            apply_row_moves(moves[r], current, views_of(host_rows, host_states, r), comm);
        }));
        CAPTURE(seed);
        INFO(to_string(setup));
        for (RankEnd const& end : ends) CHECK(end.message == "");
        CHECK((rows == host_rows));
        CHECK((states == host_states));
    }
}

TEST_CASE("redistribute on devices: two moves to one row are refused on every rank, and no row is written") {
    MchTable const table = mch_table("user", Mesh{3}, 90, MchEviction::lfu);
    std::vector<std::vector<std::uint16_t>> rows(3, std::vector<std::uint16_t>(30, 9));
    std::vector<std::vector<MchRowMove>> moves(3);
    moves[0] = {{40, 0}};
    moves[1] = {{0, 59}, {1, 31}, {2, 59}, {89, 31}, {3, 30}};
    HostDevice device;
    device.order = ThreadOrder::shuffled;
    for (std::size_t r = 0; r < 3; ++r) {
        device.claim(moves[r].data(), 16 * static_cast<Index>(moves[r].size()));
        device.claim(rows[r].data(), 60);
    }
    auto const ends = ReplayWorld(3).run([&](ReplayCommunicator& replay) {
        OnDevice comm(replay, device);
        HostWork work(device);
        auto const r = static_cast<std::size_t>(comm.rank());
        DynamicView const view(rows[r].data(), DType::u16, Shape{30});
        reshard::detail::apply_row_moves_with(work, moves[r], table, std::span(&view, 1), comm);
    });
    for (RankEnd const& end : ends) {
        CHECK(end.code == ErrorCode::mismatch);
        CHECK(end.message ==
              "rank 1 of 3: reshard::mch: table 'user': on rank 1: two moves end at row 31. Fix: pass "
              "the moves that redistribute() returned on this rank, each once.");
    }
    for (auto const& part : rows) CHECK(part == std::vector<std::uint16_t>(30, 9));
}
