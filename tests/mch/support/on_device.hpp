// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/on_device.hpp
/// \brief  A scene carried to other ranks by redistribute_with(), on a device that is the host, against the oracle.
#pragma once

#include <reshard/mch/detail/device_tables.hpp>

#include <doctest/doctest.h>

#include <cuda/support/host_work.hpp>
#include <mch/support/scenes.hpp>

#include <string>
#include <vector>

namespace reshard::test::reference {

inline constexpr Mode modes[] = {Mode::route, Mode::slot_owner_keep, Mode::slot_owner_drop};

inline void claim(HostDevice& device, ShardBuffers const& shard) {
    for (Ids const* column : {&shard.raw, &shard.slots, &shard.segments, &shard.iteration}) {
        device.claim(column->data(), 8 * static_cast<Index>(column->size()));
    }
    for (auto const& column : shard.metadata) device.claim(column.data(), static_cast<Index>(column.size()));
}

struct DeviceRun {
    Result result;
    Index downloaded = 0;
    Index downloads = 0;
};

/// How often the host waits for the device, whatever the number of tables: counts, headers, what came, where runs
/// begin, its order, slots.
inline constexpr Index most_downloads = 6;

template <class Work = HostWork>
DeviceRun run_on_device(Scene const& scene, Mode mode, ThreadOrder threads, bool accept_strays = true) {
    MchOptions options = library_options(mode);
    options.accept_strays = accept_strays;
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
        if (r == 0) device.downloaded = device.downloads = 0;  // ranks run anew: what the last time took counts
        MchState const state = library_state(table, result.shards[r]);
        MchTransition const one{saved, current, state};
        Work work(device);
        auto changes = reshard::detail::redistribute_with(work, std::span(&one, 1), comm, options);
        if (r == 0) run.downloaded = device.downloaded;
        if (r == 0) run.downloads = device.downloads;
        MchChange const change = changes[0].on_host();
        CHECK(change.moves.size() == changes[0].moves().size());
        CHECK(change.evicted.size() == changes[0].evicted().size());
        CHECK(change.left_out.size() == changes[0].left_out().size());
        CHECK(change.freed.size() == changes[0].freed().size());
        result.changes[r] = change_of(change);
    });
    CHECK(device.pieces() == claimed);
    return run;
}

/// What is wrong with it, or nothing.
template <class Work = HostWork>
std::string check_on_device(Scene const& scene, Mode mode, ThreadOrder threads) {
    DeviceRun const run = run_on_device<Work>(scene, mode, threads);
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
    if (run.downloaded > 1500 + 100 * ranks + 4096) return "columns went to the host";
    if (run.downloads > most_downloads) return "the host waited too often for the device";
    return {};
}

}  // namespace reshard::test::reference
