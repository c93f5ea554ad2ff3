// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/local_tensor.hpp.
#include <reshard/exec/local_tensor.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

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

/// What each of three ranks throws when they agree on a list that `change` has altered.
template <class Change>
std::vector<std::string> said(Change const& change) {
    std::vector<std::string> result(3);
    run_on_threads(3, [&](ThreadCommunicator& comm) {
        std::vector<float> memory(12);
        std::vector<LocalTensor> tensors;
        for (char const* name : {"a", "b"}) {
            tensors.push_back(
                {name, distribution(Mesh{3}, Shape{6}, "S0"), TensorView<float>(memory.data(), Shape{2})});
        }
        tensors[1].view = TensorView<float>(memory.data() + 6, Shape{2});
        std::uint64_t options = 7;
        change(tensors, options, comm.rank());
        try {
            detail::agree_on_tensors(
                comm, detail::verdict_of([&] { detail::check_local_tensors(tensors, comm.rank(), "load"); }), tensors,
                options, "load");
        } catch (Error const& error) {
            result[static_cast<std::size_t>(comm.rank())] = error.message();
        }
    });
    CHECK(result[0] == result[1]);
    CHECK(result[0] == result[2]);
    return result;
}

TEST_CASE("ranks agree on a list of tensors, or all hear what differs") {
    using Tensors = std::vector<LocalTensor>;
    CHECK(said([](Tensors&, std::uint64_t&, int) {})[0].empty());
    CHECK(said([](Tensors& tensors, std::uint64_t&, int rank) {
              if (rank == 2) tensors[1].name = "c";
          })[0] ==
          "rank 2 of 3: lists tensor 1 'c' as F32 [6] under (3):(S0), but rank 0 lists tensor 1 'b' as F32 [6] under "
          "(3):(S0). Fix: give every rank the same arguments.");
    CHECK(said([](Tensors& tensors, std::uint64_t&, int rank) {
              if (rank == 1) tensors.pop_back();
          })[0]
              .find("rank 1 of 3: lists 1 tensors, without a tensor 1, but rank 0 lists tensor 1 'b'") == 0);
    CHECK(said([](Tensors&, std::uint64_t& options, int rank) {
              if (rank == 1) options = 8;
          })[0]
              .find("rank 1 of 3: called reshard::load with other options") == 0);
    CHECK(said([](Tensors& tensors, std::uint64_t&, int rank) {
              if (rank == 1) tensors[1].view = tensors[0].view;
          })[0] ==
          "rank 1 of 3: reshard::load: on rank 1 the tensors 'a' and 'b' overlap. Fix: give each its own memory.");
}

}  // namespace
