// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::permute: the numbers are no permutation of the dimensions. Fix: name every dimension
#include <reshard/algebra/permute.hpp>

using namespace reshard;

#ifndef RESHARD_FAIL
constexpr auto turned = permute<1, 0>(distribution<Shard<0>>(Mesh<4>{}, Shape<8, 2>{}));
#else
constexpr auto turned = permute<1, 1>(distribution<Shard<0>>(Mesh<4>{}, Shape<8, 2>{}));
#endif
