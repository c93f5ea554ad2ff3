// SPDX-License-Identifier: Apache-2.0
// expect-error: a Partial op is not defined for this element type: bit operations need integers, averages need floats
// expect-error: complex numbers have sums and averages only
#include <reshard/core/complex.hpp>
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
using Owed = Partial<>;
#else
using Owed = Partial<Reduce::max>;
#endif

void sample(CommunicatorRef comm, TensorView<std::complex<float> const> source,
            TensorView<std::complex<float>> destination) {
    auto const addends = distribution<Owed>(Mesh<4>{}, Shape<8>{});
    redistribute(plan(addends, distribution<Shard<0>>(Mesh<4>{}, Shape<8>{})), comm, source, destination);
}
