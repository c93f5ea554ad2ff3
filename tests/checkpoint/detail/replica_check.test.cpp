// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_check.hpp; what it finds: verify_replicas.test.cpp.
#include <reshard/checkpoint/detail/replica_check.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include <vector>

namespace {
using namespace reshard;
using Ranks = std::vector<int>;

TEST_CASE("contents are numbered in order of appearance, by both halves of the hash") {
    std::vector<detail::Hash128> const hashes{{1, 1}, {1, 2}, {1, 1}, {2, 1}, {2, 1}, {1, 2}};
    CHECK(detail::number_contents(hashes) == Ranks{0, 1, 0, 2, 2, 1});
    CHECK(detail::number_contents({}).empty());
}

TEST_CASE("who is odd, and which two ranks are compared") {
    auto const judged = [](Ranks ranks, Ranks contents) {
        ReplicaDifference d;
        d.ranks = std::move(ranks);
        d.contents = std::move(contents);
        detail::judge(d);
        return d;
    };
    ReplicaDifference const last = judged({3, 5, 9}, {0, 0, 1});
    CHECK(last.odd == Ranks{9});
    CHECK(last.spot.reference == 3);
    CHECK(last.spot.rank == 9);
    ReplicaDifference const first = judged({3, 5, 9}, {0, 1, 1});
    CHECK(first.odd == Ranks{3});
    CHECK(first.spot.reference == 5);
    CHECK(first.spot.rank == 3);
    ReplicaDifference const tie = judged({1, 2, 4, 6, 7}, {0, 1, 2, 2, 1});
    CHECK(tie.odd.empty());
    CHECK(tie.spot.reference == 1);
    CHECK(tie.spot.rank == 2);
}

TEST_CASE("hashes of all ranks become differences, in the order of tensors, then of groups") {
    std::vector<LocalTensor> tensors(4);
    tensors[0].distribution = distribution(Mesh{6}, Shape{9}, "S0");  // nothing to compare
    tensors[1].distribution = distribution(Mesh{3, 2}, Shape{9}, "R,S0");
    tensors[1].name = "b";
    tensors[2].distribution = distribution(Mesh{6}, Shape{9}, "R");
    tensors[3].distribution = distribution(Mesh{3}.on({0, {4, 1, 3}}), Shape{9}, "R");
    std::vector<detail::Hash128> hashes(6 * tensors.size());
    auto const hash = [&](std::size_t rank, std::size_t tensor) -> auto& {
        return hashes[rank * tensors.size() + tensor];
    };
    for (std::size_t rank = 0; rank < 6; ++rank) hash(rank, 0).low = rank;
    std::vector<std::size_t> const all{0, 1, 2, 3};
    CHECK(detail::differences_of(hashes, tensors, all).empty());
    hash(3, 1).low = 1;
    hash(0, 1).low = 2;
    hash(2, 1).low = 3;
    hash(4, 3).high = 1;
    auto const differences = detail::differences_of(hashes, tensors, all);
    REQUIRE(differences.size() == 3);
    CHECK(differences[0].tensor == 1);
    CHECK(differences[0].name == "b");
    CHECK(differences[0].ranks == Ranks{0, 2, 4});
    CHECK(differences[0].contents == Ranks{0, 1, 2});
    CHECK(differences[1].ranks == Ranks{1, 3, 5});
    CHECK(differences[1].odd == Ranks{3});
    CHECK(differences[2].tensor == 3);
    CHECK(differences[2].ranks == Ranks{1, 3, 4});
    CHECK(differences[2].odd == Ranks{4});
    CHECK(detail::differences_of({}, {}, {}).empty());
    std::vector<detail::Hash128> last;  // of the last alone
    for (std::size_t rank = 0; rank < 6; ++rank) last.push_back(hash(rank, 3));
    std::vector<std::size_t> const place{3};
    auto const of_last = detail::differences_of(last, tensors, place);
    REQUIRE(of_last.size() == 1);
    CHECK(of_last[0].tensor == 3);
    CHECK(of_last[0].odd == Ranks{4});
}

TEST_CASE("what is so on one rank is known to all, and harms nobody") {
    run_on_threads(3, [](ThreadCommunicator& comm) {
        CHECK_FALSE(detail::is_anywhere(comm, false));
        for (int r = 0; r < 3; ++r) CHECK(detail::is_anywhere(comm, comm.rank() == r));
        CHECK(detail::is_anywhere(comm, true));
        CHECK_FALSE(detail::is_anywhere(comm, false));
    });
}

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
        detail::ReplicaCheck(comm, tensors, false, 8).locate(differences);
        CHECK_FALSE(differences[0].spot.found);
        CHECK(differences[1].spot.found);
        CHECK(differences[1].spot.index == Indices{0});
    });
}

}  // namespace
