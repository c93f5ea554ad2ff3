// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/mpi_options.hpp
/// \brief  How ranks that are MPI processes behave; <mpi.h> without its C++ bindings.
/// \depends memory/copy.hpp, MPI 3.1; <chrono>.
#pragma once

#include <reshard/memory/copy.hpp>

#include <chrono>  // milliseconds

// clang-format off
#if defined(RESHARD_COMPILED_MPI)
RESHARD_MODE_OF(RESHARD_COMPILED_MPI, )
#else
RESHARD_MODE_OF(RESHARD_COMPILED_MPI, thread_local)
#endif
// clang-format on

// The C++ bindings were removed from MPI in 2012 and cost half a second of every compilation.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error "reshard: comm/mpi.hpp needs MPI 3.1 or newer."
#endif

namespace reshard::inline v0_1 {

/// How ranks of one node reach each other's ordinary memory. Memory of MpiCommunicator::allocate() is read in place,
/// whatever this says.
enum class MpiPath : std::uint8_t {
    automatic,  ///< attach where a trial at construction works between all ranks of the node, otherwise messages;
                ///< transfers of a few kilobytes through shared memory, as with attach
    messages,   ///< MPI messages, whatever the size
    attach,     ///< process_vm_readv for long rows; the constructor throws TransportError where the system forbids it
};

/// How ranks that are MPI processes behave. The same on every rank, but for `interrupted`.
struct MpiOptions {
    /// Of a wait in which nothing moves, and no rank of the same node copies.
    std::chrono::milliseconds deadline = std::chrono::minutes(5);
    MpiPath path = MpiPath::automatic;
    /// Bytes the ranks of a node receive at once, see CopyHint.
    Index streaming_threshold_bytes = transport::streaming_payload_bytes;
    int ranks_per_node = 0;  ///< at most so many ranks count as one node; 0: as many as share memory. For tests.
    /// Asked every 20 ms, by the thread that waits for other ranks: true ends the wait, and the communicator, as
    /// abort() does, by a UserError; the others hear of it as PeerFailed. What it throws goes the same way.
    bool (*interrupted)() = nullptr;
};

}  // namespace reshard::inline v0_1
