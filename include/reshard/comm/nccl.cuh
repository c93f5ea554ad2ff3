// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/nccl.cuh
/// \brief  NcclKernelCommunicator: an NcclCommunicator that packs, converts and computes by kernels.
/// \depends comm/nccl.hpp, comm/detail/kernel_copies.cuh. Needs nvcc. Link reshard::nccl and reshard::cuda.
///
/// The boxes of a round are listed in pinned memory, and one launch walks the list; those that cast or scale are a list
/// and a launch of their own. Plans fold, fill and scale by the kernels of DeviceMemory, on the same stream, with
/// scratch memory from NcclOptions::staging. Everything else is as in comm/nccl.hpp.
#pragma once

#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/comm/nccl.hpp>

namespace reshard::inline v0_1 {

using NcclKernelCommunicator = BasicNcclCommunicator<detail::KernelCopies>;

static_assert(Communicator<NcclKernelCommunicator>);

}  // namespace reshard::inline v0_1
