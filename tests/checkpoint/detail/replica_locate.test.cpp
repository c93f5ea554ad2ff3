// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_repair.hpp; where differences are: verify_replicas.test.cpp.
#include <reshard/checkpoint/detail/replica_repair.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include <vector>

namespace {
using namespace reshard;

TEST_CASE("blocks are whole elements, one at least") {
    CHECK(detail::block_elements(DType::f32, 1 << 20) == 1 << 18);
    CHECK(detail::block_elements(DType::f64, 15) == 1);
    CHECK(detail::block_elements(DType::f64, 1) == 1);
    CHECK(detail::block_elements(DType::u8, 3) == 3);
}

TEST_CASE("blocks are compared element by element, by their bits or by their values") {
    std::vector<float> const a{1.0F, 0.0F, 3.0F, __builtin_nanf("1")};
    std::vector<float> const b{1.0F, -0.0F, 4.0F, __builtin_nanf("2")};
    auto const compare = [&](bool canonical) {
        return detail::first_difference(DType::f32, std::as_bytes(std::span(a)), std::as_bytes(std::span(b)),
                                        canonical);
    };
    CHECK(compare(false) == 1);
    CHECK(compare(true) == 2);
    CHECK(detail::first_difference(DType::f32, {}, {}, false) == -1);
}

TEST_CASE("memory that no longer differs is said so; other differences are found all the same") {
    run_on_threads(3, [](ThreadCommunicator& comm) {
        std::vector<float> same(5, 1.0F);
        std::vector<float> other(5, comm.rank() == 2 ? 2.0F : 1.0F);
        auto const all = distribution(Mesh{3}, Shape{5}, "R");
        std::vector<LocalTensor> const tensors{{"same", all, TensorView<float>(same.data(), Shape{5})},
                                               {"other", all, TensorView<float>(other.data(), Shape{5})}};
        std::vector<ReplicaDifference> differences(2);
        for (std::size_t t : {0U, 1U}) {
            differences[t].tensor = t;
            differences[t].dtype = DType::f32;
            differences[t].spot.rank = 2;
            differences[t].spot.reference = 0;
        }
        detail::ReplicaHasher hasher(false);
        detail::locate(comm, tensors, differences, hasher, 8);
        CHECK_FALSE(differences[0].spot.found);
        CHECK(differences[1].spot.found);
        CHECK(differences[1].spot.index == Indices{0});
    });
}

}  // namespace
