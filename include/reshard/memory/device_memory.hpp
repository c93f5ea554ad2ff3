// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/device_memory.hpp
/// \brief  Whether an address is memory of a device that the host cannot read.
/// \depends core/error.hpp, the dynamic loader of Linux. No CUDA: the driver is asked if the program has loaded it.
#pragma once

#include <reshard/core/error.hpp>

#if defined(__linux__)
#include <dlfcn.h>  // RTLD_LAZY, RTLD_NOLOAD

#include <cstddef>  // offsetof

// Of <link.h>, which with <atomic> would cost every user of the umbrella a sixth of an include.
struct dl_phdr_info;
extern "C" int dl_iterate_phdr(int (*)(dl_phdr_info*, std::size_t, void*), void*);
#endif

namespace reshard::inline v0_1 {

#if defined(__linux__)

namespace detail {

/// How a dl_phdr_info begins, as the loaders of Linux promise (tests/memory/device_memory.test.cpp compares).
struct LoadedObject {
    std::uintptr_t address;
    char const* name;
    void const* headers;
    std::uint16_t header_count;
    unsigned long long loads;  ///< of the program so far
};

// References that ask for no library: a program that has no loader at run time has no driver either.
[[gnu::weakref("dlopen")]] static void* loader_open(char const* file, int mode) noexcept;
[[gnu::weakref("dlsym")]] static void* loader_find(void* object, char const* symbol) noexcept;

/// CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer)
using CudaPointerQuery = int (*)(void* data, int attribute, unsigned long long pointer);

/// The driver's function, or null while the program has not loaded the driver. Looks again only when something was
/// loaded since.
[[nodiscard]] inline CudaPointerQuery cuda_pointer_query() noexcept {
    static CudaPointerQuery found = nullptr;  // both atomic
    static unsigned long long seen = 0;
    if (CudaPointerQuery const known = __atomic_load_n(&found, __ATOMIC_ACQUIRE)) return known;
    unsigned long long loads = 0;
    auto const count = [](dl_phdr_info* info, std::size_t, void* out) {
        __builtin_memcpy(out, reinterpret_cast<char const*>(info) + offsetof(LoadedObject, loads), sizeof seen);
        return 1;
    };
    dl_iterate_phdr(count, &loads);
    if (loads == __atomic_load_n(&seen, __ATOMIC_RELAXED)) return nullptr;
    // Programs load the driver for themselves alone, so that its names are not in the global scope.
    void* const driver = loader_open == nullptr ? nullptr : loader_open("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) {
        __atomic_store_n(&seen, loads, __ATOMIC_RELAXED);
        return nullptr;
    }
    auto const query = reinterpret_cast<CudaPointerQuery>(loader_find(driver, "cuPointerGetAttribute"));
    __atomic_store_n(&found, query, __ATOMIC_RELEASE);  // the handle is kept: the driver stays as long as we ask it
    return query;
}

}  // namespace detail

/// True for memory of a CUDA device, unless it is managed: the host reads that.
[[nodiscard, gnu::noinline]] inline bool is_device_memory(void const* memory) noexcept {
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

/// For what moves memory of the host: throws BufferError, naming the transport, for memory of a device.
inline void refuse_device_memory(std::string_view transport, void const* memory) {
    if (!is_device_memory(memory)) return;
    errors::raise(ErrorCode::buffer, "reshard: the transport '", transport,
                  "' moves memory of the host, and this is memory of a CUDA device. Fix: copy it to "
                  "the host first, or use a communicator for devices.");
}

}  // namespace reshard::inline v0_1
