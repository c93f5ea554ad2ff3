// SPDX-License-Identifier: Apache-2.0
// The compiled library of reshard::mpi: ranks that are MPI processes.
#include <reshard/comm/mpi.ipp>
