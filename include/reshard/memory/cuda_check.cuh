// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/cuda_check.cuh
/// \brief  CUDA's errors as typed ones, and whether memory is what a kernel may be given.
/// \depends core/error.hpp, the CUDA runtime.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <cuda_runtime_api.h>

#include <new>   // nothrow_t
#include <span>  // span

namespace reshard::inline v0::detail {

/// Throws TransportError that names the call.
inline void check_cuda(cudaError_t error, char const* call) {
    if (error == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());  // told once: the next launch is not to blame
    raise(ErrorCode::transport,
          concat("reshard: ", call, " failed: ", cudaGetErrorName(error), ", ", cudaGetErrorString(error),
                 ". Fix: see CUDA's text; an earlier kernel may have caused it."));
}

/// A device is the current one while this lives.
class CudaDevice {
public:
    /// The one that is current now. Throws TransportError.
    [[nodiscard]] static int current() {
        int device = 0;
        check_cuda(cudaGetDevice(&device), "cudaGetDevice");
        return device;
    }
    /// Throws TransportError.
    explicit CudaDevice(int device) : before_(current()), changed_(before_ != device) {
        if (changed_) check_cuda(cudaSetDevice(device), "cudaSetDevice");
    }
    /// For destructors: does what it can.
    CudaDevice(int device, std::nothrow_t) noexcept {
        changed_ = cudaGetDevice(&before_) == cudaSuccess && before_ != device && cudaSetDevice(device) == cudaSuccess;
    }
    CudaDevice(CudaDevice const&) = delete;
    CudaDevice& operator=(CudaDevice const&) = delete;
    ~CudaDevice() {
        if (changed_) static_cast<void>(cudaSetDevice(before_));
    }

private:
    int before_ = 0;
    bool changed_ = false;
};

/// Throws BufferError for memory that kernels on the current device cannot be given: null, of the host, of another
/// device, or not aligned. Memory of no bytes may be anything.
inline void check_device_memory(char const* who, std::string_view what, Index number, void const* memory, Index bytes,
                                Index alignment = 1) {
    if (bytes == 0) return;
    auto const refuse = [&](char const* is, char const* remedy) {
        std::string const name = number < 0 ? std::string(what) : concat(what, " ", number);
        raise(ErrorCode::buffer, concat(who, ": ", name, " is ", is, ". Fix: ", remedy));
    };
    if (memory == nullptr) refuse("null", "give memory of the device.");
    if (reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(alignment) != 0) {
        refuse("not aligned to its elements", "align it; cudaMalloc aligns to 256 bytes.");
    }
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeManaged) return;
    if (attributes.type != cudaMemoryTypeDevice) {
        refuse("memory of the host", "copy it to the device first; host and device memory do not mix in one call.");
    }
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    if (attributes.device != device) {
        refuse("memory of another device", "call cudaSetDevice() first, or allocate it on the current device.");
    }
}

/// As above, and BufferError when there are fewer bytes than needed.
inline void check_device_span(char const* who, char const* what, std::span<std::byte const> memory, Index needed,
                              Index alignment) {
    if (static_cast<Index>(memory.size()) < needed) {
        raise(ErrorCode::buffer, concat(who, ": the ", what, " has ", memory.size(), " bytes, ", needed,
                                        " are needed. Fix: allocate as many as the call that states its size says."));
    }
    check_device_memory(who, what, -1, memory.data(), needed, alignment);
}

}  // namespace reshard::inline v0::detail
