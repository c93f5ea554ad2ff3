// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/fake_cuda_runtime.hpp
/// \brief  A test double of the CUDA runtime: exactly the calls that comm/ and memory/ make from g++, for ranks that
/// are
///         threads of one process. "Device memory" is memory of the host, and a stream is a list of what is left to do,
///         done when somebody asks for one of its events: as late as can be. Linked in place of libcudart, it says
///         nothing about CUDA: what it checks is how it is called.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace reshard::test::fake_runtime {

/// What all ranks have done since reset().
struct Counts {
    std::int64_t copies = 0;          ///< calls of cudaMemcpy*Async
    std::int64_t host_functions = 0;  ///< calls of cudaLaunchHostFunc
    std::int64_t launches = 0;        ///< of kernels, which do nothing: kernels_on_host.cpp has others
    std::int64_t device_allocations = 0;
    std::int64_t pinned_allocations = 0;
    std::int64_t default_stream = 0;    ///< what was enqueued on stream 0
    std::int64_t opened_peers = 0;      ///< calls of cudaDeviceEnablePeerAccess that did something
    std::int64_t opened_pools = 0;      ///< of cudaMemPoolSetAccess, for a device that has peer access
    std::int64_t freed_while_held = 0;  ///< calls of cudaFree* on a device that hold() holds, where CUDA would wait
};
Counts counts();
void reset();
/// Pointers that are allocated, events that exist.
int live_allocations();
int live_events();

/// The next call of this name by this thread, after `skipped` others, returns `code` instead of doing anything.
void fail(char const* call, int code, int skipped = 0);
/// The code that the call of this name by this thread fails with, or 0: for doubles of other libraries.
int fault(char const* call);
/// What cudaGetLastError() will say to this thread, as after a call or launch that fails: for doubles of launches.
void set_last_error(int code);

/// What cudaPointerGetAttributes says of these addresses: a device, or one of those below.
void claim(void const* memory, std::size_t bytes, int device);
inline constexpr int pageable_host = -1;
inline constexpr int pinned_host = -2;
inline constexpr int unmapped_host = -3;  ///< pinned, but kernels know it by another address
inline constexpr int managed = -4;        ///< of the device that asks, and of the host
/// What it says of all other addresses.
enum class Elsewhere {
    current_device,
    pageable,
    mixed  ///< by the address: the current device, pageable, or pinned
};
void set_elsewhere(Elsewhere kind);
/// Whether cudaDeviceCanAccessPeer says yes.
void set_peer_access(bool possible);

/// Nothing behind this in the stream, of the current device, begins before `until` is true.
void hold(cudaStream_t stream, std::atomic<bool> const& until);
/// A task of the stream; returns whether it is complete.
void add_task(cudaStream_t stream, std::function<bool()> task);

/// Memory that cudaMalloc gives out from now on can be touched by what runs in a stream only: copies, messages, kernels
/// (enqueue()). Code of the host that does dies of it, functions of cudaLaunchHostFunc as well. (Not always: not while
/// another thread's stream is at work.)
void guard_device_memory(bool on);
/// Runs body() as what may touch such memory.
void on_device(std::function<void()> const& body);
/// A kernel.
void enqueue(cudaStream_t stream, std::function<void()> kernel);
/// Until nothing is left in the stream.
void finish(cudaStream_t stream);

/// A stream that is gone at the end of the scope.
class Stream {
public:
    Stream() { static_cast<void>(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    Stream(Stream const&) = delete;
    Stream& operator=(Stream const&) = delete;
    ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
    operator cudaStream_t() const noexcept { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace reshard::test::fake_runtime
