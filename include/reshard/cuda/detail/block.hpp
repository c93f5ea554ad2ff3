// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/detail/block.hpp
/// \brief  What kernel bodies are written against: a block of threads that works in phases.
/// \depends core. Compiles without CUDA, so that tests run the bodies of kernels on the host.
///
/// A body is a function of a `Block`, of shared memory and of parameters. It holds no variable that differs from thread
/// to thread: those are members of `Block::State`, and threads meet them in phases only:
///
///     block.each([&](int thread, State& state) { ... });     every thread, then a barrier
///     block.match(bits, key, read, write);                   warps: who has my key? read, warp barrier, write
///     block.scan(value, take);                               exclusive sum over the threads, then a barrier
///     block.fold(value, combine, take);                      take(what all threads have, as one number) by one of
///                                                            them, then a barrier
///     block.add(&shared_counter, 1u);                        the number before; atomic, shared or global memory
///
/// Numbers of 64 bits that all threads have a part in are folded: atomics of 64 bits on shared memory are loops of
/// compare-and-swap on devices (tests/cuda/registers looks for them), which a block's threads would go through by
/// turns.
///
/// Nothing one thread writes is read by another in the same phase, so the order of threads within a phase is free: the
/// device runs them at once (DeviceBlock), tests run them in any order (HostBlock), and results are the same bits.
#pragma once

#include <reshard/core/detail/access.hpp>

namespace reshard::inline v0_1::detail {

inline constexpr int block_threads = 256;
inline constexpr int warp_threads = 32;
inline constexpr int block_warps = block_threads / warp_threads;

/// For bodies that need none.
struct NoState {};
struct NoShared {};

/// Blocks that a processor should have room for: what a body asks for, or 0 for what comes out.
template <class Body>
inline constexpr int resident_blocks = 0;
template <class Body>
    requires requires { Body::resident_blocks; }
inline constexpr int resident_blocks<Body> = Body::resident_blocks;

[[nodiscard]] RESHARD_HOST_DEVICE constexpr int lane_of(int thread) noexcept { return thread % warp_threads; }
[[nodiscard]] RESHARD_HOST_DEVICE constexpr int warp_of(int thread) noexcept { return thread / warp_threads; }

[[nodiscard]] RESHARD_HOST_DEVICE inline int ones(std::uint32_t bits) noexcept {
#if defined(__CUDA_ARCH__)
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

/// How many threads of a mask of the warp come before a lane.
[[nodiscard]] RESHARD_HOST_DEVICE inline int ones_below(std::uint32_t mask, int lane) noexcept {
    return ones(mask & ((std::uint32_t{1} << static_cast<unsigned>(lane)) - 1U));
}

/// Bits that tell `count` values 0 ... count - 1 apart. \pre count >= 1.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr int bits_for(std::uint64_t count) noexcept {
    int bits = 0;
    for (std::uint64_t rest = count - 1; rest != 0; rest >>= 1U) ++bits;
    return bits;
}

/// A tile of a body that knows one index at a time.
template <class Body>
struct EachIndex {
    Index count;
    Body body;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, NoShared&, Index tile) const {
        block.each([&](int thread, auto&) {
            Index const i = tile * block_threads + thread;
            if (i < count) body(block, i);
        });
    }
};

}  // namespace reshard::inline v0_1::detail
