// SPDX-License-Identifier: Apache-2.0
//
// Kernels of ours beside the device-wide calls of CUB that come nearest to doing the same, on one GPU: what each takes,
// and whether both write the same.
//
//   reshard_cub_bench [ENTRIES]     default 100,000,000
#include "cuda/device_times.cuh"

#include <reshard/cuda/device_work.cuh>
#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/partition_by_rank.cuh>
#include <reshard/cuda/split_counts.cuh>
#include <reshard/memory/on_device.cuh>

#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_merge.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_transform.cuh>

#include <cuda_bf16.h>

#include <cstdio>
#include <cstdlib>

using namespace reshard;
using namespace reshard::bench;

namespace {

void print(char const* what, double ours, double theirs) {
    std::printf("%-58s %8.3f %8.3f %6.2f\n", what, ours, theirs, theirs / ours);
    std::fflush(stdout);
}

/// Memory for a call of CUB's: run(nullptr, bytes) asks for it.
template <class Run>
class Prepared {
public:
    explicit Prepared(Run run) : run_(run), memory_(ask(run)) {}
    void operator()() { check(run_(memory_.data(), bytes_), "a call of CUB's"); }

private:
    Index ask(Run& run) {
        check(run(nullptr, bytes_), "a call of CUB's");
        return static_cast<Index>(bytes_);
    }
    Run run_;
    std::size_t bytes_ = 0;
    Memory memory_;
};

/// A rule's answers, as a list that no memory holds.
struct Answer {
    BySlot<EvenSlots> rule;
    __host__ __device__ int operator()(Index entry) const { return static_cast<int>(rule(entry)); }
};
auto answers(BySlot<EvenSlots> const& rule) {
    return thrust::make_transform_iterator(thrust::counting_iterator<Index>(0), Answer{rule});
}
__global__ void list_keys(BySlot<EvenSlots> rule, Index entries, std::uint8_t* keys) {
    Index const i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < entries) keys[i] = static_cast<std::uint8_t>(rule(i));
}

