// SPDX-License-Identifier: Apache-2.0
// A model is loaded, moved as a batch, and saved.
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    run_on_threads(4, [&](ThreadCommunicator& comm) {
        auto const rows = distribution(Mesh{4}, Shape{64, 64}, "S0");
        auto const columns = distribution(Mesh{4}, Shape{64, 64}, "S1");
        Tensor<float> loaded(rows.local_shape(comm.rank()));
        Tensor<float> turned(columns.local_shape(comm.rank()));
        LocalTensor const from{"weight", rows, loaded.view()};
        LocalTensor const to{"weight", columns, turned.view()};
        load(argv[1], std::span(&from, 1), comm, CooperativeRead{});
        Batch batch;
        batch.add(plan(rows, columns), loaded.view(), turned.view());
        redistribute(batch, comm);
        save(argv[2], std::span(&to, 1), comm);
    });
}
