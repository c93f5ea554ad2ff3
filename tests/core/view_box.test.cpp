// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/core/view_box.hpp.
#include <reshard/core/view_box.hpp>

#include <doctest/doctest.h>

namespace {
using namespace reshard;

TEST_CASE("the box of a view has its extents, and its strides in bytes, in the same order") {
    float memory[24] = {};
    transport::StridedBox const rows = detail::strided_box(TensorView<float>(memory, Shape{4, 6}));
    CHECK(rows.element_bytes == 4);
    REQUIRE(rows.dims.size() == 2);
    CHECK(rows.dims[0] == transport::StridedDim{4, 24});
    CHECK(rows.dims[1] == transport::StridedDim{6, 4});

    // Columns of a transposed window, from right to left.
    transport::StridedBox const turned = detail::strided_box(TensorView<float const>(memory + 5, Shape{5, 3}, {-1, 6}));
    REQUIRE(turned.dims.size() == 2);
    CHECK(turned.dims[0] == transport::StridedDim{5, -4});
    CHECK(turned.dims[1] == transport::StridedDim{3, 24});
    CHECK(turned.payload_bytes() == 60);
}

TEST_CASE("the box of a scalar is one element, that of an empty view none") {
    double value = 0;
    transport::StridedBox const scalar = detail::strided_box(TensorView<double>(&value, DynamicShape{}));
    CHECK(scalar.dims.empty());
    CHECK(scalar.payload_bytes() == 8);
    CHECK(detail::strided_box(DynamicView(nullptr, DType::bf16, Shape{0, 7})).payload_bytes() == 0);
}

}  // namespace
