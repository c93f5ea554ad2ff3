// SPDX-License-Identifier: Apache-2.0
// MCH tables whose columns lie on devices, end to end: ranks as threads that share the GPUs there are, against the
// oracle of the host's tests.
#include "cuda/device/device_test.cuh"

#include <reshard/comm/device_threads.hpp>
#include <reshard/mch/redistribute.cuh>

#include "mch/support/scenes.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

using namespace reshard;
using namespace reshard::test;
using namespace reshard::test::reference;

namespace {

/// One rank's buffers on the device, and a state of them.
struct OnDevice {
    explicit OnDevice(Table const& table, ShardBuffers& shard)
        : raw(shard.raw), slots(shard.slots), segments(shard.segments), iteration(shard.iteration) {
        state = library_state(table, shard);
        state.ids = view(state.ids, raw.data());
        state.slots = view(state.slots, slots.data());
        state.segments = view(state.segments, segments.data());
        state.iteration = view(state.iteration, iteration.data());
        for (std::size_t c = 0; c != shard.metadata.size(); ++c) {
            metadata.push_back(std::make_unique<DeviceArray<std::uint8_t>>(shard.metadata[c]));
            state.metadata[c].view = view(state.metadata[c].view, metadata.back()->data());
        }
    }
    static DynamicView view(DynamicView const& of, void* data) { return DynamicView(data, of.dtype(), of.shape()); }
    [[nodiscard]] ShardBuffers host() const {
        ShardBuffers shard{raw.host(), slots.host(), {}, segments.host(), iteration.host()};
        for (auto const& column : metadata) shard.metadata.push_back(column->host());
        return shard;
    }
    [[nodiscard]] bool is_intact() const {
        bool intact = raw.is_intact(8 * raw.size()) && slots.is_intact(8 * slots.size());
        for (auto const& column : metadata) intact = intact && column->is_intact(column->size());
        return intact;
    }

    DeviceArray<Index> raw, slots, segments, iteration;
    std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> metadata;
    MchState state;
};

/// Runs body(comm, stream) on so many threads, on the devices there are; the first error's text.
template <class Body>
std::string on_gpus(int ranks, Body const& body) {
    int devices = 1;
    reshard::detail::cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& host) {
        auto const r = static_cast<std::size_t>(host.rank());
        reshard::detail::cuda_check(cudaSetDevice(host.rank() % devices), "cudaSetDevice");
        Stream stream;
        DeviceThreadCommunicator comm(std::move(host), stream);
        try {
            body(comm, stream);
            stream.wait();
        } catch (Error const& error) {
            errors[r] = error.message();
        }
        static_cast<void>(comm.agree({}));  // what others read of this rank's lives until then
    });
    for (std::string const& error : errors)
        if (!error.empty()) return error;
    return {};
}

Result run(Scene const& scene, Mode mode, std::string& error) {
    Table const& table = scene.table;
    Result result{scene.loaded, std::vector<Change>(scene.loaded.size()), {}};
    MchTable const saved = library_table(table, table.saved_offsets, scene.saved_buckets);
    MchTable const current = library_table(table, table.offsets, table.buckets);
    error = on_gpus(static_cast<int>(table.parts()), [&](DeviceThreadCommunicator& comm, Stream& stream) {
        auto const r = static_cast<std::size_t>(comm.rank());
        OnDevice shard(table, result.shards[r]);
        reshard::detail::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        MchTransition const one{saved, current, shard.state};
        std::vector<MchDeviceChange> changes;
        auto const finish = [&] {
            stream.wait();
            result.shards[r] = shard.host();
            CHECK(shard.is_intact());
        };
        try {
            changes = redistribute_on_device(std::span(&one, 1), comm, library_options(mode));
        } catch (Error const&) {
            finish();
            throw;
        }
        result.changes[r] = change_of(changes[0].on_host());
        finish();
    });
    return result;
}

Scene draw(Random& random, Id most_slots) {
    Setup setup;
    std::vector<Id> const worlds{1, 2, 3, 4};
    setup.from = random.pick(worlds);
    setup.to = random.pick(worlds);
    setup.slots = random.between(1, most_slots);
    setup.fill = random.pick(std::vector<Fill>{Fill::nothing, Fill::half, Fill::all_but_one, Fill::all});
    setup.kind = random.pick(std::vector<IdKind>{IdKind::small, IdKind::hash63, IdKind::any});
    setup.columns = static_cast<int>(random.between(0, 3));
    setup.one_destination = random.chance(20);
    return draw_scene(setup, random);
}

constexpr Mode modes[] = {Mode::route, Mode::slot_owner_keep, Mode::slot_owner_drop};

}  // namespace

