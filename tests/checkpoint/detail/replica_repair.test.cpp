// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_repair.hpp; whole repairs: verify_replicas.test.cpp.
#include <reshard/checkpoint/detail/replica_repair.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/replica_check.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;
using Ranks = std::vector<int>;

/// Two differences of one tensor under (3,2):(R,S0): in the group 0,2,4 as given, in 1,3,5 a majority.
std::vector<ReplicaDifference> differences(Ranks const& contents) {
    std::vector<ReplicaDifference> list(2);
    list[0].ranks = {0, 2, 4};
    list[0].contents = contents;
    list[1].ranks = {1, 3, 5};
    list[1].contents = {0, 1, 1};
    for (ReplicaDifference& d : list) {
        d.name = "w";
        detail::judge(d);
    }
    return list;
}

TEST_CASE("the most common contents are the source, whatever rank is named") {
    std::vector<LocalTensor> const tensors{{"w", distribution(Mesh{3, 2}, Shape{8}, "R,S0"), {}}};
    for (int named : {-1, 0, 5}) {
        auto list = differences({0, 1, 0});
        CHECK(detail::choose_sources(list, tensors, named).empty());
        CHECK(list[0].source == 0);
        CHECK(list[0].repaired == Ranks{2});
        CHECK(list[1].source == 3);
        CHECK(list[1].repaired == Ranks{1});
    }
}

TEST_CASE("in a tie the named rank's replica is, and without one the answer says what to name") {
    std::vector<LocalTensor> const tensors{{"w", distribution(Mesh{3, 2}, Shape{8}, "R,S0"), {}}};
    for (int named : {2, 3}) {
        auto list = differences({0, 1, 2});
        CHECK(detail::choose_sources(list, tensors, named).empty());
        CHECK(list[0].source == 2);
        CHECK(list[0].repaired == Ranks{0, 4});
        CHECK(list[1].source == 3);
    }
    auto list = differences({0, 1, 2});
    CHECK(detail::choose_sources(list, tensors, -1).find("Fix: name the rank that is right") != std::string::npos);
    list = differences({0, 1, 2});
    CHECK(
        detail::choose_sources(list, tensors, 6).find("from rank 6, which holds nothing of it. Fix: name a rank of") !=
        std::string::npos);
}

}  // namespace
