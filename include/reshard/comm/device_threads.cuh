// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_threads.cuh
/// \brief  DeviceThreadKernelCommunicator: a DeviceThreadCommunicator that copies all boxes of an exchange at once.
/// \depends comm/device_threads.hpp, comm/detail/kernel_copies.cuh. Needs nvcc. Link reshard::device, reshard::cuda.
///
/// Plans fold, fill, scale and cast, wherever each tensor lies: what lies on the device by kernels on the stream, what
/// lies on the host there (comm/detail/device_or_host_memory.cuh). Where a device does not reach another one's memory,
/// and to and from the host, exchanges are as in comm/device_threads.hpp.
#pragma once

#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/comm/device_threads.hpp>

namespace reshard::inline v0_1 {

using DeviceThreadKernelCommunicator = BasicDeviceThreadCommunicator<detail::KernelCopies>;

static_assert(Communicator<DeviceThreadKernelCommunicator>);

}  // namespace reshard::inline v0_1
