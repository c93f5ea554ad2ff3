// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/local_tensor.hpp.
#include <reshard/exec/local_tensor.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/notation.hpp>
#include <reshard/core/tensor_view.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;

std::string refusal(LocalTensor const& tensor, int rank) {
    try {
        detail::check_local_tensor(tensor, rank, "load");
        detail::check_written(tensor, rank, "load");
    } catch (BufferError const& error) {
        return error.message();
    }
    return {};
}

TEST_CASE("a local tensor fits its distribution, or the message names tensor, rank and remedy") {
    std::vector<float> memory(12);
    auto const rows = distribution(Mesh{2}, Shape{5, 4}, "S0");  // 3 rows and 2 rows
    LocalTensor tensor{"model.norm.weight", rows, TensorView<float>(memory.data(), Shape{3, 4})};
    CHECK(refusal(tensor, 0).empty());
    CHECK(refusal(tensor, 1) ==
          "reshard::load: tensor 'model.norm.weight' on rank 1: the view has shape [3,4], but (2):(S0) of [5,4] has "
          "[2,4] there. Fix: allocate local_shape(rank).");
    CHECK(refusal(tensor, 7).empty());  // outside the mesh only the element type counts

    tensor.view = TensorView<float>(nullptr, Shape{3, 4});
    CHECK(refusal(tensor, 0).find("the view is null") != std::string::npos);
    tensor.view = TensorView<float>(memory.data(), Shape{3, 4}, {1, 1});
    CHECK(refusal(tensor, 0).find("strides [1,1] that overlap. Fix: ") != std::string::npos);
    CHECK(refusal(tensor, 7).empty());
    CHECK_NOTHROW(detail::check_local_tensor(tensor, 0, "save"));  // which only reads
    tensor.view = DynamicView(tensor.view.data(), tensor.view.dtype(), tensor.view.shape(), Indices{INT64_MAX / 2, 1});
    CHECK(refusal(tensor, 0).find("reach beyond 64 bits") != std::string::npos);
    LocalTensor const none{"none", distribution(Mesh{2}, Shape{0, 4}, "S0"),
                           DynamicView(memory.data(), DType::f32, Shape{0, 4}, Indices{INT64_MAX / 2, 1})};
    CHECK(refusal(none, 0).find("reach beyond 64 bits") != std::string::npos);  // they are counted all the same
}

TEST_CASE("coordinate 0 of Partial axes has the values, others the identity; of min and max all have the values") {
    auto const part = [](char const* text, Indices const& coordinates) {
        return detail::partial_part(parse(text, Shape{4}), coordinates);
    };
    CHECK(part("(2,3):(R,S0)", {1, 2}).has_values);
    CHECK(part("(2,3):(P*,S0)", {0, 2}).has_values);
    CHECK_FALSE(part("(2,3):(P*,S0)", {1, 0}).has_values);
    CHECK(part("(2,3):(P*,S0)", {1, 0}).op == Reduce::product);
    CHECK(part("(2,3):(P+,P+)", {0, 0}).has_values);
    CHECK_FALSE(part("(2,3):(P+,P+)", {0, 1}).has_values);
    CHECK_FALSE(part("(2,3):(P+,P+)", {1, 0}).has_values);
    CHECK(part("(2,3):(P+,P+)", {1, 0}).op == Reduce::sum);
    for (char const* text : {"(2):(Pavg)", "(2):(P<)", "(2):(P>)", "(2):(P&)", "(2):(P|)"}) {
        CAPTURE(text);
        CHECK(part(text, {1}).has_values);
    }
    CHECK_FALSE(part("(2):(P^)", {1}).has_values);
}

}  // namespace
