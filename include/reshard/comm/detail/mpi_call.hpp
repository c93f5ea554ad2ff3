// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_call.hpp
/// \brief  <mpi.h> without its C++ bindings, return codes as typed errors, and the options of an MPI transport.
/// \depends core, memory/copy.hpp, MPI 3.1.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/memory/copy.hpp>

#include <chrono>  // milliseconds

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

namespace reshard::inline v0 {

/// How ranks of one node reach each other's ordinary memory. Memory of MpiCommunicator::allocate() is read in place,
/// whatever this says.
enum class MpiPath : std::uint8_t {
    automatic,  ///< attach where a trial at construction works between all ranks of the node, otherwise messages;
                ///< transfers of a few kilobytes through shared memory, as with attach
    messages,   ///< MPI messages, whatever the size
    attach,     ///< process_vm_readv for long rows; the constructor throws TransportError where the system forbids it
};

/// How ranks that are MPI processes behave. The same on every rank.
struct MpiOptions {
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< of a wait in which nothing moves
    MpiPath path = MpiPath::automatic;
    Index streaming_threshold = streaming_payload_bytes;  ///< bytes the ranks of a node receive at once, see CopyHint
    int ranks_per_node = 0;  ///< at most so many ranks count as one node; 0: as many as share memory. For tests.
};

namespace detail {

[[nodiscard]] inline std::string mpi_error_text(int code) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return concat("error ", code);
    return {text, static_cast<std::size_t>(length)};
}

/// Throws TransportError, with MPI's own words, unless `code` is success. `peer` is a rank, or -1.
inline void mpi_check(int code, std::string_view call, int peer = -1) {
    if (code == MPI_SUCCESS) return;
    raise(ErrorCode::transport,
          concat("reshard::MpiCommunicator: ", call, peer < 0 ? std::string() : concat(" with rank ", peer),
                 " failed: ", mpi_error_text(code),
                 ". Fix: this communicator is lost; look for the cause in the "
                 "network or in the rank that is named, and start again."));
}

[[nodiscard]] inline bool mpi_is_initialised() noexcept {
    int flag = 0;
    return MPI_Initialized(&flag) == MPI_SUCCESS && flag != 0;
}
[[nodiscard]] inline bool mpi_is_finalised() noexcept {
    int flag = 0;
    return MPI_Finalized(&flag) == MPI_SUCCESS && flag != 0;
}
[[nodiscard]] inline bool mpi_is_usable() noexcept { return mpi_is_initialised() && !mpi_is_finalised(); }

/// What must hold before MPI may be asked for anything. Throws TransportError.
inline void check_mpi_environment(MPI_Comm comm) {
    if (!mpi_is_initialised()) {
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: MPI is not initialised. Fix: call MPI_Init_thread "
              "first, or let run_on_mpi() do it.");
    }
    if (mpi_is_finalised()) {
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: MPI is already finalised. Fix: make communicators "
              "before MPI_Finalize.");
    }
    if (comm == MPI_COMM_NULL) {
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: MPI_COMM_NULL is no communicator. Fix: only the ranks "
              "inside a group may wrap it.");
    }
    int level = MPI_THREAD_SINGLE;
    int is_main = 0;
    mpi_check(MPI_Query_thread(&level), "MPI_Query_thread");
    mpi_check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
    if (level < MPI_THREAD_SERIALIZED && is_main == 0) {
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: this is not the thread that initialised MPI, and MPI "
              "was initialised for that one alone. Fix: ask MPI_Init_thread for "
              "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE.");
    }
    int is_inter = 0;
    mpi_check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
    if (is_inter != 0) {
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: an inter-communicator joins two groups. Fix: merge "
              "them with MPI_Intercomm_merge.");
    }
}

[[nodiscard]] inline int mpi_rank(MPI_Comm comm) {
    int rank = 0;
    mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    return rank;
}
[[nodiscard]] inline int mpi_size(MPI_Comm comm) {
    int size = 0;
    mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    return size;
}

}  // namespace detail
}  // namespace reshard::inline v0
