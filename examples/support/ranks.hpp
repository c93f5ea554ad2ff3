// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/ranks.hpp
/// \brief  One program, two ways to start it: alone its ranks are threads, under mpirun they are processes.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/threads.hpp>
#ifdef RESHARD_EXAMPLES_MPI
#include <reshard/comm/mpi.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace demo {

/// Whether a launcher started this process as one of several.
inline bool started_by_launcher() {
#ifdef RESHARD_EXAMPLES_MPI
    return reshard::started_by_mpi();
#else
    for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
        if (std::getenv(name) != nullptr) return true;
    return false;
#endif
}

/// Runs body(comm) on every rank and returns the program's exit status. `ranks` is the number of threads; 0 asks for
/// `otherwise` threads, or for as many ranks as the launcher started. Errors are printed, with the rank they belong to.
template <class Body>
int run_ranks(char const* program, int ranks, int otherwise, Body&& body) {
    if (started_by_launcher()) {
#ifdef RESHARD_EXAMPLES_MPI
        return reshard::run_on_mpi([&](reshard::MpiCommunicator& comm) {
            if (ranks != 0 && ranks != comm.size()) {
                reshard::raise(reshard::ErrorCode::mesh,
                               reshard::concat("--ranks ", ranks, " but the launcher started ", comm.size(),
                                               " processes. Fix: leave --ranks out, or start as many."));
            }
            body(comm);
        });
#else
        std::fprintf(stderr,
                     "%s: started by mpirun, but built without MPI. Fix: install an MPI (libopenmpi-dev) and build "
                     "again, or start it alone with --ranks.\n",
                     program);
        return 1;
#endif
    }
    try {
        reshard::run_on_threads(ranks == 0 ? otherwise : ranks, [&](reshard::ThreadCommunicator& comm) { body(comm); });
        return 0;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "\n%s: %s\n", program, error.what());
        return 1;
    }
}

/// What the ranks of a communicator are, for headings.
template <reshard::Communicator C>
std::string ranks_text(C const& comm) {
    return reshard::concat(comm.size(), " ranks (", C::name, ")");
}

/// The text of rank 0, on every rank.
template <reshard::Communicator C>
std::string share_text(C& comm, std::string const& text) {
    reshard::Index size = static_cast<reshard::Index>(text.size());
    reshard::broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), 0);
    std::string result = comm.rank() == 0 ? text : std::string(static_cast<std::size_t>(size), ' ');
    reshard::broadcast(comm, std::as_writable_bytes(std::span(result)), 0);
    return result;
}

/// `mine` of every rank, rank after rank, on every rank. The same number everywhere.
template <class T, reshard::Communicator C>
std::vector<T> gather_records(C& comm, std::vector<T> const& mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(comm.size()));
    reshard::all_gather(comm, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    return all;
}

}  // namespace demo
