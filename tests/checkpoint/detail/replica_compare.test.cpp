// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_compare.hpp; what compare() finds: verify_replicas.test.cpp.
#include <reshard/checkpoint/detail/replica_compare.hpp>

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

TEST_CASE("what leaders send is put in the order of tensors, then of ranks") {
    std::vector<LocalTensor> tensors(3);
    tensors[1].name = "b";
    std::vector<Index> const words{2, 2, 0, 1, 0, 1, 1, 2, 4, 5, 0, 1, 1, 3, 1, 2, 3, 0, 1, 0};
    auto const differences = detail::parse_differences(words, tensors);
    REQUIRE(differences.size() == 3);
    CHECK(differences[0].tensor == 1);
    CHECK(differences[0].name == "b");
    CHECK(differences[0].ranks == Ranks{1, 2, 3});
    CHECK(differences[0].odd == Ranks{2});
    CHECK(differences[1].ranks == Ranks{4, 5});
    CHECK(differences[2].tensor == 2);
}

TEST_CASE("what is so on one rank is known to all, and harms nobody") {
    run_on_threads(3, [](ThreadCommunicator& comm) {
        CHECK_FALSE(detail::is_anywhere(comm, false));
        for (int r = 0; r < 3; ++r) CHECK(detail::is_anywhere(comm, comm.rank() == r));
        CHECK(detail::is_anywhere(comm, true));
        CHECK_FALSE(detail::is_anywhere(comm, false));
    });
}

}  // namespace
