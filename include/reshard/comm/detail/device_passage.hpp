// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/device_passage.hpp
/// \brief  What transports and memory policies need between the host and a device: pinned memory, an end to waits, work
///         of the host in the order of a stream.
/// \depends comm/device_staging.hpp, comm/detail/waiting.hpp, core/detail/watched.hpp, memory/{copy,cuda_call}.hpp.
#pragma once

#include <reshard/comm/detail/waiting.hpp>
#include <reshard/comm/device_staging.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/cuda_call.hpp>

#include <vector>

namespace reshard::inline v0::detail {

/// After a failure: waits for the event, at most the deadline. Whether the device may still be busy then.
[[nodiscard]] inline bool outlasts(CudaEvent const& event, std::chrono::steady_clock::time_point since,
                                   std::chrono::milliseconds deadline) noexcept {
    bool over = false;
    while (!over) {
        quietly([&] {
            over = true;  // a device that answers with an error does nothing any more
            over = event.reached();
        });
        if (!over && !await_device(since, deadline)) return true;
    }
    return false;
}

/// What deliver() takes.
struct Delivery {
    Send from;
    Receive to;
};

/// deliver() by the host, in the middle of a stream.
class HostJobs {
public:
    /// Before an exchange, for all that it adds: jobs keep their addresses.
    void reserve(Index most) {
        jobs_.clear();
        jobs_.reserve(static_cast<std::size_t>(most));
    }
    void add(Send const& from, Receive const& to, cudaStream_t stream) {
        jobs_.push_back({from, to});
        cuda_check(cudaLaunchHostFunc(
                       stream,
                       [](void* data) {
                           auto const& job = *static_cast<Delivery const*>(data);
                           deliver(job.from, job.to);
                       },
                       &jobs_.back()),
                   "cudaLaunchHostFunc");
    }

private:
    std::vector<Delivery> jobs_;
};

/// Owned by a communicator, which outlives the plans that use it. Work between its exchanges passes through it.
struct HostPassage {
    HostPassage(std::string_view name, cudaStream_t its_stream, int its_device, StagingOptions const& source,
                Index bytes) noexcept
        : transport(name), stream(its_stream), device(its_device), memory(source), window_bytes(bytes) {}
    HostPassage(HostPassage const&) = delete;
    HostPassage& operator=(HostPassage const&) = delete;
    ~HostPassage() { memory.close(stuck); }

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
