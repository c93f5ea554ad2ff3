// SPDX-License-Identifier: Apache-2.0
// More than 2^32 elements in memory of one device: numbers of 32 bits overflow here, and nowhere else. What a device
// has no room for is skipped.
#include "cuda/device/device_test.cuh"

#include <reshard/cuda/device_work.cuh>
#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/partition_by_rank.cuh>
#include <reshard/cuda/split_counts.cuh>
#include <reshard/memory/host_memory.hpp>
#include <reshard/memory/on_device.cuh>

#include <thrust/iterator/counting_iterator.h>

#include <memory>

using namespace reshard;
using namespace reshard::test;

namespace {

/// `most` elements, or few where sizes should be small.
Index large(Index most) { return small_sizes() ? 5000 + most % 1000 : most; }

/// Says so, where a device has not this much memory.
bool has_room(Index bytes) {
    std::size_t free = 0;
    std::size_t all = 0;
    detail::cuda_check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    bool const fits = static_cast<std::size_t>(bytes) + (std::size_t{1} << 30U) < free;
    if (!fits) std::printf("skipped: %lld MiB of device memory are not free.\n", static_cast<long long>(bytes >> 20));
    return fits;
}

struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
};
using Large = std::unique_ptr<std::byte, Free>;
Large allocate(Index bytes) {
    void* memory = nullptr;
    detail::cuda_check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
    return Large(static_cast<std::byte*>(memory));
}

template <class Body>
__global__ void each_kernel(Index count, Body body, unsigned long long* wrong) {
    Index const step = static_cast<Index>(gridDim.x) * blockDim.x;
    unsigned long long mine = 0;
    for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        if (!body(i)) ++mine;
    }
    if (mine != 0) atomicAdd(wrong, mine);
}
/// For how many i of [0, count) body(i) is false.
template <class Body>
unsigned long long wrong_of(Index count, Body const& body, cudaStream_t stream) {
    DeviceArray<unsigned long long> const wrong(std::vector<unsigned long long>{0});
    each_kernel<<<2048, 256, 0, stream>>>(count, body, wrong.data());
    detail::cuda_check(cudaGetLastError(), "the launch of each_kernel");
    detail::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return wrong.host()[0];
}

__host__ __device__ std::uint8_t value_of(Index i) {
    auto const bits = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::uint8_t>(bits >> 56U);
}
__host__ __device__ float of_bf16(std::uint16_t bits) {
    std::uint32_t const word = static_cast<std::uint32_t>(bits) << 16U;
    float value = 0;
    std::memcpy(&value, &word, sizeof(value));
    return value;
}

struct SetBytes {
    std::uint8_t* to;
    Index first;
    __device__ bool operator()(Index i) const {
        to[i] = value_of(first + i);
        return true;
    }
};
struct IsTransposed {
    std::uint8_t const* found;
    Index rows, columns;
    __device__ bool operator()(Index i) const { return found[i] == value_of(i % rows * columns + i / rows); }
};
struct IsScaled {
    std::uint16_t const* found;
    float factor;
    __device__ bool operator()(Index i) const { return of_bf16(found[i]) == factor * value_of(i); }
};
struct IsByte {
    std::uint8_t const* found;
    std::uint8_t value;
    __device__ bool operator()(Index i) const { return found[i] == value; }
};
struct IsLarger {
    std::uint8_t const* found;
    Index count;
    __device__ bool operator()(Index i) const {
        std::uint8_t const a = value_of(i);
        std::uint8_t const b = value_of(count + i);
        return found[i] == (a < b ? b : a);
    }
};

/// Entries i with i % 11 == 10 are not sent, the others go to i % ranks.
struct ByNumber {
    Index ranks;
    Index fault = -1;
    __host__ __device__ Index operator()(Index entry) const {
        if (entry == fault) return ranks;
        return entry % 11 == 10 ? not_sent : entry % ranks;
    }
};
/// Packed in the order of entries: rank r's row k is the entry that comes to it as k-th. \pre ranks and 11 have no
/// divisor in common.
struct IsPacked {
    Index const* packed;
    Index const* begins;
    Index ranks;
    __device__ bool operator()(Index i) const {
        Index rank = 0;
        while (begins[rank + 1] <= i) ++rank;
        Index const entry = packed[i];
        bool const mine = entry % ranks == rank && entry % 11 != 10;
        bool const after = i == begins[rank] || packed[i - 1] < entry;
        return mine && after;
    }
};

/// Runs one after the other: keys that are even, then those that are odd.
struct SetRuns {
    Index* keys;
    std::uint32_t* values;
    Index evens;
    __device__ bool operator()(Index i) const {
        keys[i] = i < evens ? 2 * i : 2 * (i - evens) + 1;
        values[i] = 7;  // is written over
        return true;
    }
};
struct IsMerged {
    Index const* keys;
    std::uint32_t const* values;
    Index evens;
    __device__ bool operator()(Index i) const {
        return keys[i] == i && static_cast<Index>(values[i]) == i / 2 + (i % 2 == 0 ? 0 : evens);
    }
};

}  // namespace

