// SPDX-License-Identifier: Apache-2.0
// A second translation unit with the same headers: both must link into one program.
#include <reshard/reshard.hpp>

int second_unit();

int second_unit() {
    reshard::Mesh mesh{2, 4};
    auto rows = reshard::distribution<reshard::Replicate, reshard::Shard<0>>(mesh, reshard::Shape{8, 4});
    return rows.box(0).begin(0) == 0 ? 0 : 1;
}
