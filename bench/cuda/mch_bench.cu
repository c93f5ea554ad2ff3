// SPDX-License-Identifier: Apache-2.0
//
// What ranks take end to end that are threads of one GPU: MCH tables by redistribute_on_device(), and prepared plans.
// Times are of the host, from when all ranks are ready to when all ranks' streams are done; medians after a warm-up.
//
//   reshard_mch_bench [SLOTS]     of each rank in the large table, a multiple of 4; default 10,000,000
//
// The pool of cudaMallocAsync gives memory back whenever its stream is waited for, unless it is told to keep it: both
// are measured.
#include "cuda/ranks_of_gpu.hpp"

#include <reshard/comm/device_threads.cuh>
#include <reshard/exec/prepare.hpp>
#include <reshard/mch/redistribute.cuh>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>  // gcd

using namespace reshard;
using namespace reshard::bench;

namespace {

constexpr int ranks = 4;

unsigned blocks_of(Index threads) { return static_cast<unsigned>(detail::ceil_div(threads, 256)); }

/// Device memory that frees itself.
class Memory {
public:
    explicit Memory(Index bytes) : bytes_(bytes) {
        check(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)), "cudaMalloc");
    }
    Memory(Memory const&) = delete;
    Memory& operator=(Memory const&) = delete;
    ~Memory() { cudaFree(memory_); }
    [[nodiscard]] Index bytes() const { return bytes_; }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
    [[nodiscard]] Index* words() const { return static_cast<Index*>(memory_); }

private:
    void* memory_ = nullptr;
    Index bytes_;
};

// ---- MCH tables --------------------------------------------------------------------------------------------------

constexpr Index columns = 4;  // ids, slots, counts, last access
constexpr Index iteration = 5000;
constexpr Index free_slots = 4;  // of each shard, the row of misses among them

/// The finaliser of SplitMix64: a bijection.
__host__ __device__ unsigned long long mix(unsigned long long x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

/// Entry i of the shard of `rank`, z slots, as a table saved it that deals ids out by id mod 4. Ids ascend; four
/// neighbours are `rank` and 0, 4, 8 and 12 mod 16, in no order: whoever deals by (id mod 16) / 4 sends three of them
/// elsewhere, and every shard is as full as it was.
__host__ __device__ void fill_entry(Index* words, Index z, Index rank, Index step, Index i) {
    Index const live = z - free_slots;
    auto const noise = mix(static_cast<unsigned long long>(rank * z + i));
    auto const deal = mix(static_cast<unsigned long long>(rank * z + i / 4) + (1ULL << 40U));
    Index const gap = (Index{1} << 58U) / z;
    Index const ahead = 1 + i * gap + static_cast<Index>(noise % static_cast<unsigned long long>(gap));
    Index const to = static_cast<Index>(deal & 3U) ^ (i & 3);
    bool const last = i == z - 1;  // the row of misses: nothing evicts it
    words[i] = i < live ? 16 * ahead + rank + 4 * to : INT64_MAX;
    words[z + i] = rank * z + (i < live ? i * step % live : i);
    words[2 * z + i] = i < live ? static_cast<Index>(noise & 1023U) + 1 : last ? INT64_MAX : 0;
    words[3 * z + i] = i < live ? static_cast<Index>(noise >> 10U & 4095U) : last ? iteration : 0;
}
__global__ void fill_shard(Index* words, Index z, Index rank, Index step) {
    Index const i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < z) fill_entry(words, z, rank, step, i);
    if (i >= 8) return;
    words[columns * z + i] = i <= ranks ? i * z : -1;  // segments
    if (i == 0) words[columns * z + 8] = iteration;
}

