// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/device_memory.hpp
/// \brief  Whether an address is memory of a device that the host cannot read.
/// \depends core/error.hpp, the dynamic loader of Linux. No CUDA: the driver is asked if the program has loaded it.
#pragma once

#include <reshard/core/error.hpp>

#if defined(__linux__)
#include <dlfcn.h>  // dlopen, dlsym
#include <link.h>   // dl_iterate_phdr

#include <atomic>
#endif

namespace reshard::inline v0 {

#if defined(__linux__)

namespace detail {

/// CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer)
using CudaPointerQuery = int (*)(void* data, int attribute, unsigned long long pointer);

/// The driver's function, or null while the program has not loaded the driver. Looks again only when something was
/// loaded since.
[[nodiscard]] inline CudaPointerQuery cuda_pointer_query() noexcept {
    static std::atomic<CudaPointerQuery> found{nullptr};
    static std::atomic<unsigned long long> seen{0};
    if (CudaPointerQuery const known = found.load(std::memory_order_acquire)) return known;
    unsigned long long loads = 0;
    auto const count = [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;
    };
    dl_iterate_phdr(count, &loads);
    if (loads == seen.load(std::memory_order_relaxed)) return nullptr;
    // Programs load the driver for themselves alone, so that its names are not in the global scope.
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) {
        seen.store(loads, std::memory_order_relaxed);
        return nullptr;
    }
    auto const query = reinterpret_cast<CudaPointerQuery>(::dlsym(driver, "cuPointerGetAttribute"));
    found.store(query, std::memory_order_release);  // the handle is kept: the driver stays as long as we ask it
    return query;
}

}  // namespace detail

/// True for memory of a CUDA device, unless it is managed: the host reads that.
[[nodiscard]] inline bool is_device_memory(void const* memory) noexcept {
    detail::CudaPointerQuery const query = memory == nullptr ? nullptr : detail::cuda_pointer_query();
    if (query == nullptr) return false;
    constexpr int memory_type = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    constexpr int is_managed = 8;   // CU_POINTER_ATTRIBUTE_IS_MANAGED
    constexpr unsigned device = 2;  // CU_MEMORYTYPE_DEVICE
    auto const address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(memory));
    unsigned type = 0;
    unsigned managed = 0;
    // Addresses the driver does not know are an error to it, and ordinary memory to us.
    if (query(&type, memory_type, address) != 0 || type != device) return false;
    return query(&managed, is_managed, address) != 0 || managed == 0;
}

#else

[[nodiscard]] inline bool is_device_memory(void const*) noexcept { return false; }

#endif

/// For transports that move memory of the host: throws BufferError, naming the transport, for memory of a device.
inline void refuse_device_memory(std::string_view transport, void const* memory) {
    if (!is_device_memory(memory)) return;
    raise(ErrorCode::buffer, concat("reshard: the transport '", transport,
                                    "' moves memory of the host, and this is memory of a CUDA device. Fix: copy it to "
                                    "the host first, or use a communicator for devices."));
}

}  // namespace reshard::inline v0
