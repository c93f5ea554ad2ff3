// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Shard: this is no split rule. Fix: use Chunk, Balanced, Boundaries or BlockCyclic, or give
// your own `constexpr SplitRule rule(Index extent, Index parts) const`.
#include <reshard/algebra/distribution.hpp>

using namespace reshard;

struct Mine {
#ifndef RESHARD_FAIL
    constexpr SplitRule rule(Index, Index) const { return {}; }
#else
    constexpr SplitRule cut(Index, Index) const { return {}; }
#endif
};

auto d = distribution<Shard<0, Mine>>(Mesh{2}, Shape{4});
