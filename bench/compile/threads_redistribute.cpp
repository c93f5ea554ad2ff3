// SPDX-License-Identifier: Apache-2.0
// The first program: ranks that are threads turn rows into columns.
#include <reshard/comm/threads.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

void rows_to_columns(TensorView<float> const& rows, TensorView<float> const& columns) {
    Mesh const mesh{4};
    Shape const shape{rows.extent(0) * 4, rows.extent(1)};
    auto const move = plan(distribution<Shard<0>>(mesh, shape), distribution<Shard<1>>(mesh, shape));
    run_on_threads(4, [&](ThreadCommunicator& comm) { redistribute(move, comm, rows, columns); });
}
