// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/cuda_call.hpp
/// \brief  The CUDA runtime: its codes as typed errors, a device that is current for a while, events, kinds of memory.
/// \depends core/error.hpp, core/detail/waiting.hpp, the CUDA runtime (C interface; no nvcc).
#pragma once

#include <reshard/core/detail/waiting.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>  // shared_ptr
#include <new>     // nothrow_t
#include <span>    // span

namespace reshard::inline v0_1 {

/// Where memory of a device comes from; null: there is none left. The device is current when they are called.
struct DeviceSource {
    std::byte* (*allocate)(Index bytes) noexcept = [](Index bytes) noexcept -> std::byte* {
        void* memory = nullptr;
        if (cudaMalloc(&memory, detail::as_size(bytes)) == cudaSuccess) return static_cast<std::byte*>(memory);
        static_cast<void>(cudaGetLastError());  // told by null: the next launch shall not tell it again
        return nullptr;
    };
    void (*release)(std::byte* memory, Index bytes) noexcept = [](std::byte* memory, Index) noexcept {
        static_cast<void>(cudaFree(memory));
    };
};

namespace detail {

[[noreturn]] inline void raise_cuda(cudaError_t code, std::string_view call) {
    static_cast<void>(cudaGetLastError());  // told once: the next launch is not to blame
    std::string const text =
        concat("reshard: ", call, " failed: ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
    if (code == cudaErrorMemoryAllocation) {
        raise(ErrorCode::out_of_memory, text, ". Fix: leave room on the device.");
    }
    raise(ErrorCode::transport, text,
          ". Fix: look for the kernel or call of this process that went wrong "
          "first; run it under compute-sanitizer.");
}
/// Throws OutOfMemory or TransportError, with CUDA's own words, unless `code` is success.
inline void cuda_check(cudaError_t code, std::string_view call) {
    if (code != cudaSuccess) raise_cuda(code, call);
}

/// Waits until what a stream was given, or what an event stands for, is done, and returns what CUDA says of it:
/// cudaErrorNotReady where the deadline, which is comparable(), has passed before.
template <class Place>
[[nodiscard]] cudaError_t await_cuda(cudaError_t (*query)(Place), Place place, Clock::time_point since,
                                     std::chrono::milliseconds deadline) noexcept {
    cudaError_t code = query(place);
    while (code == cudaErrorNotReady && await_device(since, deadline)) code = query(place);
    if (code != cudaSuccess) static_cast<void>(cudaGetLastError());  // told by what is returned
    return code;
}

/// How long the host waits for a stream, and whether it has given up. What works on one stream shares it.
struct StreamPatience {
    std::chrono::milliseconds deadline = comparable(std::chrono::milliseconds::max());  ///< comparable()
    /// A wait has been given up, and nobody has seen since that the stream is done.
    std::shared_ptr<bool> stuck = std::make_shared<bool>(false);

    /// Waits until the device has done everything in the stream. Throws TransportError; DeadlineExceeded, of which
    /// `what` is the subject: "the transport 'x'".
    template <class... Parts>
    void wait(cudaStream_t stream, Parts const&... what) const {
        cudaError_t const code = await_cuda(cudaStreamQuery, stream, Clock::now(), deadline);
        *stuck = code == cudaErrorNotReady;
        if (!*stuck) return cuda_check(code, "cudaStreamQuery");
        raise(ErrorCode::deadline, "reshard: ", what..., " waited ", as_index(deadline.count()),
              " ms for its device to be done. Fix: look for what keeps the stream busy, or raise the deadline.");
    }
    /// Whether the device, of which a wait was given up, may still use what it was to be done with. To free that would
    /// be to wait for ever: it is kept.
    [[nodiscard]] bool is_stuck(cudaStream_t stream) const noexcept {
        if (*stuck) *stuck = await_cuda(cudaStreamQuery, stream, {}, {}) == cudaErrorNotReady;
        return *stuck;
    }
};

/// Of an allocation that came to nothing: throws OutOfMemory, unless the device refuses whatever it is asked, which is
/// TransportError, with CUDA's words. It is the current one, and the stream is one of its.
[[noreturn]] inline void raise_no_memory(cudaStream_t stream, std::string text) {
    cudaError_t const code = cudaStreamQuery(stream);
    if (code != cudaSuccess && code != cudaErrorNotReady) raise_cuda(code, "cudaStreamQuery");
    raise(ErrorCode::out_of_memory, std::move(text));
}

/// Enqueues kernel(arguments...), whose address nvcc makes. Throws what CUDA says of this launch, not what it said of a
/// call before it that the program ignored; allocates nothing where all is well.
template <class... Parameters>
void launch_kernel(std::string_view what, void (*kernel)(Parameters...), unsigned blocks, int threads,
                   cudaStream_t stream, std::type_identity_t<Parameters> const&... arguments) {
    void* list[] = {const_cast<void*>(static_cast<void const*>(&arguments))...};
    cudaError_t const code = cudaLaunchKernel(reinterpret_cast<void const*>(kernel), dim3(blocks),
                                              dim3(static_cast<unsigned>(threads)), list, 0, stream);
    if (code != cudaSuccess) raise_cuda(code, concat("the launch of reshard's kernel '", what, "'"));
}

[[nodiscard]] inline int current_device() {
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// A device is the current one while this lives.
class CurrentDevice {
public:
    explicit CurrentDevice(int device) : before_(current_device()), changed_(before_ != device) {
        if (changed_) cuda_check(cudaSetDevice(device), "cudaSetDevice");
    }
    /// For destructors: does what it can.
    CurrentDevice(int device, std::nothrow_t) noexcept {
        changed_ = cudaGetDevice(&before_) == cudaSuccess && before_ != device && cudaSetDevice(device) == cudaSuccess;
    }
    CurrentDevice& operator=(CurrentDevice&&) = delete;
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
    CudaEvent& operator=(CudaEvent&&) = delete;
    ~CudaEvent() { static_cast<void>(cudaEventDestroy(event_)); }

    /// After everything the stream was given so far.
    void record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
    /// What the stream is given from now on comes after this event.
    void hold_up(cudaStream_t stream) const {
        cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
    }
    /// Waits for it, at most the deadline. Whether the device may still be busy then: not one that answers with an
    /// error.
    [[nodiscard]] bool outlasts(Clock::time_point since, std::chrono::milliseconds deadline) const noexcept {
        return await_cuda(cudaEventQuery, event_, since, deadline) == cudaErrorNotReady;
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
    raise(ErrorCode::buffer, "reshard: the transport '", transport, "' moves memory of device ", device,
          " here, and this is memory of device ", found, ". Fix: give each rank buffers of its own device.");
}

/// Opens the memory of another device to `device`, the current one, where the machine can do that; whether it can.
[[nodiscard]] inline bool open_peer(int device, int peer) {
    int can = 0;
    cuda_check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer");
    if (can == 0) return false;
    cudaError_t const code = cudaDeviceEnablePeerAccess(peer, 0);
    if (code != cudaSuccess) static_cast<void>(cudaGetLastError());  // or the next launch would report it
    if (code != cudaErrorPeerAccessAlreadyEnabled) cuda_check(code, "cudaDeviceEnablePeerAccess");
    // Peer access does not cover what cudaMallocAsync gives (CUDA C++ Programming Guide, "Multi-GPU Support" of the
    // stream-ordered allocator): the pool of that device is told that this one reads it. Other pools are their owner's.
    cudaMemPool_t pool = nullptr;
    if (cudaDeviceGetMemPool(&pool, peer) != cudaSuccess) {  // a device without pools gives no such memory
        static_cast<void>(cudaGetLastError());
        return true;
    }
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    cuda_check(cudaMemPoolSetAccess(pool, &access, 1), "cudaMemPoolSetAccess");
    return true;
}

/// Throws BufferError for memory that kernels on the current device cannot be given: null, of the host, of another
/// device, or not aligned. Memory of no bytes may be anything.
inline void check_device_memory(char const* who, std::string_view what, Index number, void const* memory, Index bytes,
                                Index alignment = 1) {
    if (bytes == 0) return;
    auto const refuse = [&](char const* is, char const* remedy) {
        std::string const name = number < 0 ? std::string(what) : concat(what, " ", number);
        raise(ErrorCode::buffer, who, ": ", name, " is ", is, ". Fix: ", remedy);
    };
    if (memory == nullptr) refuse("null", "give memory of the device.");
    if (reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(alignment) != 0) {
        refuse("not aligned to its elements", "align it; cudaMalloc aligns to 256 bytes.");
    }
    MemoryKind const kind = memory_kind(current_device(), memory);
    if (kind == MemoryKind::elsewhere) {
        refuse("memory of another device", "call cudaSetDevice() first, or allocate it on the current device.");
    }
    if (kind != MemoryKind::device) {
        refuse("memory of the host", "copy it to the device first; host and device memory do not mix in one call.");
    }
}

/// As above, and BufferError when there are fewer bytes than needed.
inline void check_device_span(char const* who, char const* what, std::span<std::byte const> memory, Index needed,
                              Index alignment) {
    if (as_index(memory.size()) < needed) {
        raise(ErrorCode::buffer, who, ": the ", what, " has ", memory.size(), " bytes, ", needed,
              " are needed. Fix: allocate as many as the call that states its size says.");
    }
    check_device_memory(who, what, -1, memory.data(), needed, alignment);
}

}  // namespace detail

}  // namespace reshard::inline v0_1
