// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_staging.hpp
/// \brief  Where staging memory of transports for devices comes from: the device, or pinned memory of the host.
/// \depends comm/staged.hpp, memory/cuda_call.hpp.
#pragma once

#include <reshard/comm/staged.hpp>
#include <reshard/memory/cuda_call.hpp>

namespace reshard::inline v0_1 {

/// Memory of the current device, by cudaMalloc and cudaFree.
[[nodiscard]] inline StagingOptions device_staging(Index reserve_bytes = 0) noexcept {
    return {reserve_bytes, DeviceSource{}.allocate, DeviceSource{}.release};
}
namespace detail {
/// The same source for scratch memory of plans.
[[nodiscard]] inline DeviceSource source_of(StagingOptions const& staging) noexcept {
    return {staging.allocate, staging.release};
}
}  // namespace detail

/// Memory of the host that a device copies from and to without the host's help, by cudaMallocHost and cudaFreeHost.
[[nodiscard]] inline StagingOptions pinned_staging(Index reserve_bytes = 0) noexcept {
    auto const allocate = [](Index bytes) noexcept -> std::byte* {
        void* memory = nullptr;
        if (cudaMallocHost(&memory, detail::as_size(bytes)) == cudaSuccess) {
            return static_cast<std::byte*>(memory);
        }
        static_cast<void>(cudaGetLastError());
        return nullptr;
    };
    auto const release = [](std::byte* memory, Index) noexcept { static_cast<void>(cudaFreeHost(memory)); };
    return {reserve_bytes, allocate, release};
}

}  // namespace reshard::inline v0_1