DEVICE_TEST("redistribute on devices: equals the oracle on 1 to 4 ranks, in all modes") {
    for (std::uint64_t seed : device_seeds(60)) {
        Random random(seed);
        Scene const scene = draw(random, seed % 10 == 0 ? 100000 : 3000);
        Mode const mode = modes[random.between(0, 2)];
        device_case() = errors::concat("seed ", seed, ", mode ", static_cast<int>(mode));
        std::string error;
        Result const is = run(scene, mode, error);
        CHECK(error.empty());
        std::string const differs =
            error.empty() ? difference(scene.table, is, redistribute(scene.table, scene.loaded, mode)) : error;
        if (!differs.empty()) std::printf("%s\n", differs.c_str());
        CHECK(differs.empty());
    }
}

DEVICE_TEST("redistribute on devices: a slot held twice is refused on every rank, and nothing is written") {
    for (std::uint64_t seed : device_seeds(15)) {
        Random random(seed);
        Scene scene = draw(random, 2000);
        ShardBuffers& shard = scene.loaded[0];
        if (shard.raw.size() < 2) continue;
        shard.slots[1] = shard.slots[0];
        shard.raw[0] = 4;
        shard.raw[1] = 5;
        device_case() = errors::concat("seed ", seed);
        std::string error;
        Result const is = run(scene, Mode::slot_owner_keep, error);
        CHECK(!error.empty());
        CHECK(is.shards == scene.loaded);
    }
}

DEVICE_TEST("redistribute on devices: rows follow their ids") {
    for (std::uint64_t seed : device_seeds(20)) {
        Random random(seed);
        Scene const scene = draw(random, 2000);
        Table const& table = scene.table;
        Outcome const expected = redistribute(table, scene.loaded, Mode::route);
        Index const width = random.pick(std::vector<Index>{1, 3, 16, 64});
        std::vector<float> all(static_cast<std::size_t>(table.slots() * width));
        for (float& one : all) one = static_cast<float>(random.between(0, 1 << 20));
        std::vector<float> moved = all;
        for (Change const& change : expected.changes) {
            for (auto const& [from, to] : change.moves) {
                std::copy(all.begin() + from * width, all.begin() + (from + 1) * width, moved.begin() + to * width);
            }
        }
        std::vector<float> result(all.size());
        MchTable const current = library_table(table, table.offsets, table.buckets);
        device_case() = errors::concat("seed ", seed, ", width ", width);
        std::string const error =
            on_gpus(static_cast<int>(table.parts()), [&](DeviceThreadCommunicator& comm, Stream& stream) {
                auto const r = static_cast<std::size_t>(comm.rank());
                Index const begin = table.offsets[r] * width;
                Index const end = table.offsets[r + 1] * width;
                DeviceArray<float> rows(std::vector<float>(all.begin() + begin, all.begin() + end));
                std::vector<MchRowMove> list;
                for (auto const& [from, to] : expected.changes[r].moves) list.push_back({from, to});
                DeviceArray<MchRowMove> const moves(list);
                reshard::detail::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                DynamicView const view(rows.data(), DType::f32, Shape{(end - begin) / width, width});
                apply_row_moves_on_device(moves.span(), current, std::span<DynamicView const>(&view, 1), comm);
                stream.wait();
                auto const mine = rows.host();
                std::copy(mine.begin(), mine.end(), result.begin() + begin);
                CHECK(rows.is_intact(4 * rows.size()));
            });
        CHECK(error.empty());
        CHECK(result == moved);
    }
}

DEVICE_TEST("a device that is never done is waited for until the deadline, also where CUDA would wait in a copy") {
    Stream stream;
    DeviceWork work(stream, {}, {std::chrono::milliseconds(100)});
    DeviceArray<Index> const there(std::size_t{1} << 15U);
    std::vector<Index> here(there.size(), 7);
    std::atomic<bool> goes_on = false;
    auto const hold = [](void* until) {
        while (!*static_cast<std::atomic<bool> const*>(until))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    reshard::detail::cuda_check(cudaLaunchHostFunc(stream, hold, &goes_on), "cudaLaunchHostFunc");
    CHECK_THROWS(DeadlineExceeded, work.wait());
    CHECK_THROWS(DeadlineExceeded, work.download(here.data(), there.data(), 8));
    CHECK_THROWS(DeadlineExceeded, work.upload(there.data(), here.data(), 8 * static_cast<Index>(here.size())));
    goes_on = true;
    work.upload(there.data(), here.data(), 8 * static_cast<Index>(here.size()));
    here.assign(here.size(), 0);
    work.download(here.data(), there.data(), 8 * static_cast<Index>(here.size()));
    CHECK(here == std::vector<Index>(here.size(), 7));
}

int main() { return run_device_tests(); }
