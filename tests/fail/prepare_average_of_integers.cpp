// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: a Partial op is not defined for this element type: .* averages need floats
#include <reshard/comm/self.hpp>
#include <reshard/exec/prepare.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
using T = float;
#else
using T = int;
#endif
constexpr auto owed = distribution<Partial<Reduce::avg>>(Mesh<1>{}, Shape<8>{});
constexpr auto whole = distribution<Replicate>(Mesh<1>{}, Shape<8>{});

void sample(SelfCommunicator& comm, TensorView<T const> source, TensorView<T> destination) {
    prepare(plan(owed, whole), comm, source, destination).run();
}
