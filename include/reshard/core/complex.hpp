// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/complex.hpp
/// \brief  std::complex<float> as an element type. Opt-in: <complex> is expensive.
/// \depends dtype; <complex>.
///
/// Complex numbers move, and are summed and averaged, as the two floats that they are. For std::complex<double>, of
/// which safetensors knows nothing, view them as doubles with a last dimension of 2: sums and averages are the same.
#pragma once

#include <reshard/core/dtype.hpp>

#include <complex>  // complex

namespace reshard::inline v0_1 {

template <>
struct DTypeOf<std::complex<float>> {
    static constexpr DType value = DType::c64;
};

}  // namespace reshard::inline v0_1
