// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/device_test.cuh"
#include "support/mch_kernels.hpp"

#include <reshard/cuda/partition_by_rank.cuh>
#include <reshard/cuda/split_counts.cuh>
#include <reshard/mch/routing.hpp>

#include <thrust/execution_policy.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstring>
#include <memory>

using namespace reshard;
using namespace reshard::test;

namespace {

/// The device's partition of a case, for tests/support/mch_kernels.hpp.
template <class Columns>
PartitionResult partition_on_device(PartitionCase const& given, Columns const& columns, PartitionMethod method) {
    Stream stream;
    DeviceArray<Index> const destinations(given.destinations);
    ByList const rule{destinations.data()};
    DevicePartition partition(given.entries, given.world, method);
    auto const needed = static_cast<std::size_t>(partition.workspace_bytes());
    DeviceArray<std::byte> const workspace(needed);
    DeviceArray<std::byte> const packed(static_cast<std::size_t>(partition.most_packed_bytes(columns)));
    std::vector<Index> words(static_cast<std::size_t>(PartitionReport::words(given.world)), -7);
    partition.count(rule, columns, workspace.span(), stream);
    partition.copy_report(words, stream);
    partition.scatter(columns, packed.span(), stream);
    stream.wait();
    PartitionReport const report(words, given.world);
    PartitionResult result;
    result.counts.assign(report.counts().begin(), report.counts().end());
    result.begins.assign(report.begins().begin(), report.begins().end());
    result.blocks.assign(report.blocks().begin(), report.blocks().end());
    auto const bytes = static_cast<std::size_t>(report.packed_bytes());
    result.packed = packed.host(bytes);
    result.guards_intact = workspace.is_intact(needed) && packed.is_intact(bytes);
    Index wrong = 0;
    for (Index to : given.destinations) wrong += to != not_sent && (to < 0 || to >= given.world);
    CHECK(report.out_of_range() == wrong);
    return result;
}

/// Columns on the device.
struct DeviceCase {
    std::vector<std::unique_ptr<DeviceArray<std::byte>>> memory;
    ByteColumns bytes;
    WordColumns words;
    bool all_words = true;
    explicit DeviceCase(PartitionCase const& given) {
        for (std::size_t c = 0; c != given.columns.size(); ++c) {
            memory.push_back(std::make_unique<DeviceArray<std::byte>>(given.columns[c]));
            bytes.add(memory.back()->data(), given.widths[c]);
            words.data.push_back(reinterpret_cast<Index const*>(memory.back()->data()));
            all_words = all_words && given.widths[c] == 8;
        }
    }
};

void check_case(PartitionCase const& given, PartitionMethod method) {
    DeviceCase const device(given);
    auto const expected = partition_oracle(given);
    CHECK(partition_on_device(given, device.bytes, method) == expected);
    if (device.all_words) CHECK(partition_on_device(given, device.words, method) == expected);
}

}  // namespace

DEVICE_TEST("device partition: equals the host's oracle for random worlds, widths and skews, by tiles and by sort") {
    std::vector<Index> const worlds{1, 2, 3, 4, 7, 8, 24, 25, 33, 64, 65, 255, 256};
    std::vector<Index> const widths{1, 2, 3, 4, 7, 8, 8, 8, 12, 16, 24};
    std::vector<Skew> const skews{Skew::even, Skew::to_one, Skew::few, Skew::blocks, Skew::none_kept};
    for (std::uint64_t seed : device_seeds(60)) {
        Random random(seed);
        Index const entries = random.pick(
            std::vector<Index>{0, 1, 2, 31, 33, 256, 2047, 2048, 2049, 4096, 4097, random.between(0, 30000)});
        std::vector<Index> columns(static_cast<std::size_t>(random.between(1, 6)), 8);
        if (random.chance(60)) {
            for (Index& width : columns) width = random.pick(widths);
        }
        auto const given = random_partition(random, entries, random.pick(worlds), columns, random.pick(skews));
        device_case() = errors::concat("seed ", seed, ", entries ", entries, ", world ", given.world);
        check_case(given, PartitionMethod::tiles);
        check_case(given, PartitionMethod::sort);
    }
}

DEVICE_TEST("device partition: more than 256 destinations are sorted") {
    for (std::uint64_t seed : device_seeds(6)) {
        Random random(seed);
        auto const given =
            random_partition(random, 20000, random.pick(std::vector<Index>{257, 1024}), {8, 4, 8}, Skew::even);
        device_case() = errors::concat("seed ", seed);
        CHECK(DevicePartition(given.entries, given.world).method() == PartitionMethod::sort);
        check_case(given, PartitionMethod::automatic);
    }
}

