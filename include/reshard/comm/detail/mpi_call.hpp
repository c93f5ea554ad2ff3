// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_call.hpp
/// \brief  Return codes of MPI as typed errors.
/// \depends core, comm/mpi_options.hpp.
#pragma once

#include <reshard/comm/mpi_options.hpp>
#include <reshard/core/error.hpp>

namespace reshard::inline v0_1::detail {

[[nodiscard]] inline std::string mpi_error_text(int code) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return concat("error ", code);
    return {text, as_size(length)};
}

/// Throws TransportError, with MPI's own words, unless `code` is success. `peer` is a rank, or -1.
inline void mpi_check(int code, std::string_view call, int peer = -1) {
    if (code == MPI_SUCCESS) return;
    raise(ErrorCode::transport, "reshard::MpiCommunicator: ", call,
          peer < 0 ? std::string() : concat(" with rank ", peer), " failed: ", mpi_error_text(code),
          ". Fix: this communicator is lost; look for the cause in the "
          "network or in the rank that is named, and start again.");
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

/// Throws TransportError in a thread that may not call MPI, and where MPI is over.
inline void check_mpi_thread() {
    if (mpi_is_finalised()) {
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: MPI is already finalised. Fix: use communicators, and make them, before "
              "MPI_Finalize.");
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
}

/// What must hold before MPI may be asked for anything. Throws TransportError.
inline void check_mpi_environment(MPI_Comm comm) {
    auto const refuse_if = [](bool wrong, std::string_view why) {
        if (wrong) raise(ErrorCode::transport, "reshard::MpiCommunicator: ", why);
    };
    refuse_if(!mpi_is_initialised(),
              "MPI is not initialised. Fix: call MPI_Init_thread first, or let run_on_mpi() do it.");
    refuse_if(comm == MPI_COMM_NULL,
              "MPI_COMM_NULL is no communicator. Fix: only the ranks inside a group may wrap it.");
    check_mpi_thread();
    int is_inter = 0;
    mpi_check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
    refuse_if(is_inter != 0, "an inter-communicator joins two groups. Fix: merge them with MPI_Intercomm_merge.");
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

}  // namespace reshard::inline v0_1::detail
