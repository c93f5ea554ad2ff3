// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/local_tensor.hpp.
#include <reshard/exec/local_tensor.hpp>

#include <doctest/doctest.h>

#include <reshard/core/tensor_view.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;

std::string refusal(LocalTensor const& tensor, int rank) {
    try {
        detail::check_local_tensor(tensor, rank, "load");
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
    CHECK(refusal(tensor, 0).find("overlap") != std::string::npos);
}

}  // namespace