/// One rank's shards of so many tables of z slots a rank, in one piece of memory, and as they were loaded.
class Shards {
public:
    Shards(Index tables, Index z, Index rank, cudaStream_t stream)
        : words_(columns * z + 9), loaded_(8 * tables * words_), now_(8 * tables * words_) {
        Index step = 61803399;
        while (std::gcd(step, z - free_slots) != 1) ++step;
        for (Index t = 0; t < tables; ++t) {
            Index* const words = loaded_.words() + t * words_;
            fill_shard<<<blocks_of(detail::larger<Index>(z, 8)), 256, 0, stream>>>(words, z, rank, step);
            check(cudaGetLastError(), "the launch of fill_shard");
            transitions_.push_back(transition(t, z, now_.words() + t * words_));
        }
    }
    [[nodiscard]] std::span<MchTransition const> transitions() const { return transitions_; }
    void restore(cudaStream_t stream) const {
        check(cudaMemcpyAsync(now_.data(), loaded_.data(), static_cast<std::size_t>(now_.bytes()),
                              cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
    }

private:
    static MchTransition transition(Index t, Index z, Index* words) {
        MchTransition one;
        one.saved = mch_table(errors::concat("table ", t), Mesh{ranks}, ranks * z, MchEviction::distance_lfu);
        one.saved.hash_size = 1;  // no ids are counted off: all are dealt out by remainder
        one.current = one.saved;
        one.current.buckets = 4 * ranks;
        auto const view = [&](Index at, Index count) {
            return DynamicView(TensorView<Index>(words + at, Shape{count}));
        };
        one.state.ids = view(0, z);
        one.state.slots = view(z, z);
        one.state.metadata = {{std::string(mch_counts), view(2 * z, z)},
                              {std::string(mch_last_access), view(3 * z, z)}};
        one.state.segments = view(columns * z, 8);
        one.state.iteration = view(columns * z + 8, 1);
        return one;
    }

    Index words_;
    Memory loaded_;
    Memory now_;
    std::vector<MchTransition> transitions_;
};

/// Milliseconds of one call, and how many of all entries went to another rank.
struct Call {
    double ms = 0;
    double moved = 0;
};
Call tables_call(Index tables, Index z) {
    double ms_of_all = 0;
    std::atomic<Index> sent = 0;
    on_ranks(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        DeviceThreadCommunicator comm(std::move(host), stream);
        Shards const shards(tables, z, comm.rank(), stream);
        std::vector<MchDeviceChange> changes;
        double const ms = milliseconds(
            comm, stream, 7, 1,
            [&] {
                changes.clear();
                shards.restore(stream);
            },
            [&] { changes = redistribute_on_device(shards.transitions(), comm); });
        bool full = true;
        for (MchDeviceChange const& change : changes) {
            sent += change.numbers().sent;
            full =
                full && change.numbers().live_before == z - free_slots && change.numbers().live_after == z - free_slots;
        }
        changes.clear();
        static_cast<void>(comm.agree({}));
        expect(full, "a shard has not as many ids as before");
        if (comm.rank() == 0) ms_of_all = ms;
    });
    return {ms_of_all, static_cast<double>(sent) / static_cast<double>(ranks * tables * (z - free_slots))};
}

/// Whether the pool of the device keeps what is free.
void keep_pool(bool keeps) {
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
    std::uint64_t threshold = keeps ? UINT64_MAX : 0;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "cudaMemPoolSetAttribute");
    if (!keeps) check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
}

void tables(char const* name, Index count, Index z) {
    keep_pool(false);
    Call const plain = tables_call(count, z);
    keep_pool(true);
    Call const kept = tables_call(count, z);
    keep_pool(false);
    double const bytes = 8.0 * columns * static_cast<double>(ranks * count * z);
    std::printf("  %2lld of %d x %8lld slots, %.1f%% move: %8.3f (%5.1f GB/s of columns); pool kept %8.3f (%5.1f)\n",
                static_cast<long long>(count), ranks, static_cast<long long>(z), 100 * plain.moved, plain.ms,
                bytes / plain.ms / 1e6, kept.ms, bytes / kept.ms / 1e6);
    std::printf("measured %s %.4f\nmeasured %s_pool_kept %.4f\n", name, plain.ms, name, kept.ms);
    std::fflush(stdout);
    expect(plain.moved == 0.75 && kept.moved == 0.75, "not three entries of four moved");
}

