// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/device_block.cuh
/// \brief  The block of threads that cuda/detail/block.hpp describes, on the device.
/// \depends cuda/detail/block.hpp, CUB's block scan and block reduce.
#pragma once

#include <reshard/cuda/detail/block.hpp>

#if defined(__CUDACC__)  // tests that run this on the host declare what they put in CUDA's place
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#endif

namespace reshard::inline v0_1::detail {

// Bodies are functions for host and device, so members are as well; on the host they are never called.
#if defined(__CUDA_ARCH__)
#define RESHARD_ON_DEVICE(...) __VA_ARGS__
#else
#define RESHARD_ON_DEVICE(...)
#endif

template <class BlockState>
class DeviceBlock {
public:
    using State = BlockState;
    using Scan = cub::BlockScan<Index, block_threads>;
    using Fold = cub::BlockReduce<Index, block_threads>;
    union Shared {
        typename Scan::TempStorage scan;
        typename Fold::TempStorage fold;
    };

    __device__ explicit DeviceBlock(Shared& shared) : shared_(shared) {}

    template <class F>
    RESHARD_HOST_DEVICE __forceinline__ void each(F&& f) {
        RESHARD_ON_DEVICE(f(static_cast<int>(threadIdx.x), state_); __syncthreads();)
    }
    RESHARD_HOST_DEVICE __forceinline__ void sync() { RESHARD_ON_DEVICE(__syncthreads();) }

    /// A vote per bit: as many instructions for keys that are all equal as for keys that all differ. The whole warp
    /// takes part, whatever its keys.
    template <class Key, class Read, class Write>
    RESHARD_HOST_DEVICE __forceinline__ void match(int bits, Key&& key, Read&& read, Write&& write) {
        RESHARD_ON_DEVICE(constexpr std::uint32_t warp = 0xffffffffU; std::uint32_t const mine = key(state_);
                          std::uint32_t peers = warp; for (int bit = 0; bit < bits; ++bit) {
                              bool const set = (mine >> bit & 1U) != 0;
                              std::uint32_t const vote = __ballot_sync(warp, set);
                              peers &= set ? vote : ~vote;
                          } read(static_cast<int>(threadIdx.x), state_, peers);
                          __syncwarp(); write(static_cast<int>(threadIdx.x), state_, peers); __syncwarp();)
    }

    template <class Value, class Take>
    RESHARD_HOST_DEVICE __forceinline__ void scan(Value&& value, Take&& take) {
        RESHARD_ON_DEVICE(Index before = 0; Index total = 0;
                          Scan(shared_.scan).ExclusiveSum(value(state_), before, total);
                          take(static_cast<int>(threadIdx.x), state_, before, total); __syncthreads();)
    }

    template <class Value, class Combine, class Take>
    RESHARD_HOST_DEVICE __forceinline__ void fold(Value&& value, Combine&& combine, Take&& take) {
        RESHARD_ON_DEVICE(Index const total = Fold(shared_.fold).Reduce(value(state_), combine);
                          if (threadIdx.x == 0) take(total); __syncthreads();)
    }

    /// The number before.
    template <class T>
    RESHARD_HOST_DEVICE __forceinline__ T add(T* to, T value) {
        RESHARD_ON_DEVICE(return atomicAdd(to, value);)
        return value;
    }
    template <class T>
    RESHARD_HOST_DEVICE __forceinline__ void lower(T* to, T value) {
        RESHARD_ON_DEVICE(atomicMin(to, value);)
    }
    template <class T>
    RESHARD_HOST_DEVICE __forceinline__ void higher(T* to, T value) {
        RESHARD_ON_DEVICE(atomicMax(to, value);)
    }
    /// The bits before.
    template <class T>
    RESHARD_HOST_DEVICE __forceinline__ T fetch_or(T* to, T value) {
        RESHARD_ON_DEVICE(return atomicOr(to, value);)
        return value;
    }

private:
    Shared& shared_;
    State state_;
};

#undef RESHARD_ON_DEVICE

}  // namespace reshard::inline v0_1::detail
