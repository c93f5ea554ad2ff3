// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/agree_tensors.hpp.
#include <reshard/exec/agree_tensors.hpp>

#include <doctest/doctest.h>

#include "support/fake_cuda.hpp"
#include "support/thrown.hpp"

#include <array>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using test::Thrown;

constexpr int ranks = 3;

/// What all ranks are told when rank 1 does something of its own to its list.
template <class Change>
Thrown answer_when_rank_1(Change const& change, int of_ranks = ranks) {
    auto const answers = test::thrown_by(of_ranks, [&](ThreadCommunicator& comm) {
        std::vector<float> memory(12);
        std::vector<LocalTensor> tensors{
            {"a", distribution(Mesh{ranks}, Shape{12}, "R"), TensorView<float>(memory.data(), Shape{12})},
            {"b", distribution(Mesh{2}, Shape{4}, "S0"), TensorView<float>(memory.data(), Shape{2})}};
        TensorTask task{"load", "loads", "with option 7"};
        auto check = [] {};
        if (comm.rank() == 1) change(tensors, task);
        agree_on_tensors(
            comm, tensors, [&] { return task; }, check);
    });
    for (Thrown const& answer : answers) CHECK(answer == answers[0]);
    return answers[0];
}

TEST_CASE("ranks that list the same tensors agree, inside and outside a tensor's mesh") {
    CHECK(answer_when_rank_1([](auto&, auto&) {}).code == ErrorCode::none);
    CHECK(answer_when_rank_1([](auto& tensors, auto&) {
              tensors[1].view = TensorView<float>(nullptr, Shape{2});
          }).message ==
          "rank 1 of 3: reshard::load: tensor 'b' on rank 1: the view is null. Fix: pass memory for [2] elements.");
}

TEST_CASE("the first tensor that a rank lists differently is named on every rank") {
    CHECK(answer_when_rank_1([](auto& tensors, auto&) { tensors[1].name = "c"; }) ==
          Thrown{ErrorCode::mismatch,
                 "rank 1 of 3: loads tensor 1 'c' as (2):(S0) of [4] F32, but rank 0 loads tensor 1 'b' as (2):(S0) of "
                 "[4] F32. Fix: give every rank the same arguments."});
    CHECK(answer_when_rank_1([](auto& tensors, auto&) { tensors.pop_back(); }).message ==
          "rank 1 of 3: loads 1 tensors, without a tensor 1, but rank 0 loads tensor 1 'b' as (2):(S0) of [4] F32. "
          "Fix: give every rank the same arguments.");
    CHECK(answer_when_rank_1([](auto& tensors, auto&) {
              std::swap(tensors[0], tensors[1]);
          }).message.find("tensor 0 'b'") != std::string::npos);
    CHECK(answer_when_rank_1([](auto&, auto& task) { task.options = "with option 8"; }).message ==
          "rank 1 of 3: loads with option 8, but rank 0 loads with option 7. Fix: give every rank the same arguments.");
}

TEST_CASE("an element type counts also where there is no view of it") {
    std::vector<std::int32_t> memory(12);
    Thrown const answer = answer_when_rank_1(
        [&](auto& tensors, auto&) { tensors[0].view = TensorView<std::int32_t>(memory.data(), Shape{12}); });
    CHECK(answer.code == ErrorCode::mismatch);
    CHECK(answer.message.find("tensor 0 'a' as (3):(R) of [12] I32") != std::string::npos);
}

TEST_CASE("a mesh beyond the communicator and elements smaller than a byte are refused by name") {
    Thrown const mesh = answer_when_rank_1([](auto&, auto&) {}, 2);
    CHECK(mesh.code == ErrorCode::mesh);
    CHECK(mesh.message ==
          "rank 0 of 2: reshard::load: tensor 'a': the mesh (3) has rank 2, the communicator only 2 ranks. "
          "Fix: use a mesh of ranks that exist.");
    Thrown const dtype = answer_when_rank_1(
        [](auto& tensors, auto&) { tensors[0].view = DynamicView(tensors[0].view.data(), DType::f4, Shape{12}); });
    CHECK(dtype.code == ErrorCode::dtype);
    CHECK(dtype.message ==
          "rank 1 of 3: reshard::load: tensor 'a': elements of F4 are smaller than a byte and have no "
          "address. Fix: view the storage as U8.");
}

TEST_CASE("memory of a device is refused by name: where the host works on it, and where the transport is the host's") {
    test::FakeCuda const cuda;
    if (!cuda.works()) return;  // a real driver is loaded: it knows what is a device's
    std::array<float, 12> far{};
    for (bool by_host : {true, false}) {
        Thrown const answer = answer_when_rank_1([&](auto& tensors, TensorTask& task) {
            cuda.claim(far.data(), sizeof far);
            tensors[0].view = TensorView<float>(far.data(), Shape{12});
            task.by_host = by_host;
        });
        CAPTURE(answer);
        CHECK(answer.code == ErrorCode::buffer);
        CHECK(answer.message.find(by_host ? "rank 1 of 3: reshard::load: tensor 'a' on rank 1: the view lies in memory "
                                            "of a CUDA device, where the host cannot work. Fix: pass memory of the host"
                                          : "rank 1 of 3: reshard: the transport 'threads' moves memory of the host") !=
              std::string::npos);
    }
}

TEST_CASE("what one rank finds wrong beside the tensors reaches all") {
    auto const task = [] { return TensorTask{"load", "loads"}; };
    run_on_threads(2, [&](ThreadCommunicator& comm) {
        try {
            agree_on_tensors(comm, {}, task, [&] {
                if (comm.rank() == 1) errors::raise(ErrorCode::io, "no such file");
            });
            CHECK(false);
        } catch (IoError const& error) {
            CHECK(error.message() == "rank 1 of 2: no such file");
        }
        agree_on_tensors(comm, {}, task, [] {});  // nothing was touched, nobody is lost
    });
}

}  // namespace