DEVICE_TEST("device partition: thrust's stable sort gives the same order") {
    for (Index world : {2, 8, 64, 256}) {
        Random random(static_cast<std::uint64_t>(world));
        auto given = random_partition(random, small_sizes() ? 20'001 : 300'001, world, {8}, Skew::even);
        for (Index& to : given.destinations) to = to >= 0 && to < world ? to : not_sent;
        std::vector<Index> numbers;
        for (Index i = 0; i < given.entries; ++i) numbers.push_back(i);
        DeviceArray<Index> const column(numbers);
        DeviceArray<Index> keys(given.destinations);
        DeviceArray<Index> order(numbers);
        thrust::stable_sort_by_key(thrust::device, keys.data(), keys.data() + given.entries, order.data());
        auto const sorted = order.host();
        auto const dropped =
            static_cast<std::size_t>(std::count(given.destinations.begin(), given.destinations.end(), not_sent));
        WordColumns words;
        words.data.push_back(column.data());
        auto const result = partition_on_device(given, words, PartitionMethod::tiles);
        device_case() = errors::concat("world ", world);
        CHECK(result.packed.size() == (sorted.size() - dropped) * 8);
        CHECK(std::memcmp(result.packed.data(), sorted.data() + dropped, result.packed.size()) == 0);
    }
}

DEVICE_TEST("device partition: by slot and by raw id as the host routes them; slots out of range are counted") {
    Random random(7);
    Index const size = 5000;
    Index const entries = 40000;
    int const ranks = 7;
    std::vector<Index> ids;
    std::vector<Index> slots;
    for (Index i = 0; i < entries; ++i) {
        ids.push_back(random.chance(10) ? INT64_MAX : static_cast<Index>(random.engine()()));
        slots.push_back(random.chance(1) ? size : random.between(0, size - 1));
    }
    MchTable table;
    table.slots = mch_slots(DynamicMesh(Indices{ranks}), size);
    table.buckets = ranks;
    auto const offsets = table.offsets();
    DeviceArray<Index> const device_ids(ids);
    DeviceArray<Index> const device_slots(slots);
    DeviceArray<Index> const device_offsets(offsets);
    Stream stream;
    auto const run = [&](auto const& host_rule, auto const& device_rule) {
        std::vector<Index> expected(static_cast<std::size_t>(ranks));
        auto const faults = split_counts(entries, host_rule, expected);
        PartitionCase given;
        given.entries = entries;
        given.world = ranks;
        given.widths = {8};
        given.columns = {Bytes(reinterpret_cast<std::byte const*>(ids.data()),
                               reinterpret_cast<std::byte const*>(ids.data() + entries))};
        for (Index i = 0; i < entries; ++i) given.destinations.push_back(static_cast<Index>(host_rule(i)));
        WordColumns words;
        words.data.push_back(device_ids.data());
        DevicePartition partition(entries, ranks);
        DeviceArray<std::byte> const workspace(static_cast<std::size_t>(partition.workspace_bytes()));
        DeviceArray<std::byte> const packed(static_cast<std::size_t>(partition.most_packed_bytes(words)));
        std::vector<Index> words_of_report(static_cast<std::size_t>(PartitionReport::words(ranks)));
        partition.count(device_rule, words, workspace.span(), stream);
        partition.scatter(words, packed.span(), stream);
        partition.copy_report(words_of_report, stream);
        DeviceArray<Index> const counts(static_cast<std::size_t>(ranks));
        DeviceArray<SplitFaults> const counted(1);
        split_counts(entries, device_rule, counts.span(), counted.data(), stream);
        stream.wait();
        PartitionReport const report(words_of_report, ranks);
        auto const oracle = partition_oracle(given);
        CHECK(packed.host(oracle.packed.size()) == oracle.packed);
        CHECK(counts.host() == expected);
        CHECK(std::equal(expected.begin(), expected.end(), report.counts().begin()));
        CHECK(counted.host()[0].out_of_range == faults.out_of_range);
        CHECK(counted.host()[0].first == faults.first);
        CHECK(report.out_of_range() == static_cast<Index>(faults.out_of_range));
        CHECK(report.first_out_of_range() == static_cast<Index>(faults.first));
        if (faults.out_of_range != 0) CHECK_THROWS(MismatchError, report.check());
    };
    auto const even = EvenSlots::of(size, ranks);
    run(BySlot<EvenSlots>{slots.data(), even, ids.data()},
        BySlot<EvenSlots>{device_slots.data(), even, device_ids.data()});
    run(BySlot<SlotsAtOffsets>{slots.data(), {offsets.data(), ranks}, ids.data()},
        BySlot<SlotsAtOffsets>{device_slots.data(), {device_offsets.data(), ranks}, device_ids.data()});
    run(ById<Router>{ids.data(), Router(table)}, ById<Router>{device_ids.data(), Router(table)});
}

