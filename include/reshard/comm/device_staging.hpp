// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_staging.hpp
/// \brief  Where staging memory of transports for devices comes from: the device, or pinned memory of the host.
/// \depends comm/staged.hpp, the CUDA runtime (C interface; no nvcc).
#pragma once

#include <reshard/comm/staged.hpp>

#include <cuda_runtime_api.h>

namespace reshard::inline v0 {

/// Memory of the current device, by cudaMalloc and cudaFree.
[[nodiscard]] inline StagingOptions device_staging(Index reserve_bytes = 0) noexcept {
    StagingOptions options;
    options.reserve_bytes = reserve_bytes;
    options.allocate = [](Index bytes) noexcept -> std::byte* {
        void* memory = nullptr;
        if (cudaMalloc(&memory, static_cast<std::size_t>(bytes)) == cudaSuccess) return static_cast<std::byte*>(memory);
        static_cast<void>(cudaGetLastError());  // it is told by what is returned: the next launch is not to blame
        return nullptr;
    };
    options.release = [](std::byte* memory, Index) noexcept { static_cast<void>(cudaFree(memory)); };
    return options;
}

/// Memory of the host that a device copies from and to without the host's help, by cudaMallocHost and cudaFreeHost.
[[nodiscard]] inline StagingOptions pinned_staging(Index reserve_bytes = 0) noexcept {
    StagingOptions options;
    options.reserve_bytes = reserve_bytes;
    options.allocate = [](Index bytes) noexcept -> std::byte* {
        void* memory = nullptr;
        if (cudaMallocHost(&memory, static_cast<std::size_t>(bytes)) == cudaSuccess) {
            return static_cast<std::byte*>(memory);
        }
        static_cast<void>(cudaGetLastError());
        return nullptr;
    };
    options.release = [](std::byte* memory, Index) noexcept { static_cast<void>(cudaFreeHost(memory)); };
    return options;
}

}  // namespace reshard::inline v0
