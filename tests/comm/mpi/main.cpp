// SPDX-License-Identifier: Apache-2.0
//
// doctest under a launcher of MPI. All ranks run all cases; each fails by itself, the first one talks. An assertion
// that fails on one rank must not end its case: the others would wait for it, so these tests CHECK and do not REQUIRE.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <reshard/comm/detail/mpi_call.hpp>

#include <cstdio>
#include <sstream>

int main(int argc, char** argv) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::ostringstream quiet;
    doctest::Context context(argc, argv);
    context.setOption("no-colors", true);
    if (rank != 0) context.setCout(&quiet);
    int const result = context.run();
    if (rank != 0 && result != 0) std::fprintf(stderr, "---- rank %d ----\n%s", rank, quiet.str().c_str());
    int worst = result;
    MPI_Allreduce(&result, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return worst;
}
