// SPDX-License-Identifier: Apache-2.0
// The launches whose traffic tests/cuda/watch counts on the host, once each, for a profiler to count theirs:
//
//     ncu --csv --page raw --print-units base --metrics $(compare_traffic.py --metrics) reshard_device_traffic
//
// What compare_traffic.py makes of it: predicted and measured. scripts/gpu-test runs both.
#include "cuda/device/device_test.cuh"
#include "cuda/support/traffic_case.hpp"

#include <reshard/cuda/device_work.cuh>
#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/partition_by_rank.cuh>
#include <reshard/cuda/split_counts.cuh>

#include <algorithm>
#include <memory>

using namespace reshard;
using namespace reshard::test;

DEVICE_TEST("traffic: a partition of 32768 entries, its split counts, a merge of 8 runs") {
    TrafficCase const given;
    PartitionCase const& table = given.partition;
    Stream stream;
    std::vector<std::unique_ptr<DeviceArray<std::byte>>> memory;
    WordColumns columns;
    for (Bytes const& column : table.columns) {
        memory.push_back(std::make_unique<DeviceArray<std::byte>>(column));
        columns.data.push_back(reinterpret_cast<Index const*>(memory.back()->data()));
    }
    ByTwoWords const rule{columns.data[0], columns.data[1], table.world};
    DevicePartition partition(table.entries, table.world, PartitionMethod::tiles);
    DeviceArray<std::byte> const workspace(static_cast<std::size_t>(partition.workspace_bytes()));
    DeviceArray<std::byte> const packed(static_cast<std::size_t>(partition.most_packed_bytes(columns)));
    std::vector<Index> words(static_cast<std::size_t>(PartitionReport::words(table.world)));
    partition.count(rule, columns, workspace.span(), stream);
    partition.copy_report(words, stream);
    partition.scatter(columns, packed.span(), stream);
    stream.wait();
    CHECK(PartitionReport(words, table.world).packed_bytes() == 8 * columns_of_table * table.entries);

    DeviceArray<Index> const destinations(table.destinations);
    DeviceArray<Index> const counts(static_cast<std::size_t>(table.world));
    DeviceArray<SplitFaults> const faults(1);
    split_counts(table.entries, ByList{destinations.data()}, counts.span(), faults.data(), stream);
    stream.wait();

    DeviceWork work(stream);
    std::vector<std::uint32_t> const values(given.runs.keys.size());
    detail::WorkList<Index, DeviceWork> const here(work, std::span<Index const>(given.runs.keys));
    detail::WorkList<Index, DeviceWork> const there(work, here.size());
    detail::WorkList<std::uint32_t, DeviceWork> const here_values(work, std::span<std::uint32_t const>(values));
    detail::WorkList<std::uint32_t, DeviceWork> const there_values(work, here.size());
    detail::MergeRuns<DeviceWork> merges;
    bool const in_other =
        merges.add(given.runs.begins, {here.data(), here_values.data()}, {there.data(), there_values.data()});
    merges.run(work);
    std::vector<Index> sorted = given.runs.keys;
    std::sort(sorted.begin(), sorted.end());
    CHECK((in_other ? there : here).host(work) == sorted);
}

int main() { return run_device_tests(); }
