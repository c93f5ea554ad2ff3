// SPDX-License-Identifier: Apache-2.0
//
// Built with -fno-exceptions -fno-rtti: the umbrella, and what else src/exec.cpp has.
#include <reshard/comm/streams.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/exec/collectives.hpp>
#include <reshard/exec/progress_thread.hpp>
#include <reshard/exec/sync.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

int main() {
    Mesh mesh{2, 4};
    auto rows = distribution<Replicate, Shard<0>>(mesh, Shape{8, 4});
    return rows.box(1).begin(0) == 2 ? 0 : 1;
}