// ---- Plans -------------------------------------------------------------------------------------------------------

/// Element (i, j) of a part that begins at (row, column) of a matrix as wide as `whole`.
__global__ void fill_part(std::uint32_t* part, Index rows, Index width, Index row, Index column, Index whole) {
    Index const k = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < rows * width) part[k] = static_cast<std::uint32_t>((row + k / width) * whole + column + k % width);
}
__global__ void compare_part(std::uint32_t const* part, Index rows, Index width, Index row, Index column, Index whole,
                             unsigned long long* differences) {
    Index const k = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k >= rows * width) return;
    auto const is = static_cast<std::uint32_t>((row + k / width) * whole + column + k % width);
    if (part[k] != is) atomicAdd(differences, 1ULL);
}

template <class C>
double turned(Index size) {
    double ms = 0;
    on_ranks(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        C comm(std::move(host), stream);
        Index const part = size / ranks;
        Index const begin = comm.rank() * part;
        Memory const rows(4 * size * part);
        Memory const target(4 * size * part);
        Memory const differences(8);
        auto* const from = reinterpret_cast<std::uint32_t*>(rows.data());
        auto* const to = reinterpret_cast<std::uint32_t*>(target.data());
        fill_part<<<blocks_of(size * part), 256, 0, stream>>>(from, part, size, begin, 0, size);
        check(cudaGetLastError(), "the launch of fill_part");
        check(cudaMemsetAsync(differences.data(), 0, 8, stream), "cudaMemsetAsync");
        auto const move = plan(distribution(Mesh{ranks}, Shape{size, size}, "S0"),
                               distribution(Mesh{ranks}, Shape{size, size}, "S1"));
        auto job = prepare(move, comm, ConstDynamicView(rows.data(), DType::f32, Shape{part, size}),
                           DynamicView(target.data(), DType::f32, Shape{size, part}));
        double const median = milliseconds(
            comm, stream, 11, 2, [] {}, [&] { job.run(); });
        compare_part<<<blocks_of(size * part), 256, 0, stream>>>(
            to, size, part, 0, begin, size, reinterpret_cast<unsigned long long*>(differences.data()));
        check(cudaGetLastError(), "the launch of compare_part");
        Index found = -1;
        check(cudaMemcpyAsync(&found, differences.data(), 8, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        expect(found == 0, "S0 -> S1 has other values");
        if (comm.rank() == 0) ms = median;
        static_cast<void>(comm.agree({}));
    });
    return ms;
}

/// One rank copies as many bytes, the others wait.
double copied(Index bytes) {
    double ms = 0;
    on_ranks(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        DeviceThreadCommunicator comm(std::move(host), stream);
        std::unique_ptr<Memory> from;
        std::unique_ptr<Memory> to;
        if (comm.rank() == 0) {
            from = std::make_unique<Memory>(bytes);
            to = std::make_unique<Memory>(bytes);
            check(cudaMemsetAsync(from->data(), 1, static_cast<std::size_t>(bytes), stream), "cudaMemsetAsync");
        }
        double const median = milliseconds(
            comm, stream, 11, 2, [] {},
            [&] {
                if (comm.rank() != 0) return;
                check(cudaMemcpyAsync(to->data(), from->data(), static_cast<std::size_t>(bytes),
                                      cudaMemcpyDeviceToDevice, stream),
                      "cudaMemcpyAsync");
            });
        if (comm.rank() == 0) ms = median;
    });
    return ms;
}

__global__ void fill_bf16(std::uint16_t* values, Index count, std::uint16_t value) {
    Index const k = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < count) values[k] = value;
}

