// SPDX-License-Identifier: Apache-2.0
// The first program, over MPI.
#include <reshard/comm/mpi.hpp>
#include <reshard/reshard.hpp>

#include <cstdio>

using namespace reshard;

int main() {
    return run_on_mpi([&](MpiCommunicator& comm) {
        Mesh const mesh{comm.size()};
        auto const rows = distribution<Shard<0>>(mesh, Shape{64, 64});
        auto const columns = distribution<Shard<1>>(mesh, Shape{64, 64});
        Tensor<float> mine(rows.local_shape(comm.rank()));
        for (Index i = 0; i < mine.size(); ++i) mine.data()[i] = static_cast<float>(i);
        auto const turned = redistribute(plan(rows, columns), comm, mine.view());
        std::printf("%lld\n", static_cast<long long>(turned.size()));
    });
}
