// SPDX-License-Identifier: Apache-2.0
/// \file   bench/cuda/cub_chain.cuh
/// \brief  The chain of bench/cuda/torch_chain.py from CUB calls and plain kernels, for machines without PyTorch.
///
/// Each step is a pass over memory of its own, with 64-bit indices, as PyTorch's operations are. CUB's and these
/// kernels do no more than their task, so what they take is a lower bound of what PyTorch takes.
#pragma once

#include <reshard/core/index.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>
#include <cuda/std/cstdint>

#include <algorithm>

namespace reshard::bench {

template <class F>
__global__ void each_kernel(Index count, F body) {
    Index const i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) body(i);
}
template <class F>
void each(Index count, F const& body, cudaStream_t stream) {
    each_kernel<<<static_cast<unsigned>(detail::ceil_div(count, 256)), 256, 0, stream>>>(count, body);
    reshard::detail::cuda_check(cudaGetLastError(), "the launch of a kernel of the chain");
}

struct Mask {
    Index const* ids;
    bool* valid;
    __device__ void operator()(Index i) const { valid[i] = ids[i] != INT64_MAX; }
};
struct DivideAndClamp {
    Index const* slots;
    Index block;
    Index last;
    Index* to;
    __device__ void operator()(Index i) const {
        Index const part = slots[i] / block;
        to[i] = part < 0 ? 0 : part > last ? last : part;
    }
};
struct Count {
    Index* list;
    __device__ void operator()(Index i) const { list[i] = i; }
};
struct Gather {
    Index const* from;
    Index const* order;
    Index* to;
    __device__ void operator()(Index i) const { to[i] = from[order[i]]; }
};
/// The chain over `entries` entries of four columns. `Memory` frees itself; Memory(bytes).data() is on the device.
template <class Memory>
class CubChain {
public:
    CubChain(Index entries, Index ranks)
        : entries_(entries),
          ranks_(ranks),
          flags_(entries),
          columns_(32 * entries),
          keys_(8 * entries),
          sorted_(8 * entries),
          indices_(8 * entries),
          order_(8 * entries),
          count_(8 * (ranks + 1)) {
        std::size_t most = 0;
        for (int step = 0; step < 3; ++step) most = std::max(most, run(step, nullptr, 0, nullptr));
        temporary_bytes_ = most;
        temporary_ = new Memory(static_cast<Index>(most));
    }
    CubChain(CubChain const&) = delete;
    CubChain& operator=(CubChain const&) = delete;
    ~CubChain() { delete temporary_; }

    /// mask, boolean index per column, floor-divide and clamp, stable argsort, gather per column, bincount.
    void partition(Index const* const (&columns)[4], Index* const (&moved)[4], cudaStream_t stream) {
        each(entries_, Mask{columns[0], flags()}, stream);
        for (int c = 0; c < 4; ++c) {
            from_ = columns[c];
            to_ = column(c);
            run(select, temporary_->data(), temporary_bytes_, stream);
        }
        Index live = 0;  // as in PyTorch, the host waits for it
        fetch(&live, count_.data(), stream);
        each(live, DivideAndClamp{column(1), detail::ceil_div(entries_, ranks_), ranks_ - 1, keys()}, stream);
        each(live, Count{indices()}, stream);
        sorted_count_ = live;
        run(sort, temporary_->data(), temporary_bytes_, stream);
        for (int c = 0; c < 4; ++c) each(live, Gather{column(c), order(), moved[c]}, stream);
        run(histogram, temporary_->data(), temporary_bytes_, stream);
        fetch(&live, count_.data(), stream);
    }

private:
    enum Step { select, sort, histogram };

    static void check(cudaError_t error) { reshard::detail::cuda_check(error, "a call of the chain"); }
    static void fetch(Index* to, void const* from, cudaStream_t stream) {
        check(cudaMemcpyAsync(to, from, 8, cudaMemcpyDeviceToHost, stream));
        check(cudaStreamSynchronize(stream));
    }
    [[nodiscard]] bool* flags() const { return reinterpret_cast<bool*>(flags_.data()); }
    [[nodiscard]] Index* column(int c) const { return columns_.words() + c * entries_; }
    [[nodiscard]] Index* keys() const { return keys_.words(); }
    [[nodiscard]] Index* indices() const { return indices_.words(); }
    [[nodiscard]] Index* order() const { return order_.words(); }

    /// Runs a step of CUB's, or says how much memory it takes when it is given none.
    std::size_t run(int step, void* temporary, std::size_t bytes, cudaStream_t stream) {
        switch (step) {
            case select:
                check(cub::DeviceSelect::Flagged(temporary, bytes, from_, flags(), to_, count_.words(), entries_,
                                                 stream));
                break;
            case sort:
                check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys(), sorted_.words(), indices(), order(),
                                                      temporary == nullptr ? entries_ : sorted_count_, 0, 64, stream));
                break;
            default:
                check(cub::DeviceHistogram::HistogramEven(temporary, bytes, sorted_.words(),
                                                          reinterpret_cast<unsigned long long*>(count_.data()),
                                                          static_cast<int>(ranks_) + 1, Index{0}, ranks_,
                                                          temporary == nullptr ? entries_ : sorted_count_, stream));
                break;
        }
        return bytes;
    }

    Index entries_;
    Index ranks_;
    Memory flags_;
    Memory columns_;  ///< four
    Memory keys_;
    Memory sorted_;
    Memory indices_;
    Memory order_;
    Memory count_;
    Memory* temporary_ = nullptr;
    std::size_t temporary_bytes_ = 0;
    Index const* from_ = nullptr;
    Index* to_ = nullptr;
    Index sorted_count_ = 0;
};

}  // namespace reshard::bench