double summed(Index rows, Index width) {
    double ms = 0;
    on_ranks(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        DeviceThreadKernelCommunicator comm(std::move(host), stream);
        Index const count = rows * width;
        Memory const addend(2 * count);
        Memory const total(2 * count);
        std::uint16_t const numbers[ranks] = {0x3f80, 0x4000, 0x4040, 0x4080};  // 1, 2, 3, 4
        fill_bf16<<<blocks_of(count), 256, 0, stream>>>(reinterpret_cast<std::uint16_t*>(addend.data()), count,
                                                        numbers[comm.rank()]);
        check(cudaGetLastError(), "the launch of fill_bf16");
        auto const move = plan(distribution(Mesh{ranks}, Shape{rows, width}, "P+"),
                               distribution(Mesh{ranks}, Shape{rows, width}, "R"));
        auto job = prepare(move, comm, ConstDynamicView(addend.data(), DType::bf16, Shape{rows, width}),
                           DynamicView(total.data(), DType::bf16, Shape{rows, width}));
        double const median = milliseconds(
            comm, stream, 11, 2, [] {}, [&] { job.run(); });
        std::vector<std::uint16_t> result(static_cast<std::size_t>(count));
        check(cudaMemcpyAsync(result.data(), total.data(), static_cast<std::size_t>(2 * count), cudaMemcpyDeviceToHost,
                              stream),
              "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        bool const right = std::all_of(result.begin(), result.end(), [](auto one) { return one == 0x4120; });  // 10
        expect(right, "P+ -> R has other values");
        if (comm.rank() == 0) ms = median;
        static_cast<void>(comm.agree({}));
    });
    return ms;
}

void plans() {
    Index const size = 16384;
    double const bytes = 4.0 * static_cast<double>(size * size);
    double const copy = copied(4 * size * size);
    double const kernels = turned<DeviceThreadKernelCommunicator>(size);
    double const copies = turned<DeviceThreadCommunicator>(size);
    std::printf("\nprepared S0 -> S1 of %lld x %lld float32, ms (GB/s), beside cudaMemcpyAsync of as many bytes\n",
                static_cast<long long>(size), static_cast<long long>(size));
    std::printf("  kernels %.3f (%.0f), strided copies %.3f (%.0f), cudaMemcpyAsync %.3f (%.0f)\n", kernels,
                bytes / kernels / 1e6, copies, bytes / copies / 1e6, copy, bytes / copy / 1e6);
    std::printf("measured s0_s1_kernels %.4f\nmeasured s0_s1_copies %.4f\nmeasured s0_s1_memcpy %.4f\n", kernels,
                copies, copy);
    Index const rows = 8192;
    Index const width = 4096;
    double const sum = summed(rows, width);
    std::printf("\nprepared P+ -> R of %lld MiB of bf16 on each rank, ms (GB/s of what ranks have before and after)\n",
                static_cast<long long>(2 * rows * width >> 20U));
    std::printf("  kernels %.3f (%.0f)\nmeasured p_r_bf16 %.4f\n", sum,
                2.0 * ranks * 2 * static_cast<double>(rows * width) / sum / 1e6, sum);
}

}  // namespace

int main(int argc, char** argv) try {
    int devices = 0;
    if (cudaError_t const error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
        std::printf("No GPU here (%s): nothing was measured.\n", cudaGetErrorString(error));
        return 77;
    }
    Index const slots = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 10'000'000;
    if (slots < 100 || slots > 50'000'000 || slots % 4 != 0) {
        std::fprintf(stderr, "usage: reshard_mch_bench [SLOTS, a multiple of 4 from 100 to 50000000]\n");
        return 2;
    }
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    std::printf("%s, %d ranks as threads of it\n", device.name, ranks);
    std::printf("\nMCH tables with 2 columns of metadata to where ids are looked up: redistribute_on_device, ms\n");
    tables("mch_one_table", 1, slots);
    tables("mch_20_tables", 20, 10'000);
    plans();
    std::printf("\n%s\n", wrong == 0 ? "results are right" : "RESULTS ARE WRONG");
    return wrong == 0 ? 0 : 1;
} catch (std::exception const& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
}