DEVICE_TEST("split counts: many ranks, and tails of tiles") {
    Stream stream;
    for (Index world : {1, 256, 257, 5000}) {
        for (Index entries : {0, 1, 2047, 2048, 2049, small_sizes() ? 5'000 : 1'000'003}) {
            Random random(static_cast<std::uint64_t>(entries + world));
            std::vector<Index> to;
            for (Index i = 0; i < entries; ++i) to.push_back(random.between(-1, world));
            DeviceArray<Index> const device(to);
            std::vector<Index> expected(static_cast<std::size_t>(world));
            auto const faults = split_counts(entries, ByList{to.data()}, expected);
            DeviceArray<Index> const counts(static_cast<std::size_t>(world));
            DeviceArray<SplitFaults> const counted(1);
            split_counts(entries, ByList{device.data()}, counts.span(), counted.data(), stream);
            stream.wait();
            device_case() = errors::concat("world ", world, ", entries ", entries);
            CHECK(counts.host() == expected);
            CHECK(counted.host()[0].out_of_range == faults.out_of_range);
            CHECK(counts.is_intact(counts.size() * 8));
        }
    }
}

DEVICE_TEST("device partition: captured in a graph and replayed on other data") {
    Random random(3);
    auto given = random_partition(random, 50000, 8, {8, 8}, Skew::even);
    auto const other = random_partition(random, 50000, 8, {8, 8}, Skew::few);
    DeviceCase const device(given);
    DeviceArray<Index> const destinations(given.destinations);
    ByList const rule{destinations.data()};
    DevicePartition partition(given.entries, given.world);
    DeviceArray<std::byte> const workspace(static_cast<std::size_t>(partition.workspace_bytes()));
    DeviceArray<std::byte> const packed(static_cast<std::size_t>(partition.most_packed_bytes(device.words)));
    Stream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    detail::cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    partition.count(rule, device.words, workspace.span(), stream);
    partition.scatter(device.words, packed.span(), stream);
    detail::cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    detail::cuda_check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    for (PartitionCase const* const now : std::vector<PartitionCase const*>{&given, &other}) {
        for (std::size_t c = 0; c != now->columns.size(); ++c) {
            detail::cuda_check(cudaMemcpy(device.memory[c]->data(), now->columns[c].data(), now->columns[c].size(),
                                          cudaMemcpyHostToDevice),
                               "cudaMemcpy");
        }
        detail::cuda_check(cudaMemcpy(destinations.data(), now->destinations.data(), now->destinations.size() * 8,
                                      cudaMemcpyHostToDevice),
                           "cudaMemcpy");
        detail::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // those copies may still be on their way
        detail::cuda_check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
        stream.wait();
        auto const expected = partition_oracle(*now);
        CHECK(packed.host(expected.packed.size()) == expected.packed);
    }
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
}

DEVICE_TEST("device partition: memory of the host, short memory, misaligned columns and bad numbers are typed errors") {
    Stream stream;
    std::vector<Index> host(1000);
    DeviceArray<Index> const column(host);
    WordColumns words;
    words.data.push_back(column.data());
    DevicePartition partition(1000, 4);
    DeviceArray<std::byte> const workspace(static_cast<std::size_t>(partition.workspace_bytes()));
    DeviceArray<std::byte> const packed(8000);
    ByList const rule{column.data()};
    CHECK_THROWS(TransitionError, partition.scatter(words, packed.span(), stream));
    CHECK_THROWS(BufferError, partition.count(rule, words, workspace.span().first(100), stream));
    WordColumns on_host;
    on_host.data.push_back(host.data());
    CHECK_THROWS(BufferError, partition.count(rule, on_host, workspace.span(), stream));
    WordColumns odd;
    odd.data.push_back(reinterpret_cast<Index const*>(reinterpret_cast<std::byte const*>(column.data()) + 4));
    CHECK_THROWS(BufferError, partition.count(rule, odd, workspace.span(), stream));
    WordColumns null;
    null.data.push_back(nullptr);
    CHECK_THROWS(BufferError, partition.count(rule, null, workspace.span(), stream));
    partition.count(rule, words, workspace.span(), stream);
    CHECK_THROWS(BufferError, partition.scatter(words, packed.span().first(7999), stream));
    std::vector<std::byte> host_packed(8000);
    CHECK_THROWS(BufferError, partition.scatter(words, std::span(host_packed), stream));
    CHECK_THROWS(ShapeError, DevicePartition(-1, 4));
    CHECK_THROWS(ShapeError, DevicePartition(1, 0));
    CHECK_THROWS(ShapeError, DevicePartition(1, 65536));
    CHECK_THROWS(ShapeError, DevicePartition(1, 257, PartitionMethod::tiles));
    CHECK_THROWS(ShapeError, DevicePartition(Index{1} << 33, 300));
    BySlot<SlotsAtOffsets> const long_table{column.data(), SlotsAtOffsets(column.data(), 257)};
    CHECK_THROWS(ShapeError, partition.count(long_table, words, workspace.span(), stream));
    stream.wait();
}

int main() { return run_device_tests(); }
