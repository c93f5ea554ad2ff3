// SPDX-License-Identifier: Apache-2.0
// expect-error: deleted (member )?function
#include <reshard/comm/self.hpp>
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

constexpr auto rows = distribution<Shard<0>>(Mesh<1>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<1>{}, Shape<8>{});

void sample(SelfCommunicator& comm, TensorView<float const> source, TensorView<float> destination) {
    auto job = prepare(plan_across(rows, whole), comm, source, destination);
#ifndef RESHARD_FAIL
    auto request = job.start();
#else
    auto request = prepare(plan_across(rows, whole), comm, source, destination).start();  // of a job that is gone
#endif
    request.wait();
}
