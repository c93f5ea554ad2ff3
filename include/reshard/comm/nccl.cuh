// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/nccl.cuh
/// \brief  NcclKernelCommunicator: an NcclCommunicator that packs, and unpacks, for all peers in one kernel.
/// \depends comm/nccl.hpp, comm/detail/kernel_copies.cuh. Needs nvcc. Link reshard::nccl and reshard::cuda.
///
/// The boxes of a round are listed in pinned memory, and one launch walks the list. Everything else is as in
/// comm/nccl.hpp.
#pragma once

#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/comm/nccl.hpp>

namespace reshard::inline v0 {

using NcclKernelCommunicator = BasicNcclCommunicator<detail::KernelCopies>;

static_assert(Communicator<NcclKernelCommunicator>);

}  // namespace reshard::inline v0
