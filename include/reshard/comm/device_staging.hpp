// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_staging.hpp
/// \brief  Where staging memory of transports for devices comes from: the device, or pinned memory of the host.
/// \depends comm/staged.hpp, memory/cuda_call.hpp.
#pragma once

#include <reshard/comm/staged.hpp>
#include <reshard/memory/cuda_call.hpp>

namespace reshard::inline v0 {

/// Memory of the current device, by cudaMalloc and cudaFree.
[[nodiscard]] inline StagingOptions device_staging(Index reserve_bytes = 0) noexcept {
    StagingOptions options;
    options.reserve_bytes = reserve_bytes;
    options.allocate = DeviceSource{}.allocate;
    options.release = DeviceSource{}.release;
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
