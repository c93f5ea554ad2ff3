// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/mpi_collectives.hpp
/// \brief  A collective of MPI beside the transition of the same meaning, prepared, sums of up to 8 KiB as one-shot
/// folds: float32, four sizes, ordinary memory.
#pragma once

#include "mpi_clock.hpp"

#include <reshard/reshard.hpp>

#include <cmath>
#include <cstdio>

namespace reshard::bench {

struct CollectiveCase {
    char const* name;
    char const* from;
    char const* to;
    /// `elements`: of the whole tensor.
    void (*call)(float const* source, float* destination, int elements, int ranks, MPI_Comm comm);
};

inline constexpr CollectiveCase allreduce{
    "MPI_Allreduce", "P+", "R",
    [](float const* a, float* b, int n, int, MPI_Comm comm) { MPI_Allreduce(a, b, n, MPI_FLOAT, MPI_SUM, comm); }};
inline constexpr CollectiveCase reduce_scatter{"MPI_Reduce_scatter_block", "P+", "S0",
                                               [](float const* a, float* b, int n, int ranks, MPI_Comm comm) {
                                                   MPI_Reduce_scatter_block(a, b, n / ranks, MPI_FLOAT, MPI_SUM, comm);
                                               }};
inline constexpr CollectiveCase allgather{"MPI_Allgather", "S0", "R",
                                          [](float const* a, float* b, int n, int ranks, MPI_Comm comm) {
                                              MPI_Allgather(a, n / ranks, MPI_FLOAT, b, n / ranks, MPI_FLOAT, comm);
                                          }};

struct CollectiveSize {
    int bytes;
    int calls;
};

/// How many times longer MPI's takes, over `world`, whose communicator is `comm`. Zero where a result is wrong.
[[nodiscard]] inline double beside_mpi(MpiCommunicator& comm, MPI_Comm world, CollectiveCase const& one,
                                       CollectiveSize const& size) {
    MpiClock clock(world);
    int const elements = size.bytes / 4;
    Mesh const mesh{comm.size()};
    auto const from = distribution(mesh, Shape{elements}, one.from);
    auto const to = distribution(mesh, Shape{elements}, one.to);
    Tensor<float> source(from.local_shape(comm.rank()));
    Tensor<float> ours(to.local_shape(comm.rank()));
    Tensor<float> theirs(to.local_shape(comm.rank()));
    for (Index i = 0; i < source.size(); ++i) {
        source.data()[i] = static_cast<float>((i + comm.rank()) % 1000);  // sums are exact in any order
    }
    Plan<> const move = plan(from, to);
    bool const small = size.bytes <= 8 << 10;
    auto job =
        prepare(small ? move.one_shot_fold() : move, comm, ConstDynamicView(source.view()), DynamicView(ours.view()));
    auto const reference = [&] { one.call(source.data(), theirs.data(), elements, comm.size(), world); };
    auto const run = [&] { job.run(); };
    reference();
    run();
    bool right = true;
    for (Index i = 0; i < ours.size(); ++i) right = right && ours.data()[i] == theirs.data()[i];
    right = on_all_ranks(right, world);
    Paired const pair = paired([&] { return clock(size.calls, reference); }, [&] { return clock(size.calls, run); });
    double const ratio = right ? pair.ratio : 0;
    if (comm.rank() == 0) {
        std::printf("  %-25s %6d KiB: %10.1f us, reshard %10.1f us, ratio %.2f%s\n", one.name, size.bytes >> 10,
                    1e6 * pair.first, 1e6 * pair.second, ratio, right ? "" : "  WRONG RESULT");
        std::fflush(stdout);
    }
    return ratio;
}

/// Over the sizes, and where that is least.
struct BesideMpi {
    double mean = 1;
    double worst = 1e9;
};

[[nodiscard]] inline BesideMpi beside_mpi(MpiCommunicator& comm, MPI_Comm world, CollectiveCase const& one) {
    constexpr CollectiveSize sizes[] = {{1 << 10, 2000}, {64 << 10, 300}, {1 << 20, 40}, {64 << 20, 1}};
    BesideMpi result;
    for (CollectiveSize const& size : sizes) {
        double const ratio = beside_mpi(comm, world, one, size);
        result.mean *= std::pow(ratio, 0.25);
        result.worst = detail::smaller(result.worst, ratio);
    }
    return result;
}

}  // namespace reshard::bench
