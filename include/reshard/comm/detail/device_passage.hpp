// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_passage.hpp
/// \brief  What a memory policy needs where tensors lie on the host or on a device: pinned memory in between, an end to
///         waits.
/// \depends comm/device_staging.hpp, comm/detail/device_wait.hpp, comm/detail/kept.hpp, memory/cuda_call.hpp.
#pragma once

#include <reshard/comm/detail/device_wait.hpp>
#include <reshard/comm/detail/kept.hpp>
#include <reshard/comm/device_staging.hpp>
#include <reshard/memory/cuda_call.hpp>

namespace reshard::inline v0::detail {

/// Owned by a communicator, which outlives the plans that use it. Work between its exchanges passes through it.
struct HostPassage {
    HostPassage(std::string_view name, cudaStream_t its_stream, int its_device, StagingOptions const& source,
                Index bytes) noexcept
        : transport(name), stream(its_stream), device(its_device), memory(source), window_bytes(bytes) {}
    HostPassage(HostPassage const&) = delete;
    HostPassage& operator=(HostPassage const&) = delete;
    ~HostPassage() {
        if (stuck) keep_for_good(std::move(memory));  // to free what the device may still use would be to wait for ever
    }

    /// Takes the memory, if that was not done. Throws OutOfMemory.
    void open() {
        CurrentDevice const here(device);
        if (memory.grow(window_bytes)) return;
        raise(ErrorCode::out_of_memory,
              concat("reshard: the transport '", transport, "' has no pinned memory for a window of ", window_bytes,
                     " bytes. Fix: a smaller window_bytes in its options, or a larger source of memory."));
    }
    /// Until the device has done everything in the stream. Throws DeadlineExceeded, TransportError.
    void wait() {
        CurrentDevice const here(device);
        auto const since = std::chrono::steady_clock::now();
        for (;;) {
            cudaError_t const code = cudaStreamQuery(stream);
            if (code != cudaErrorNotReady) return cuda_check(code, "cudaStreamQuery");
            if (await_device(since, deadline)) continue;
            stuck = true;
            raise(ErrorCode::deadline,
                  concat("reshard: the transport '", transport, "' waited ", static_cast<Index>(deadline.count()),
                         " ms for its device to be done with memory of the host. Fix: look for what keeps the stream "
                         "busy, or raise the deadline."));
        }
    }

    std::string_view transport;
    cudaStream_t stream;
    int device;
    StagingMemory memory;
    Index window_bytes;
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< comparable()
    bool stuck = false;                                            ///< a wait was given up
};

}  // namespace reshard::inline v0::detail
