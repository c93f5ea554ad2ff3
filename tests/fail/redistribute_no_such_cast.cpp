// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: there is no cast between these element types. Fix: cast numbers and booleans only.
#include <reshard/exec/redistribute.hpp>

using namespace reshard;

struct Complex {
    float real;
    float imaginary;
};
template <>
struct reshard::DTypeOf<Complex> {
    static constexpr DType value = DType::c64;
};

#ifndef RESHARD_FAIL
using Source = double;
#else
using Source = Complex;
#endif
constexpr auto rows = distribution<Shard<0>>(Mesh<4>{}, Shape<8>{});

void sample(TensorView<Source const> source, TensorView<float> destination) {
    redistribute(plan(rows, rows), source, destination, 1, Casting{});
}
