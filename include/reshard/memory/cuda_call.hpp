// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/cuda_call.hpp
/// \brief  The CUDA runtime for g++: its codes as typed errors, a device that is current for a while, events.
/// \depends core/error.hpp, the CUDA runtime (C interface; no nvcc).
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <cuda_runtime_api.h>

namespace reshard::inline v0::detail {

[[noreturn]] inline void raise_cuda(cudaError_t code, std::string_view call) {
    static_cast<void>(cudaGetLastError());  // told once: the next launch is not to blame
    std::string const text =
        concat("reshard: ", call, " failed: ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
    if (code == cudaErrorMemoryAllocation) {
        raise(ErrorCode::out_of_memory, concat(text, ". Fix: leave room on the device."));
    }
    raise(ErrorCode::transport, concat(text,
                                       ". Fix: look for the kernel or call of this process that went wrong "
                                       "first; run it under compute-sanitizer."));
}
/// Throws OutOfMemory or TransportError, with CUDA's own words, unless `code` is success.
inline void cuda_check(cudaError_t code, std::string_view call) {
    if (code != cudaSuccess) raise_cuda(code, call);
}

/// A device is the current one while this lives.
class CurrentDevice {
public:
    explicit CurrentDevice(int device) {
        cuda_check(cudaGetDevice(&before_), "cudaGetDevice");
        if (before_ == device) return;
        cuda_check(cudaSetDevice(device), "cudaSetDevice");
        changed_ = true;
    }
    CurrentDevice(CurrentDevice const&) = delete;
    CurrentDevice& operator=(CurrentDevice const&) = delete;
    ~CurrentDevice() {
        if (changed_) static_cast<void>(cudaSetDevice(before_));
    }

private:
    int before_ = 0;
    bool changed_ = false;
};

/// A place in a stream of the current device, for whoever waits for it.
class CudaEvent {
public:
    CudaEvent() { cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
    CudaEvent(CudaEvent const&) = delete;
    CudaEvent& operator=(CudaEvent const&) = delete;
    ~CudaEvent() { static_cast<void>(cudaEventDestroy(event_)); }

    /// After everything the stream was given so far.
    void record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
    /// What the stream is given from now on comes after this event.
    void hold_up(cudaStream_t stream) const {
        cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
    }
    [[nodiscard]] bool reached() const {
        cudaError_t const code = cudaEventQuery(event_);
        if (code == cudaErrorNotReady) return false;
        cuda_check(code, "cudaEventQuery");
        return true;
    }

private:
    cudaEvent_t event_ = nullptr;
};

/// Where an address lies, as a rank on a device sees it.
enum class MemoryKind : std::uint8_t {
    device,    ///< of the rank's device, or managed
    pinned,    ///< of the host; devices copy from it and to it without the host's help
    pageable,  ///< of the host
    elsewhere  ///< of another device
};

/// `device` is the rank's; `found`, where given, becomes the device the memory is of.
[[nodiscard]] inline MemoryKind memory_kind(int device, void const* memory, int* found = nullptr) {
    cudaPointerAttributes attributes{};
    cuda_check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    if (found != nullptr) *found = attributes.device;
    if (attributes.type == cudaMemoryTypeManaged) return MemoryKind::device;
    if (attributes.type == cudaMemoryTypeHost) return MemoryKind::pinned;
    if (attributes.type != cudaMemoryTypeDevice) return MemoryKind::pageable;
    return attributes.device == device ? MemoryKind::device : MemoryKind::elsewhere;
}

/// Whether kernels reach memory of the host by this address: what is pinned later, not always.
[[nodiscard]] inline bool kernels_reach(void const* memory) {
    cudaPointerAttributes attributes{};
    cuda_check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    return attributes.devicePointer == memory;
}

/// memory_kind() of what a rank on `device` may be asked to move; throws BufferError for memory of another device.
[[nodiscard]] inline MemoryKind reachable_kind(std::string_view transport, int device, void const* memory) {
    int found = device;
    MemoryKind const kind = memory_kind(device, memory, &found);
    if (kind != MemoryKind::elsewhere) return kind;
    raise(ErrorCode::buffer,
          concat("reshard: the transport '", transport, "' moves memory of device ", device,
                 " here, and this is memory of device ", found, ". Fix: give each rank buffers of its own device."));
}

}  // namespace reshard::inline v0::detail
