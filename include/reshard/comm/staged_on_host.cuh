// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/staged_on_host.cuh
/// \brief  StagedOnHostWithKernels<C>: a StagedOnHost that packs by kernels, and whose plans compute.
/// \depends comm/staged_on_host.hpp, comm/detail/kernel_copies.cuh. Needs nvcc. Link reshard::device, reshard::cuda.
///
///     auto comm = compose<StagedOnHostWithKernels>(MpiCommunicator{MPI_COMM_WORLD}, StagedOnHostOptions{stream});
///
/// Plans fold, fill, scale and cast, wherever each tensor lies: what lies on the device by kernels on the stream, what
/// lies on the host there (comm/detail/device_or_host_memory.cuh). Between pageable memory and the device, plans take
/// up to 4 MiB of pinned memory beside the window. Everything else is as in comm/staged_on_host.hpp.
#pragma once

#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/comm/staged_on_host.hpp>

namespace reshard::inline v0_1 {

template <class C>
using StagedOnHostWithKernels = BasicStagedOnHost<C, detail::KernelCopies>;

template <>
inline constexpr PolicyKind policy_kind<StagedOnHostWithKernels> = PolicyKind::memory;

}  // namespace reshard::inline v0_1
