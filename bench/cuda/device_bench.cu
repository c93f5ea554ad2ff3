// SPDX-License-Identifier: Apache-2.0
//
// The goals of device code, on one GPU: partition, split counts, copies. Times are medians of events around single
// calls; bandwidth goals are ratios to cudaMemcpyAsync or cub::DeviceReduce over the same bytes, measured in turn.
//
//   reshard_device_bench [ENTRIES]     default 100,000,000
//
// Lines `measured NAME MILLISECONDS` are what bench/cuda/torch_chain.py compares PyTorch with; chain_... are what the
// same chain takes when it is made of CUB calls, for where there is no PyTorch.
#include "cuda/cub_chain.cuh"
#include "cuda/device_times.cuh"
#include "support/goal_lines.hpp"

#include <reshard/cuda/device_work.cuh>
#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/partition_by_rank.cuh>
#include <reshard/cuda/split_counts.cuh>
#include <reshard/memory/on_device.cuh>

#include <cub/device/device_reduce.cuh>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>  // gcd

using namespace reshard;
using namespace reshard::bench;

namespace {

void partitions(Table const& table, bench::Goals& goals) {
    Index const n = table.entries;
    Memory packed(8 * 5 * n + 4096);
    std::printf("\npartition of %lld entries, ms (GB/s of 16 (2 + K) + 20 bytes an entry)\n",
                static_cast<long long>(n));
    for (Index ranks : {2, 8, 64, 256}) {
        DevicePartition partition(n, ranks);
        Memory const workspace(partition.workspace_bytes());
        std::printf("  W = %3lld ", static_cast<long long>(ranks));
        for (int metadata = 0; metadata <= 3; ++metadata) {
            auto const columns = table.columns(metadata);
            auto const rule = table.rule(ranks);
            auto const times = milliseconds({[&] { partition.count(rule, columns, workspace.span(), stream); },
                                             [&] { partition.scatter(columns, packed.span(), stream); },
                                             [&] {
                                                 partition.count(rule, columns, workspace.span(), stream);
                                                 partition.scatter(columns, packed.span(), stream);
                                             }});
            double const bytes = static_cast<double>(n) * (16.0 * (2 + metadata) + 20);
            std::printf(" | K = %d: %6.3f (%5.0f; count %.3f, scatter %.3f)", metadata, times[2],
                        bytes / times[2] / 1e6, times[0], times[1]);
            if (ranks == 8 && metadata == 2) {
                std::printf("*");
                goals.at_most("gpu_partition_ms", times[2] * 1e8 / static_cast<double>(n), 2.5);
                std::printf("\nmeasured partition %.4f\n", times[2]);
            }
        }
        std::printf("\n");
    }
    // The second implementation, and whether both agree at this size.
    DevicePartition tiles(n, 8, PartitionMethod::tiles);
    DevicePartition sort(n, 8, PartitionMethod::sort);
    auto const columns = table.columns(2);
    auto const rule = table.rule(8);
    Memory const tiles_work(tiles.workspace_bytes());
    Memory const sort_work(sort.workspace_bytes());
    Memory other(8 * 4 * n + 4096);
    double const sorted = millisecond([&] {
        sort.count(rule, columns, sort_work.span(), stream);
        sort.scatter(columns, other.span(), stream);
    });
    tiles.count(rule, columns, tiles_work.span(), stream);
    tiles.scatter(columns, packed.span(), stream);
    check_same("partition by tiles and by CUB's sort", packed.data(), other.data(), 8 * 4 * n);
    std::printf("  W = 8, K = 2 by CUB's sort: %.3f; both write the same bytes\n", sorted);
}

void counts(Table const& table, bench::Goals& goals) {
    Index const n = table.entries;
    Memory list(8 * 256);
    Memory faults(sizeof(SplitFaults));
    Memory sum(8);
    std::size_t bytes = 0;
    check(cub::DeviceReduce::Sum(nullptr, bytes, table.slots.words(), sum.words(), n), "cub::DeviceReduce::Sum");
    Memory temporary(static_cast<Index>(bytes));
    std::printf("\nsplit counts of %lld entries by slot, ms beside cub::DeviceReduce over the same bytes\n",
                static_cast<long long>(n));
    for (Index ranks : {2, 8, 64, 256}) {
        BySlot<EvenSlots> const rule{table.slots.words(), EvenSlots::of(n, ranks)};
        auto const times = milliseconds(
            {[&] {
                 split_counts(n, rule, {list.words(), static_cast<std::size_t>(ranks)},
                              reinterpret_cast<SplitFaults*>(faults.data()), stream);
             },
             [&] {
                 check(cub::DeviceReduce::Sum(temporary.data(), bytes, table.slots.words(), sum.words(), n, stream),
                       "Sum");
             }});
        std::printf("  W = %3lld: %.3f beside %.3f\n", static_cast<long long>(ranks), times[0], times[1]);
        if (ranks == 8) goals.at_least("gpu_counts_vs_read", times[1] / times[0], 0.9);
    }
}

/// PyTorch's chain, made of CUB calls.
void chain(Table const& table) {
    Index const n = table.entries;
    bench::CubChain<Memory> steps(n, 8);
    Index const* const columns[] = {table.ids.words(), table.slots.words(), table.first.words(), table.second.words()};
    Memory made(32 * n);
    Index* const to[] = {made.words(), made.words() + n, made.words() + 2 * n, made.words() + 3 * n};
    auto const times = milliseconds({[&] { steps.partition(columns, to, stream); }}, 5);
    std::printf("\nPyTorch's chain from CUB calls: %.3f ms\nmeasured chain_partition %.4f\n", times[0], times[0]);
}

/// A receiver puts ids of 63 bits in order by merging the runs that came: beside a radix sort.
void orders(Index n) {
    Memory keys(8 * n), other_keys(8 * n), values(4 * n), other_values(4 * n);
    auto* const from = reinterpret_cast<std::uint32_t*>(values.data());
    auto* const to = reinterpret_cast<std::uint32_t*>(other_values.data());
    DeviceWork work(stream);
    std::printf("\nreceiver's order of %lld ids of 63 bits, ms\n", static_cast<long long>(n));
    for (Index runs : {2, 8, 32, 128}) {
        std::vector<Index> begins;
        Index const run = detail::ceil_div(n, runs);
        for (Index r = 0; r <= runs; ++r) begins.push_back(detail::smaller(r * run, n));
        auto const times =
            milliseconds({[&] {
                              fill_runs<<<static_cast<unsigned>(detail::ceil_div(n, 256)), 256, 0, stream>>>(
                                  keys.words(), from, n, run);
                              check(cudaGetLastError(), "the launch of fill_runs");
                          },
                          [&] {
                              detail::MergeRuns<DeviceWork> merges;
                              static_cast<void>(merges.add(begins, {keys.words(), from}, {other_keys.words(), to}));
                              merges.run(work);
                          },
                          [&] { work.sort(keys.words(), other_keys.words(), from, to, n); }},
                         5);
        std::printf("  %3lld runs: merged %.3f, sorted %.3f\n", static_cast<long long>(runs), times[1], times[2]);
    }
}

void copies(bench::Goals& goals) {
    Index const bytes = Index{1} << 30U;
    Memory wide(2 * bytes);
    Memory dense(bytes);
    auto const plain = [&] {
        check(cudaMemcpyAsync(dense.data(), wide.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                              stream),
              "cudaMemcpyAsync");
    };
    DeviceMemory const device{stream};
    auto const deliver = [&](std::vector<transport::Send> const& sends,
                             std::vector<transport::Receive> const& receives) { device.deliver(sends, receives); };
    std::printf("\n2-D tiles of 1 GiB, half of the columns, ms beside cudaMemcpyAsync\n");
    double worst = 2;
    for (Index row : {Index{1} << 16U, Index{1} << 12U, Index{1} << 9U}) {
        auto const inside = rows_of(bytes / row, row, 2 * row);
        auto const packed = rows_of(bytes / row, row, row);
        auto const times = milliseconds({[&] {
                                             deliver({{0, wide.data(), inside}}, {{0, dense.data(), packed}});
                                         },
                                         [&] {
                                             deliver({{0, dense.data(), packed}}, {{0, wide.data(), inside}});
                                         },
                                         plain});
        std::printf("  rows of %6lld bytes: pack %.3f, unpack %.3f beside %.3f\n", static_cast<long long>(row),
                    times[0], times[1], times[2]);
        if (row >= 4096) worst = std::min({worst, times[2] / times[0], times[2] / times[1]});
    }
    goals.at_least("gpu_pack_vs_copy", worst, 0.85);

    // The tensors of Qwen2.5-0.5B in bf16 (huggingface.co/Qwen/Qwen2.5-0.5B, config.json): half of the columns of each.
    std::vector<std::pair<Index, Index>> tensors{{151936, 896}, {1, 896}};
    for (int layer = 0; layer < 24; ++layer) {
        for (auto const& tensor : std::vector<std::pair<Index, Index>>{{896, 896},
                                                                       {1, 896},
                                                                       {128, 896},
                                                                       {1, 128},
                                                                       {128, 896},
                                                                       {1, 128},
                                                                       {896, 896},
                                                                       {4864, 896},
                                                                       {4864, 896},
                                                                       {896, 4864},
                                                                       {1, 896},
                                                                       {1, 896}}) {
            tensors.push_back(tensor);
        }
    }
    std::vector<transport::Send> sends;
    std::vector<transport::Receive> receives;
    Index from = 0;
    Index to = 0;
    for (auto const& [rows, columns] : tensors) {
        sends.push_back({0, wide.data() + from, rows_of(rows, columns, 2 * columns)});
        receives.push_back({0, dense.data() + to, rows_of(rows, columns, columns)});
        from += 2 * rows * columns;
        to += rows * columns;
    }
    auto const times = milliseconds({[&] { deliver(sends, receives); },
                                     [&] {
                                         check(cudaMemcpyAsync(dense.data(), wide.data(), static_cast<std::size_t>(to),
                                                               cudaMemcpyDeviceToDevice, stream),
                                               "cudaMemcpyAsync");
                                     }});
    std::printf("  %zu tensors of Qwen2.5-0.5B, %lld bytes, 78 in a launch: %.3f beside %.3f\n", tensors.size(),
                static_cast<long long>(to), times[0], times[1]);
    goals.at_least("gpu_batch_vs_copy", times[1] / times[0], 0.7);

    // What a fold must move: 8 addends and their sum.
    auto const fold = [&](DType dtype, Index elements, char const* text) {
        Index const size = reshard::enums::bytes(dtype);
        transport::StridedBox const slot{{transport::StridedDim{elements, size}}, size};
        FoldWork const work{
            Reduce::sum, dtype, 8, 1, size * elements, {0, wide.data(), slot}, {}, {0, dense.data(), slot}};
        double const time = millisecond([&] { device.fold(work); });
        std::printf("  sum of 8 %s, %lld elements: %.3f (%.0f GB/s)\n", text, static_cast<long long>(elements), time,
                    9.0 * static_cast<double>(size * elements) / time / 1e6);
        return time;
    };
    Index const elements = bytes / 16;
    double const sum = fold(DType::bf16, elements, "bf16");
    fold(DType::bf16, elements - 1, "bf16 that are no multiple of 4");
    fold(DType::f32, elements / 2, "f32");
    fold(DType::i64, elements / 4, "i64");
    double const copied = millisecond([&] {  // as many bytes, read and written
        check(cudaMemcpyAsync(dense.data(), wide.data(), static_cast<std::size_t>(9 * elements),
                              cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
    });
    goals.at_least("gpu_fold_vs_copy", copied / sum, 0.8);
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaError_t const error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
        std::printf("No GPU here (%s): nothing was measured.\n", cudaGetErrorString(error));
        bench::Goals none;
        for (char const* goal :
             {"gpu_pack_vs_copy", "gpu_batch_vs_copy", "gpu_fold_vs_copy", "gpu_partition_ms", "gpu_counts_vs_read"}) {
            none.skipped(goal, "no GPU");
        }
        none.print();
        return 77;
    }
    Index const entries = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 100'000'000;
    if (entries < 1000 || entries > 1'000'000'000) {
        std::fprintf(stderr, "usage: reshard_device_bench [ENTRIES from 1000 to 1000000000]\n");
        return 2;
    }
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    std::printf("%s, sm_%d%d, %d multiprocessors\n", device.name, device.major, device.minor,
                device.multiProcessorCount);
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    bench::Goals goals;
    copies(goals);
    {
        Table const table(entries);
        partitions(table, goals);
        std::fflush(stdout);
        counts(table, goals);
        std::fflush(stdout);
        chain(table);
    }
    orders(entries);
    goals.print();
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return 0;
}
