// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/nccl_from_mpi.hpp
/// \brief  nccl_from_mpi(): ranks of mpirun become ranks of NCCL.
/// \depends comm/mpi.hpp, comm/nccl.hpp. Link reshard::nccl and reshard::mpi.
#pragma once

#include <reshard/comm/mpi.hpp>
#include <reshard/comm/nccl.hpp>

namespace reshard::inline v0 {

/// Collective over `comm`; MPI hands out the unique id and is not asked again. Each rank on the device that is current.
/// Of an MpiCommunicator: nccl_from().
template <Communicator Result = NcclCommunicator>
[[nodiscard]] Result nccl_from_mpi(MPI_Comm comm, cudaStream_t stream, NcclOptions const& options = {}) {
    MpiOptions mpi;
    mpi.deadline = options.deadline;
    MpiCommunicator host(comm, mpi);
    return nccl_from<Result>(host, stream, options);
}

}  // namespace reshard::inline v0
