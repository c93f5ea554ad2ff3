// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/split_counts.cuh
/// \brief  How many entries go to each rank, counted on the device: no workspace, no synchronisation.
/// \depends cuda/split_counts.hpp, cuda/detail/device_block.cuh, memory/cuda_call.hpp.
#pragma once

#include <reshard/cuda/detail/device_block.cuh>
#include <reshard/cuda/split_counts.hpp>
#include <reshard/memory/cuda_call.hpp>

namespace reshard::inline v0_1 {

namespace detail {

template <class Rule>
__global__ void __launch_bounds__(block_threads)
    split_kernel(__grid_constant__ SplitPlan const plan, __grid_constant__ Rule const rule) {
    __shared__ SplitShared shared;
    __shared__ typename DeviceBlock<CountState>::Shared scan;
    DeviceBlock<CountState> block(scan);
    split_tiles(block, shared, plan, rule, blockIdx.x, gridDim.x);
}

}  // namespace detail

/// counts[d] = entries whose rule answers d, for d in [0, counts.size()), and what was wrong with others. `counts` and
/// `faults` are memory of the current device, as is what the rule reads. Returns at once; may be captured in a graph.
/// Throws ShapeError as on the host, BufferError for memory of the host or of another device, TransportError when CUDA
/// refuses a call.
template <class Rule>
void split_counts(Index entries, Rule const& rule, std::span<Index> counts, SplitFaults* faults, cudaStream_t stream) {
    constexpr auto who = "reshard::split_counts";
    detail::check_split(entries, counts.size());
    detail::check_device_memory(who, "the list of counts", -1, counts.data(), detail::as_index(counts.size_bytes()), 8);
    detail::check_device_memory(who, "the record of faults", -1, faults, sizeof(SplitFaults), 8);
    detail::cuda_check(cudaMemsetAsync(counts.data(), 0, counts.size_bytes(), stream), "cudaMemsetAsync");
    detail::cuda_check(cudaMemsetAsync(faults, 0, 8, stream), "cudaMemsetAsync");
    detail::cuda_check(cudaMemsetAsync(&faults->first, 0xff, 8, stream), "cudaMemsetAsync");
    Index const tiles = detail::ceil_div(entries, detail::split_tile);
    if (tiles == 0) return;
    int processors = 0;
    int per_processor = 0;
    detail::cuda_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, detail::current_device()),
                       "cudaDeviceGetAttribute");
    detail::cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, detail::split_kernel<Rule>,
                                                                     detail::block_threads, 0),
                       "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    // As many blocks as run at once, so that none waits for the others; more where one would see 2^31 entries.
    Index const resident = detail::larger(per_processor, 1) * detail::as_index(processors);
    Index const blocks = detail::smaller(tiles, detail::larger(resident, entries >> 31));
    detail::SplitPlan const plan{entries, static_cast<int>(counts.size()),
                                 reinterpret_cast<unsigned long long*>(counts.data()), faults};
    detail::launch_kernel("split", detail::split_kernel<Rule>, static_cast<unsigned>(blocks), detail::block_threads,
                          stream, plan, rule);
}

}  // namespace reshard::inline v0_1
