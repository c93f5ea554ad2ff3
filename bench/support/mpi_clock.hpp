// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/mpi_clock.hpp
/// \brief  One clock for the ranks of an MPI job that runs on one machine.
#pragma once

#include "paired.hpp"

#include <reshard/comm/mpi.hpp>

namespace reshard::bench {

/// Times what all ranks do together: from the moment the first one starts to the moment the last one is done. The
/// monotonic clock is one and the same for all processes of a machine.
class MpiClock {
public:
    explicit MpiClock(MPI_Comm comm) : comm_(comm) {}

    /// Called by every rank; every one gets the same number of seconds for one of `calls` tasks in a row.
    template <class Task>
    [[nodiscard]] double operator()(int calls, Task&& task) {
        MPI_Barrier(comm_);
        double span[2];
        span[1] = -now_seconds();
        for (int i = 0; i < calls; ++i) task();
        span[0] = now_seconds();
        double widest[2];
        MPI_Allreduce(span, widest, 2, MPI_DOUBLE, MPI_MAX, comm_);
        return (widest[0] + widest[1]) / calls;
    }
    template <class Task>
    [[nodiscard]] double operator()(Task&& task) {
        return (*this)(1, task);
    }

private:
    MPI_Comm comm_;
};

/// Whether `mine` holds on every rank.
[[nodiscard]] inline bool on_all_ranks(bool mine, MPI_Comm comm) {
    int const own = mine ? 1 : 0;
    int all = 0;
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, comm);
    return all == 1;
}

}  // namespace reshard::bench
