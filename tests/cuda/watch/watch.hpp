// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/watch/watch.hpp
/// \brief  Watches every access of kernel bodies that run on the host: what compute-sanitizer's racecheck, memcheck and
///         initcheck would say, and what a profiler's memory tables would count.
///
/// Bodies are compiled with -fsanitize=thread, which calls a function for each load and store; calls.cpp has these
/// functions, in place of the sanitiser's own. Only what a thread of a kernel does is looked at: its own State and its
/// stack are registers, the block's Shared is shared memory, all else is global memory, which has to be a HostDevice's.
///
/// Faults: a race (in one phase two threads of a block touch one byte, one of them writes, and not both atomically; of
/// a warp: between the barriers of match(); two blocks of a launch do), a read of what nobody wrote, by kernels and by
/// what stands for CUB and for copies, an access outside the device's memory or behind the block's Shared.
///
/// Traffic: lanes of a warp that execute one instruction are one request, the k-th time with the k-th. That is exact
/// where they do not diverge; where they do, requests may be put together that a device would make one by one.
#pragma once

#include "cuda/support/host_device.hpp"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <typeinfo>
#include <vector>

namespace reshard::test::watch {

/// What all launches of one kernel did, so far.
struct Traffic {
    std::string kernel;
    Index launches = 0;
    Index blocks = 0;
    Index read = 0;  ///< bytes of global memory that requests asked for, each byte of a request once
    Index written = 0;
    Index sectors = 0;    ///< of 32 bytes, that these requests touch
    Index memory = 0;     ///< bytes of the sectors that a launch reads or writes, each once: caches that keep all
    Index shared = 0;     ///< requests to shared memory, of 128 bytes at most
    Index conflicts = 0;  ///< cycles that these take beyond one each, because of banks
    Index atomics = 0;    ///< on global memory
    Index shared_atomics = 0;
    Index contention = 0;  ///< most atomics of one block and phase on one address, global or shared

    [[nodiscard]] Index bytes() const noexcept { return read + written; }
    /// Of the bytes in the sectors touched, those that were asked for.
    [[nodiscard]] double sectors_used() const noexcept {
        return sectors == 0 ? 1 : static_cast<double>(bytes()) / (32.0 * static_cast<double>(sectors));
    }
    [[nodiscard]] double conflicts_per_request() const noexcept {
        return shared == 0 ? 0 : static_cast<double>(conflicts) / static_cast<double>(shared);
    }
};

/// Everything that was found since forget(), in the order in which it was.
[[nodiscard]] std::vector<std::string> faults();
/// By name of kernel.
[[nodiscard]] std::vector<Traffic> traffic();
/// That of one kernel; empty if it was not launched.
[[nodiscard]] Traffic traffic_of(std::string const& kernel);
void forget();
void print_traffic(std::ostream& out);

/// `State` for reshard::detail::State.
[[nodiscard]] std::string type_name(std::type_info const& type);

// ---- For those that run what is watched --------------------------------------------------------------------------

enum class Kind : std::uint8_t { read, write, atomic };
/// An access at the instruction `pc`; looked at only if a thread of a kernel makes it.
void touched(void const* memory, std::size_t bytes, Kind kind, void const* pc);

/// A launch under way on this thread. One at a time.
class Launch {
public:
    /// `device`: whose memory kernels may touch; null: any, of the instrument's own tests.
    Launch(std::string kernel, HostDevice const* device);
    Launch(Launch const&) = delete;
    Launch& operator=(Launch const&) = delete;
    ~Launch();
    void begin_block(Index number, void const* shared, std::size_t shared_bytes);
    /// A barrier of the block: what came before it and what comes behind it cannot race.
    void barrier();
    /// A barrier of each warp, after match(): its reads are stage 0, its writes stage 1.
    void warp_barrier();
    void end_block();
};

/// What is done while this lives is done by a thread of the block. Its State counts as registers.
class Thread {
public:
    Thread(int thread, void const* state, std::size_t state_bytes, int stage = 0);
    Thread(Thread const&) = delete;
    Thread& operator=(Thread const&) = delete;
    ~Thread();
};
/// An atomic operation on `bytes` bytes; what is done while this lives is not watched.
class Atomic {
public:
    Atomic(void const* memory, std::size_t bytes);
    Atomic(Atomic const&) = delete;
    Atomic& operator=(Atomic const&) = delete;
    ~Atomic();

private:
    bool was_watched_;
};

}  // namespace reshard::test::watch
