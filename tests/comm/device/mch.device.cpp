// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"
#include "mch_on_streams.hpp"

#include <atomic>
#include <chrono>

using namespace reshard;
using namespace reshard::test;

TEST_CASE("redistribute on devices: ranks that are threads, everything in the order of their streams") {
    check_mch_on_streams(40, [](int ranks, auto const& body) {
        check_none(on_devices(ranks, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
            DeviceThreadCommunicator comm(std::move(host), stream);
            body(comm, stream);
        }));
    });
    check_nothing_left();
}

TEST_CASE("redistribute on devices: a device that is never done ends the call on all ranks; what it may use is kept") {
    using namespace reference;
    fake::reset();
    std::atomic<bool> const never = false;
    Setup setup;
    setup.from = setup.to = 2;
    setup.slots = 100;
    Random random(1);
    Scene scene = draw_scene(setup, random);
    MchTable const saved = library_table(scene.table, scene.table.saved_offsets, scene.saved_buckets);
    MchTable const current = library_table(scene.table, scene.table.offsets, scene.table.buckets);
    HostDevice device;
    for (ShardBuffers const& shard : scene.loaded) claim(device, shard);
    auto const ended = on_devices(2, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        DeviceThreadCommunicator comm(std::move(host), stream);
        CHECK(comm.patience().deadline == std::chrono::minutes(5));
        StreamWork work(device, stream, {std::chrono::milliseconds(50), comm.patience().stuck});
        if (comm.rank() == 0) fake::hold(stream, never);
        auto const r = static_cast<std::size_t>(comm.rank());
        MchTransition const one{saved, current, library_state(scene.table, scene.loaded[r])};
        static_cast<void>(reshard::detail::redistribute_with(work, std::span(&one, 1), comm, {}));
    });
    for (Ended const& each : ended) {
        CAPTURE(each.text);
        CHECK(each.code == ErrorCode::deadline);
        CHECK(each.says("rank 0 of 2: reshard: StreamWork waited 50 ms for its device to be done"));
    }
    CHECK(fake::counts().freed_while_held == 0);
    check_only_windows_left(1, 1);
}