/// Four columns of words to 8 ranks. Theirs: the destinations as bytes, then each column sorted by them, one pass of
/// three bits; and a histogram for the counts.
void partition(Table const& table) {
    constexpr Index ranks = 8;
    Index const n = table.entries;
    auto const columns = table.columns(2);
    auto const rule = table.rule(ranks);
    DevicePartition ours(n, ranks);
    Memory const workspace(ours.workspace_bytes());
    Memory packed(8 * 4 * n), theirs(8 * 4 * n), keys(n), sorted(n), counts(8 * ranks);
    auto* const from = reinterpret_cast<std::uint8_t*>(keys.data());
    auto* const to = reinterpret_cast<std::uint8_t*>(sorted.data());
    Index column = 0;
    Prepared sort([&](void* memory, std::size_t& bytes) {
        return cub::DeviceRadixSort::SortPairs(memory, bytes, from, to, columns.data[static_cast<int>(column)],
                                               theirs.words() + column * n, n, 0, 3, stream);
    });
    Prepared count([&](void* memory, std::size_t& bytes) {
        return cub::DeviceHistogram::HistogramEven(memory, bytes, from,
                                                   reinterpret_cast<unsigned long long*>(counts.data()), ranks + 1, 0,
                                                   static_cast<int>(ranks), n, stream);
    });
    auto const times =
        milliseconds({[&] {
                          ours.count(rule, columns, workspace.span(), stream);
                          ours.scatter(columns, packed.span(), stream);
                      },
                      [&] {
                          list_keys<<<static_cast<unsigned>(detail::ceil_div(n, 256)), 256, 0, stream>>>(rule, n, from);
                          check(cudaGetLastError(), "the launch of list_keys");
                          count();
                          for (column = 0; column < 4; ++column) sort();
                      }});
    std::vector<Index> words(static_cast<std::size_t>(PartitionReport::words(ranks)));
    ours.copy_report(words, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    PartitionReport const report(words, ranks);
    for (Index d = 0; d < ranks; ++d) {
        for (Index c = 0; c < 4; ++c) {
            auto const at = static_cast<std::size_t>(d);
            Index const rows = report.counts()[at];
            check_same("partition", packed.data() + report.blocks()[at] + 8 * rows * c,
                       theirs.words() + c * n + report.begins()[at], 8 * rows);
        }
    }
    print("partition, 4 columns, 8 ranks / 4 SortPairs of 3 bits", times[0], times[1]);
}

/// Theirs does not look for answers that are wrong.
void split(Table const& table, Index ranks) {
    Index const n = table.entries;
    auto const rule = table.rule(ranks);
    Memory ours(8 * ranks), theirs(8 * ranks), faults(sizeof(SplitFaults));
    Prepared count([&](void* memory, std::size_t& bytes) {
        return cub::DeviceHistogram::HistogramEven(memory, bytes, answers(rule),
                                                   reinterpret_cast<unsigned long long*>(theirs.data()),
                                                   static_cast<int>(ranks) + 1, 0, static_cast<int>(ranks), n, stream);
    });
    auto const times = milliseconds({[&] {
                                         split_counts(n, rule, {ours.words(), static_cast<std::size_t>(ranks)},
                                                      reinterpret_cast<SplitFaults*>(faults.data()), stream);
                                     },
                                     [&] { count(); }});
    check_same("split counts", ours.data(), theirs.data(), 8 * ranks);
    char what[64];
    std::snprintf(what, sizeof(what), "split counts, %lld ranks / HistogramEven", static_cast<long long>(ranks));
    print(what, times[0], times[1]);
}

/// Theirs: seven calls for 8 runs, each of two.
void merge(Index n) {
    constexpr Index runs = 8;
    Memory keys(8 * n), values(4 * n), other_keys(8 * n), other_values(4 * n), sorted(8 * n), order(4 * n);
    auto const words = [](Memory const& memory) { return reinterpret_cast<std::uint32_t*>(memory.data()); };
    std::vector<Index> begins;
    Index const run = detail::ceil_div(n, runs);
    for (Index r = 0; r <= runs; ++r) begins.push_back(detail::smaller(r * run, n));
    auto const fresh = [&] {
        fill_runs<<<static_cast<unsigned>(detail::ceil_div(n, 256)), 256, 0, stream>>>(keys.words(), words(values), n,
                                                                                       run);
        check(cudaGetLastError(), "the launch of fill_runs");
    };
    struct Pair {
        Memory const* keys;
        Memory const* values;
    };
    Pair from{&keys, &values};
    Pair to{&other_keys, &other_values};
    Index left = 0;
    Index middle = n / 2;  // of the largest call, which says how much memory it wants
    Index right = n;
    Prepared pair([&](void* memory, std::size_t& bytes) {
        return cub::DeviceMerge::MergePairs(memory, bytes, from.keys->words() + left, words(*from.values) + left,
                                            middle - left, from.keys->words() + middle, words(*from.values) + middle,
                                            right - middle, to.keys->words() + left, words(*to.values) + left,
                                            ::cuda::std::less<>{}, stream);
    });
    DeviceWork work(stream);
    auto const times =
        milliseconds({fresh,
                      [&] {
                          from = {&keys, &values};
                          to = {&other_keys, &other_values};
                          for (Index step = 1; step < runs; step *= 2) {
                              for (Index r = 0; r < runs; r += 2 * step) {
                                  left = begins[static_cast<std::size_t>(r)];
                                  middle = begins[static_cast<std::size_t>(r + step)];
                                  right = begins[static_cast<std::size_t>(r + 2 * step)];
                                  pair();
                              }
                              std::swap(from, to);
                          }
                      },
                      [&] {  // what is left in `from` is another's next input: aside
                          check(cudaMemcpyAsync(sorted.data(), from.keys->data(), static_cast<std::size_t>(8 * n),
                                                cudaMemcpyDeviceToDevice, stream),
                                "cudaMemcpyAsync");
                          check(cudaMemcpyAsync(order.data(), from.values->data(), static_cast<std::size_t>(4 * n),
                                                cudaMemcpyDeviceToDevice, stream),
                                "cudaMemcpyAsync");
                          fresh();
                      },
                      [&] {
                          detail::MergeRuns<DeviceWork> merges;
                          bool const moved = merges.add(begins, {keys.words(), words(values)},
                                                        {other_keys.words(), words(other_values)});
                          merges.run(work);
                          from = moved ? Pair{&other_keys, &other_values} : Pair{&keys, &values};
                      }},
                     7);
    check_same("merge", sorted.data(), from.keys->data(), 8 * n);
    check_same("merge", order.data(), from.values->data(), 4 * n / 4 * 4);
    print("merge of 8 runs, ids with places / 7 MergePairs", times[3], times[1]);
}

struct RowAt {
    std::byte* begin;
    Index pitch;
    __host__ __device__ std::byte* operator()(Index row) const { return begin + row * pitch; }
};
/// Half of the columns of a matrix.
void pack(Index row) {
    Index const bytes = Index{1} << 30U;
    Index const rows = bytes / row;
    Memory wide(2 * bytes), ours(bytes), theirs(bytes);
    check(cudaMemsetAsync(wide.data(), 7, static_cast<std::size_t>(2 * bytes), stream), "cudaMemsetAsync");
    auto const at = [](std::byte* begin, Index pitch) {
        return thrust::make_transform_iterator(thrust::counting_iterator<Index>(0), RowAt{begin, pitch});
    };
    Prepared copy([&](void* memory, std::size_t& size) {
        return cub::DeviceMemcpy::Batched(memory, size, at(wide.data(), 2 * row), at(theirs.data(), row),
                                          thrust::constant_iterator<std::uint32_t>(static_cast<std::uint32_t>(row)),
                                          rows, stream);
    });
    DeviceMemory const device{stream};
    std::vector<transport::Send> const sends{{0, wide.data(), rows_of(rows, row, 2 * row)}};
    std::vector<transport::Receive> const receives{{0, ours.data(), rows_of(rows, row, row)}};
    auto const times = milliseconds({[&] { device.deliver(sends, receives); }, [&] { copy(); }});
    check_same("pack", ours.data(), theirs.data(), bytes);
    char what[64];
    std::snprintf(what, sizeof(what), "1 GiB of rows of %lld bytes packed / Batched", static_cast<long long>(row));
    print(what, times[0], times[1]);
}

/// In the order of ranks, in float, rounded once.
struct SumOf8 {
    template <class... T>
    __host__ __device__ __nv_bfloat16 operator()(T... addends) const {
        float sum = 0;
        ((sum = sum + __bfloat162float(addends)), ...);
        return __float2bfloat16(sum);
    }
};
void fold() {
    constexpr Index elements = Index{1} << 26U;
    Memory addends(16 * elements), ours(2 * elements), theirs(2 * elements);
    check(cudaMemsetAsync(addends.data(), 0x3f, static_cast<std::size_t>(16 * elements), stream), "cudaMemsetAsync");
    transport::StridedBox const slot{{transport::StridedDim{elements, 2}}, 2};
    FoldWork const work{Reduce::sum, DType::bf16,           8, 1, 2 * elements, {0, addends.data(), slot},
                        {},          {0, ours.data(), slot}};
    DeviceMemory const device{stream};
    auto const* const a = reinterpret_cast<__nv_bfloat16 const*>(addends.data());
    auto const at = [&](Index rank) { return a + rank * elements; };
    auto const times =
        milliseconds({[&] { device.fold(work); },
                      [&] {
                          check(cub::DeviceTransform::Transform(
                                    ::cuda::std::make_tuple(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)),
                                    reinterpret_cast<__nv_bfloat16*>(theirs.data()), elements, SumOf8{}, stream),
                                "cub::DeviceTransform::Transform");
                      }});
    check_same("fold", ours.data(), theirs.data(), 2 * elements);
    print("sum of 8 addends of bf16, 64 Mi elements / Transform", times[0], times[1]);
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaError_t const error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
        std::printf("No GPU here (%s): nothing was measured.\n", cudaGetErrorString(error));
        return 77;
    }
    Index const entries = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 100'000'000;
    if (entries < 1000 || entries > 1'000'000'000) {
        std::fprintf(stderr, "usage: reshard_cub_bench [ENTRIES from 1000 to 1000000000]\n");
        return 2;
    }
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    std::printf("%-58s %8s %8s %6s\n", "ours / CUB's, ms", "ours", "CUB's", "ratio");
    {
        Table const table(entries);
        partition(table);
        for (Index ranks : {8, 64, 256}) split(table, ranks);
    }
    merge(entries / 4 * 4);
    for (Index row : {Index{1} << 16U, Index{1} << 12U, Index{1} << 9U}) pack(row);
    fold();
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return 0;
}
