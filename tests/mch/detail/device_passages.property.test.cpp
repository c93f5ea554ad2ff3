// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/detail/device_*.hpp: redistribute() on devices, its kernels run on the host, against the
// sequential oracle and against the host's redistribute().
#include <reshard/mch/detail/device_passages.hpp>
#include <reshard/mch/detail/device_row_moves.hpp>

#include <doctest/doctest.h>

#include <cuda/support/host_work.hpp>
#include <mch/support/scenes.hpp>

namespace {
using namespace reshard;
using namespace reshard::test;
using namespace reshard::test::reference;

constexpr Mode modes[] = {Mode::route, Mode::slot_owner_keep, Mode::slot_owner_drop};
constexpr Id worlds[] = {1, 2, 3, 4, 6, 8};

void claim(HostDevice& device, ShardBuffers const& shard) {
    for (Ids const* column : {&shard.raw, &shard.slots, &shard.segments, &shard.iteration}) {
        device.claim(column->data(), 8 * static_cast<Index>(column->size()));
    }
    for (auto const& column : shard.metadata) device.claim(column.data(), static_cast<Index>(column.size()));
}

struct DeviceRun {
    Result result;
    Index downloaded = 0;
};

DeviceRun run_on_device(Scene const& scene, Mode mode, ReceiveOrder how, ThreadOrder threads) {
    Table const& table = scene.table;
    DeviceRun run;
    Result& result = run.result;
    result = {scene.loaded, std::vector<Change>(scene.loaded.size()), {}};
    MchTable const saved = library_table(table, table.saved_offsets, scene.saved_buckets);
    MchTable const current = library_table(table, table.offsets, table.buckets);
    HostDevice device;
    device.order = threads;
    for (ShardBuffers const& shard : result.shards) claim(device, shard);
    std::size_t const claimed = device.pieces();
    result.ends = ReplayWorld(static_cast<int>(table.parts())).run([&](ReplayCommunicator& replay) {
        OnDevice comm(replay, device);
        auto const r = static_cast<std::size_t>(comm.rank());
        if (r == 0) device.downloaded = 0;  // ranks run anew: what the last time took counts
        MchState const state = library_state(table, result.shards[r]);
        MchTransition const one{saved, current, state};
        HostWork work(device);
        auto changes = reshard::detail::redistribute_with(work, std::span(&one, 1), comm, library_options(mode), how);
        if (r == 0) run.downloaded = device.downloaded;
        MchChange const change = changes[0].on_host();
        CHECK(change.moves.size() == changes[0].moves().size());
        CHECK(change.evicted.size() == changes[0].evicted().size());
        CHECK(change.left_out.size() == changes[0].left_out().size());
        result.changes[r] = change_of(change);
    });
    CHECK(device.pieces() == claimed);
    return run;
}

std::string check(Scene const& scene, Mode mode, ReceiveOrder how, ThreadOrder threads) {
    DeviceRun const run = run_on_device(scene, mode, how, threads);
    Outcome const expected = redistribute(scene.table, scene.loaded, mode);
    std::string const differs = difference(scene.table, run.result, expected);
    if (!differs.empty()) return differs;
    auto const ranks = static_cast<Id>(run.result.ends.size());
    Id bytes = 0;
    for (RankEnd const& end : run.result.ends) {
        if (end.exchanges != (ranks == 1 ? 0 : 2)) return "not one exchange of headers and one of entries";
        if (end.agreements != (ranks == 1 ? 0 : 3)) return "not an agreement before each exchange and before writing";
        bytes += end.traffic.bytes_sent;
    }
    if (bytes != ranks * (ranks - 1) * 16 + expected.bytes) return "bytes are not headers and entries";
    // Reports and headers; of a run of ids where it begins.
    if (run.downloaded > 1500 + 100 * ranks + 4 * reshard::detail::most_descents) return "columns went to the host";
    return {};
}

}  // namespace

TEST_CASE("redistribute on devices: equals the oracle in all modes, orders of threads, sorted or merged") {
    for (std::uint64_t seed : seeds(300)) {
        Random random(seed);
        Setup setup;
        setup.from = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
        setup.to = random.pick(std::vector<Id>(std::begin(worlds), std::end(worlds)));
        setup.slots = random.chance(50) ? random.between(1, 40) : random.between(1, 1500);
        setup.fill = random.pick(
            std::vector<Fill>{Fill::nothing, Fill::one_id, Fill::half, Fill::all_but_one, Fill::all, Fill::all});
        setup.kind = random.pick(std::vector<IdKind>{IdKind::small, IdKind::hash63, IdKind::any});
        setup.columns = static_cast<int>(random.between(0, 3));
        setup.one_destination = random.chance(20);
        setup.plain = random.chance(50);
        Scene const scene = draw_scene(setup, random);
        Mode const mode = modes[random.between(0, 2)];
        auto const how =
            random.pick(std::vector<ReceiveOrder>{ReceiveOrder::automatic, ReceiveOrder::sort, ReceiveOrder::merge});
        auto const threads =
            random.pick(std::vector<ThreadOrder>{ThreadOrder::up, ThreadOrder::down, ThreadOrder::shuffled});
        CAPTURE(seed);
        INFO(to_string(setup));
        CAPTURE(static_cast<int>(mode));
        CAPTURE(static_cast<int>(how));
        CHECK(check(scene, mode, how, threads) == "");
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
