// SPDX-License-Identifier: Apache-2.0
// A plan and a view on a mesh of two axes, with placements as types: the algebra and nothing else.
#include <reshard/plan/plan.hpp>

using namespace reshard;

TensorView<float> tile(TensorView<float> const& full, Index rank) {
    Mesh const mesh{2, 4};
    Shape const shape{8192, 1024};
    auto const whole = distribution<Replicate, Replicate>(mesh, shape);
    auto const rows = distribution<Replicate, Shard<0>>(mesh, shape);
    auto const tiles = distribution<Shard<1>, Shard<0>>(mesh, shape);
    static_assert(is_view<decltype(whole), decltype(tiles)> && is_view<decltype(rows), decltype(tiles)>);
    return plan(whole, tiles).view(full, rank);
}
