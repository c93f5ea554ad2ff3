// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/device_threads.cuh
/// \brief  DeviceThreadKernelCommunicator: a DeviceThreadCommunicator that copies all boxes of an exchange in one
/// kernel. \depends comm/device_threads.hpp, comm/detail/kernel_copies.cuh. Needs nvcc. Link reshard::device and
/// reshard::cuda.
///
/// Where a device does not reach another one's memory, and to and from the host, copies are those of CUDA as in
/// comm/device_threads.hpp.
#pragma once

#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/comm/device_threads.hpp>

namespace reshard::inline v0 {

using DeviceThreadKernelCommunicator = BasicDeviceThreadCommunicator<detail::KernelCopies>;

static_assert(Communicator<DeviceThreadKernelCommunicator>);

}  // namespace reshard::inline v0