DEVICE_TEST("large: boxes of more than 2^32 elements are transposed, cast, scaled, filled and folded") {
    Index const rows = large(70'001);
    Index const columns = small_sizes() ? 61 : 65'551;
    Index const count = rows * columns;
    if (!has_room(4 * count)) return;
    Stream stream;
    DeviceMemory const device{stream};
    Large const from = allocate(2 * count);  // two addends
    Large const to = allocate(2 * count);
    auto* const bytes_from = reinterpret_cast<std::uint8_t*>(from.get());
    auto* const bytes_to = reinterpret_cast<std::uint8_t*>(to.get());
    CHECK(wrong_of(2 * count, SetBytes{bytes_from, 0}, stream) == 0);
    auto const box = [&](Index of_row, Index of_column, Index element) {
        return transport::StridedBox{{transport::StridedDim{rows, of_row}, transport::StridedDim{columns, of_column}},
                                     element};
    };
    auto const deliver = [&](transport::Send const& send, transport::Receive const& receive) {
        device.deliver(std::span(&send, 1), std::span(&receive, 1));
    };
    deliver({0, from.get(), box(columns, 1, 1)}, {0, to.get(), box(1, rows, 1)});
    CHECK(wrong_of(count, IsTransposed{bytes_to, rows, columns}, stream) == 0);

    auto const convert = host_memory().convert;
    transport::Send const plain{0, from.get(), box(columns, 1, 1), {DType::u8, DType::u8, 1.0, convert}};
    transport::Receive const cast{0, to.get(), box(2 * columns, 2, 2), {DType::bf16, DType::u8, 1.0, convert}};
    deliver(plain, cast);
    auto const* const halves = reinterpret_cast<std::uint16_t const*>(to.get());
    CHECK(wrong_of(count, IsScaled{halves, 1}, stream) == 0);
    device.scale(DType::bf16, to.get(), box(2 * columns, 2, 2), 2, 1);
    CHECK(wrong_of(count, IsScaled{halves, 2}, stream) == 0);

    device.fill_identity(Reduce::min, DType::u8, to.get(), box(columns, 1, 1));
    CHECK(wrong_of(count, IsByte{bytes_to, 255}, stream) == 0);
    device.fold({Reduce::max,
                 DType::u8,
                 2,
                 1,
                 count,
                 {0, from.get(), box(columns, 1, 1)},
                 {},
                 {0, to.get(), box(columns, 1, 1)}});
    CHECK(wrong_of(count, IsLarger{bytes_to, count}, stream) == 0);
}

DEVICE_TEST("large: more than 2^32 entries are counted, and partitioned") {
    Index const entries = large((Index{1} << 32) + 5'077);
    Stream stream;
    for (Index ranks : {3, 100}) {  // short tiles and long ones
        device_case() = errors::concat("ranks ", ranks);
        Index const fault = entries - 3;
        ByNumber const rule{ranks, fault};
        DeviceArray<Index> const counts(static_cast<std::size_t>(ranks));
        DeviceArray<SplitFaults> const faults(1);
        split_counts(entries, rule, counts.span(), faults.data(), stream);
        stream.wait();
        CHECK(faults.host()[0].out_of_range == 1);
        CHECK(faults.host()[0].first == static_cast<unsigned long long>(fault));

        auto const column = iterator_columns(thrust::counting_iterator<Index>(0));
        DevicePartition partition(entries, ranks, PartitionMethod::tiles);
        if (!has_room(partition.workspace_bytes() + partition.most_packed_bytes(column))) continue;
        Large const workspace = allocate(partition.workspace_bytes());
        Large const packed = allocate(partition.most_packed_bytes(column));
        partition.count(rule, column, {workspace.get(), static_cast<std::size_t>(partition.workspace_bytes())}, stream);
        partition.scatter(column, {packed.get(), static_cast<std::size_t>(partition.most_packed_bytes(column))},
                          stream);
        std::vector<Index> words(static_cast<std::size_t>(PartitionReport::words(ranks)));
        partition.copy_report(words, stream);
        stream.wait();
        PartitionReport const report(words, ranks);
        CHECK(report.out_of_range() == 1);
        CHECK(report.first_out_of_range() == fault);
        CHECK(std::vector<Index>(report.counts().begin(), report.counts().end()) == counts.host());
        CHECK(report.kept() == entries - entries / 11 - (fault % 11 == 10 ? 0 : 1));
        DeviceArray<Index> const begins(std::vector<Index>(report.begins().begin(), report.begins().end()));
        CHECK(wrong_of(report.kept(), IsPacked{reinterpret_cast<Index const*>(packed.get()), begins.data(), ranks},
                       stream) == 0);
    }
}

DEVICE_TEST("large: runs of more than 2^31 keys are merged") {
    Index const count = large((Index{1} << 31) + 9'001);
    Index const evens = (count + 1) / 2;
    if (!has_room(24 * count)) return;
    Stream stream;
    Large const keys = allocate(8 * count);
    Large const values = allocate(4 * count);
    Large const other_keys = allocate(8 * count);
    Large const other_values = allocate(4 * count);
    auto const as_keys = [](Large const& memory) { return reinterpret_cast<Index*>(memory.get()); };
    auto const as_values = [](Large const& memory) { return reinterpret_cast<std::uint32_t*>(memory.get()); };
    CHECK(wrong_of(count, SetRuns{as_keys(keys), as_values(values), evens}, stream) == 0);
    DeviceWork work(stream);
    detail::MergeRuns<DeviceWork> merges;
    CHECK(merges.add({0, evens, count}, {as_keys(keys), as_values(values)},
                     {as_keys(other_keys), as_values(other_values)}));
    merges.run(work);
    CHECK(wrong_of(count, IsMerged{as_keys(other_keys), as_values(other_values), evens}, stream) == 0);
}

int main() { return run_device_tests(); }
