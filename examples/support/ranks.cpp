// SPDX-License-Identifier: Apache-2.0
// The transports of the examples, compiled once.
#include "ranks.hpp"

#include <reshard/comm/threads.hpp>
#ifdef RESHARD_EXAMPLES_MPI
#include <reshard/comm/mpi.hpp>
#endif

#include <unistd.h>  // isatty

#include <cstdio>
#include <system_error>

int demo::run_ranks(char const* program, int ranks, int otherwise, RankOptions const& options,
                    std::function<void(reshard::CommunicatorRef)> const& body) {
    if (started_by_launcher()) {
#ifdef RESHARD_EXAMPLES_MPI
        reshard::MpiOptions mpi;
        mpi.deadline = options.deadline;
        if (options.apart) mpi.ranks_per_node = 1;
        int status = 0;
        int const ended = reshard::run_on_mpi(mpi, [&](reshard::MpiCommunicator& comm) {
            if (ranks == 0 || ranks == comm.size()) return body(comm);
            status = 2;  // all processes see it, and end by themselves
            if (comm.rank() != 0) return;
            std::fprintf(stderr,
                         "%s: --ranks %d but the launcher started %d processes. Fix: leave --ranks out, or mpirun "
                         "-n %d %s.\n",
                         program, ranks, comm.size(), ranks, program);
        });
        return ended != 0 ? ended : status;
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
        char const* const below_the_bar = ::isatty(STDERR_FILENO) != 0 ? "\n" : "";
        auto const* const system = dynamic_cast<std::system_error const*>(&error);
        bool const crowded = system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
        std::fprintf(stderr, "%s%s: %s%s%s\n", below_the_bar, program, crowded ? "a thread cannot be started: " : "",
                     error.what(), crowded ? ". Fix: fewer --ranks, or more processes (ulimit -u)." : "");
        return 1;
    }
}
