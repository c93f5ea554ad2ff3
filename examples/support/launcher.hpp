// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/launcher.hpp
/// \brief  What a launcher of MPI (mpirun, mpiexec, srun with a PMI) says in the environment. Makes no MPI call.
#pragma once

#include <cstdlib>
#include <initializer_list>

namespace demo {

/// Whether a launcher started this process, if only as one of one.
inline bool started_by_launcher() {
    for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
        if (std::getenv(name) != nullptr) return true;
    return false;
}

/// Whether this is the process that speaks where one is enough: rank 0, or one that was started alone.
inline bool is_first_process() {
    for (char const* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
        if (char const* const rank = std::getenv(name)) return std::atoi(rank) == 0;
    return true;
}

/// Which of its node's ranks this process is, where the launcher says; else its rank, as on one node.
inline int rank_in_node(int rank) {
    for (char const* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
        if (char const* const local = std::getenv(name)) return std::atoi(local);
    return rank;
}

}  // namespace demo
