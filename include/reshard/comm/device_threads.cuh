// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_threads.cuh
/// \brief  DeviceThreadKernelCommunicator: a DeviceThreadCommunicator that copies all boxes of an exchange at once.
/// \depends comm/device_threads.hpp, comm/detail/kernel_copies.cuh. Needs nvcc. Link reshard::device, reshard::cuda.
///
/// Values change on the device, and plans fold, fill and scale by the kernels of DeviceMemory on the same stream. Where
/// a device does not reach another one's memory, and to and from the host, exchanges are as in comm/device_threads.hpp.
#pragma once

#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/comm/device_threads.hpp>

namespace reshard::inline v0 {

using DeviceThreadKernelCommunicator = BasicDeviceThreadCommunicator<detail::KernelCopies>;

static_assert(Communicator<DeviceThreadKernelCommunicator>);

}  // namespace reshard::inline v0
