// SPDX-License-Identifier: Apache-2.0
/// \file   bench/cuda/device_times.cuh
/// \brief  What benchmarks of device code measure with: memory, medians of events around calls, the data.
#pragma once

#include <reshard/core/transfer.hpp>
#include <reshard/cuda/columns.hpp>
#include <reshard/cuda/rules.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>  // gcd
#include <span>
#include <vector>

namespace reshard::bench {

inline void check(cudaError_t error, char const* call) { reshard::detail::cuda_check(error, call); }

/// Device memory that frees itself.
class Memory {
public:
    explicit Memory(Index bytes) : bytes_(bytes) {
        check(cudaMalloc(&memory_, static_cast<std::size_t>(detail::larger<Index>(bytes, 1))), "cudaMalloc");
    }
    Memory(Memory const&) = delete;
    Memory& operator=(Memory const&) = delete;
    ~Memory() { cudaFree(memory_); }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
    [[nodiscard]] Index* words() const { return static_cast<Index*>(memory_); }
    [[nodiscard]] std::span<std::byte> span() const { return {data(), static_cast<std::size_t>(bytes_)}; }

private:
    void* memory_ = nullptr;
    Index bytes_;
};

inline cudaStream_t stream = nullptr;

/// Milliseconds of each of `bodies`, run in turn: the median of `rounds` after two of warming up.
inline std::vector<double> milliseconds(std::vector<std::function<void()>> const& bodies, int rounds = 11) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<std::vector<double>> times(bodies.size());
    for (int round = -2; round < rounds; ++round) {
        for (std::size_t b = 0; b != bodies.size(); ++b) {
            check(cudaEventRecord(begin, stream), "cudaEventRecord");
            bodies[b]();
            check(cudaEventRecord(end, stream), "cudaEventRecord");
            check(cudaEventSynchronize(end), "cudaEventSynchronize");
            float time = 0;
            check(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
            if (round >= 0) times[b].push_back(static_cast<double>(time));
        }
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::vector<double> medians;
    for (auto& list : times) {
        std::nth_element(list.begin(), list.begin() + rounds / 2, list.end());
        medians.push_back(list[static_cast<std::size_t>(rounds / 2)]);
    }
    return medians;
}
inline double millisecond(std::function<void()> const& body) { return milliseconds({body}).front(); }

/// The finaliser of SplitMix64: a bijection.
__device__ inline unsigned long long mix(unsigned long long x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

static __global__ void compare(unsigned const* a, unsigned const* b, Index count, unsigned long long* differences) {
    Index const i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count && a[i] != b[i]) atomicAdd(differences, 1ULL);
}
/// Ends the program where two lists differ: times of something else say nothing.
inline void check_same(char const* what, void const* a, void const* b, Index bytes) {
    Memory differences(8);
    check(cudaMemsetAsync(differences.data(), 0, 8, stream), "cudaMemsetAsync");
    compare<<<static_cast<unsigned>(detail::ceil_div(bytes / 4, 256)), 256, 0, stream>>>(
        static_cast<unsigned const*>(a), static_cast<unsigned const*>(b), bytes / 4,
        reinterpret_cast<unsigned long long*>(differences.data()));
    check(cudaGetLastError(), "the launch of compare");
    Index found = -1;
    check(cudaMemcpyAsync(&found, differences.data(), 8, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (found == 0) return;
    std::printf("%s: %lld words DIFFER\n", what, static_cast<long long>(found));
    std::exit(1);
}
/// ids without order, every slot once, without order (`step` and `entries` have no divisor in common); metadata is what
/// it is.
static __global__ void fill(Index* ids, Index* slots, Index* first, Index* second, Index* third, Index entries,
                            Index step) {
    Index const i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= entries) return;
    ids[i] = static_cast<Index>(mix(static_cast<unsigned long long>(i)));
    slots[i] = i * step % entries;
    first[i] = i;
    second[i] = -i;
    third[i] = 2 * i;
}

struct Table {
    Index entries;
    Memory ids, slots, first, second, third;
    explicit Table(Index n) : entries(n), ids(8 * n), slots(8 * n), first(8 * n), second(8 * n), third(8 * n) {
        Index step = 61803399;
        while (std::gcd(step, n) != 1) ++step;
        fill<<<static_cast<unsigned>(detail::ceil_div(n, 256)), 256, 0, stream>>>(
            ids.words(), slots.words(), first.words(), second.words(), third.words(), n, step);
        check(cudaGetLastError(), "the launch of fill");
        check(cudaStreamSynchronize(stream), "fill");
    }
    [[nodiscard]] WordColumns columns(int metadata) const {
        WordColumns words;
        Index const* const all[] = {ids.words(), slots.words(), first.words(), second.words(), third.words()};
        for (int c = 0; c < 2 + metadata; ++c) words.data.push_back(all[c]);
        return words;
    }
    [[nodiscard]] BySlot<EvenSlots> rule(Index ranks) const {
        return {slots.words(), EvenSlots::of(entries, ranks), ids.words()};
    }
};

/// Sorted runs of ids of 63 bits.
static __global__ void fill_runs(Index* keys, std::uint32_t* values, Index entries, Index run) {
    Index const i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= entries) return;
    keys[i] = (i % run << 34U) + static_cast<Index>(mix(static_cast<unsigned long long>(i)) >> 31U);
    values[i] = static_cast<std::uint32_t>(i);
}
/// Rows of 2-byte elements, `pitch` bytes from each other.
inline transport::StridedBox rows_of(Index rows, Index row_bytes, Index pitch) {
    transport::StridedBox box;
    box.element_bytes = 2;
    box.dims.push_back({rows, pitch});
    box.dims.push_back({row_bytes / 2, 2});
    return box;
}

}  // namespace reshard::bench
