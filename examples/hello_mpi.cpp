// SPDX-License-Identifier: Apache-2.0
// Rows become columns, on as many processes as mpirun starts: the program of docs/mpi.md.
//
//     mpirun -n 4 reshard_hello_mpi
#ifdef RESHARD_EXAMPLES_MPI
#include <reshard/comm/mpi.hpp>
#include <reshard/reshard.hpp>

#include <cstdio>

using namespace reshard;

int main() {
    return run_on_mpi([](MpiCommunicator& comm) {  // initialises MPI, and finalises it
        Mesh const mesh{comm.size()};
        Shape const shape{4096, 1024};
        auto const rows = distribution<Shard<0>>(mesh, shape);
        auto const columns = distribution<Shard<1>>(mesh, shape);
        DynamicShape const before = rows.local_shape(comm.rank());
        auto memory = comm.allocate<float>(before.size());  // collective; the ranks of a node read it in place
        for (float& value : memory.span()) value = static_cast<float>(comm.rank());

        Tensor<float> const turned = redistribute(plan(rows, columns), comm, memory.view(before));

        std::printf("rank %d of %d: %s of rows, %s of columns, the last row from rank %g\n", comm.rank(), comm.size(),
                    to_string(before).c_str(), to_string(turned.shape()).c_str(),
                    static_cast<double>(turned.data()[turned.size() - 1]));
    });
}
#else
#include <cstdio>

int main() {
    std::fputs("reshard_hello_mpi: built without MPI. Fix: install one (libopenmpi-dev) and configure again.\n",
               stderr);
    return 1;
}
#endif
