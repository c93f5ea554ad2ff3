// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/ranks.hpp
/// \brief  One program, two ways to start it: alone its ranks are threads, under mpirun they are processes.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/threads.hpp>
#ifdef RESHARD_EXAMPLES_MPI
#include <reshard/comm/mpi.hpp>
#endif

#include "launcher.hpp"

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace demo {

/// What both kinds of ranks can be told.
struct RankOptions {
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< of a wait for other ranks
    bool apart = false;  ///< processes send messages even inside a node, as they do between nodes; threads cannot
};

/// Runs body(comm) on every rank and returns the program's exit status. `ranks` is the number of threads; 0 asks for
/// `otherwise` threads, or for as many ranks as the launcher started. Errors are printed, with the rank they belong to.
template <class Body>
int run_ranks(char const* program, int ranks, int otherwise, RankOptions const& options, Body&& body) {
    if (started_by_launcher()) {
#ifdef RESHARD_EXAMPLES_MPI
        reshard::MpiOptions mpi;
        mpi.deadline = options.deadline;
        if (options.apart) mpi.ranks_per_node = 1;
        return reshard::run_on_mpi(mpi, [&](reshard::MpiCommunicator& comm) {
            if (ranks != 0 && ranks != comm.size()) {
                reshard::raise(
                    reshard::ErrorCode::mesh,
                    reshard::concat("--ranks ", ranks, " but the launcher started ", comm.size(),
                                    " processes. Fix: leave --ranks out, or mpirun -n ", ranks, " ", program, "."));
            }
            body(comm);
        });
#else
        std::fprintf(stderr,
                     "%s: started by mpirun, but built without MPI. Fix: scripts/demo --mpi 4 installs one and builds "
                     "again (elsewhere: cmake --fresh), or start it alone with --ranks.\n",
                     program);
        return 1;
#endif
    }
    try {
        reshard::ThreadOptions threads;
        threads.deadline = options.deadline;
        reshard::run_on_threads(ranks == 0 ? otherwise : ranks, threads,
                                [&](reshard::ThreadCommunicator& comm) { body(comm); });
        return 0;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "\n%s: %s\n", program, error.what());
        return 1;
    }
}
template <class Body>
int run_ranks(char const* program, int ranks, int otherwise, Body&& body) {
    return run_ranks(program, ranks, otherwise, RankOptions{}, body);
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

/// As gather_records(), for lists of any lengths; `begin` receives where each rank's begins, and the end.
template <class T, reshard::Communicator C>
std::vector<T> gather_lists(C& comm, std::vector<T> const& mine, std::vector<std::size_t>* begin = nullptr) {
    auto const sizes = gather_records(comm, std::vector<std::size_t>{mine.size()});
    std::vector<T> padded = mine;
    for (std::size_t size : sizes) padded.resize(size > padded.size() ? size : padded.size());
    std::vector<T> const all = gather_records(comm, padded);
    std::vector<T> result;
    if (begin != nullptr) begin->assign(1, 0);
    for (std::size_t r = 0; r < sizes.size(); ++r) {
        auto const first = all.begin() + static_cast<std::ptrdiff_t>(r * padded.size());
        result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(sizes[r]));
        if (begin != nullptr) begin->push_back(result.size());
    }
    return result;
}

}  // namespace demo
