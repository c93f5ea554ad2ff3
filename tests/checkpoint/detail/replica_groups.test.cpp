// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/replica_check.hpp, and plan/replicas.hpp: which ranks are compared.
#include <reshard/checkpoint/detail/replica_check.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <vector>

namespace {
using namespace reshard;
using Ranks = std::vector<int>;

TEST_CASE("replicas are the ranks that differ along Replicate axes only") {
    Mesh const mesh{2, 4};
    CHECK(detail::replica_group(distribution(mesh, Shape{8}, "R,S0"), 5) == Ranks{1, 5});
    CHECK(detail::replica_group(distribution(mesh, Shape{8}, "S0,R"), 5) == Ranks{4, 5, 6, 7});
    CHECK(detail::replica_group(distribution(mesh, Shape{8}, "R,R"), 5) == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(detail::replica_group(distribution(mesh, Shape{8}, "S0,S0"), 5) == Ranks{5});
    CHECK(detail::replica_group(distribution(mesh, Shape{8}, "P+,R"), 5) == Ranks{4, 5, 6, 7});
    CHECK(detail::replica_group(distribution(mesh, Shape{8}, "P+,S0"), 5) == Ranks{5});
    CHECK(detail::replica_group(distribution(Mesh{2, 2}.on({0, {7, 3, 2, 5}}), Shape{8}, "R,S0"), 3) == Ranks{3, 5});
}

TEST_CASE("replicas, their shards and their indices are what the definitions say") {
    for (std::uint64_t seed : test::seeds(300)) {
        test::Limits limits;
        limits.max_elements = 300;
        test::Random random(seed, limits);
        DynamicDistribution const d = random.distribution();
        INFO(test::reproduction(seed, d));
        auto const ranks = oracle::ranks(d);
        bool any = false;
        for (Index rank : ranks) {
            auto const elements = oracle::elements(d, rank);
            Ranks wanted;
            for (Index other : ranks) {
                bool only_replicate = true;
                auto const a = oracle::coordinates(d, rank);
                auto const b = oracle::coordinates(d, other);
                for (std::size_t axis = 0; axis < a.size(); ++axis) {
                    bool const replicate = d.placement(static_cast<int>(axis)).is_replicate();
                    only_replicate = only_replicate && (replicate || a[axis] == b[axis]);
                }
                if (only_replicate) {
                    wanted.push_back(static_cast<int>(other));
                    CHECK(oracle::elements(d, other) == elements);
                    CHECK(oracle::addend_of(d, other) == oracle::addend_of(d, rank));
                } else if (!elements.empty() && oracle::addend_of(d, other) == oracle::addend_of(d, rank)) {
                    CHECK(oracle::elements(d, other) != elements);
                }
            }
            std::sort(wanted.begin(), wanted.end());
            CHECK(detail::replica_group(d, rank) == wanted);
            any = any || (wanted.size() > 1 && d.shape().size() != 0);

            DynamicShape const local = d.local_shape(rank);
            for (Index i = 0; i < local.size(); ++i) {
                Indices const index = detail::global_index(d, rank, detail::unravel(local, i));
                REQUIRE(index == detail::unravel(d.shape(), elements[oracle::at(i)]));
            }
            // The replica of any rank has one member in this group.
            Index const other = random.pick(ranks);
            int const member = detail::same_replica(d, rank, other);
            CHECK(std::binary_search(wanted.begin(), wanted.end(), member));
            CHECK(detail::same_replica(d, member, rank) == rank);
            if (std::binary_search(wanted.begin(), wanted.end(), static_cast<int>(other))) CHECK(member == other);
        }
        CHECK(detail::has_replicas(d) == any);
    }
}

TEST_CASE("tensors share a group across meshes; lone ranks and empty shards have none") {
    auto const tensor = [](DynamicDistribution const& d) { return LocalTensor{"", d, {}}; };
    std::vector<LocalTensor> const tensors{
        tensor(distribution(Mesh{2}, Shape{4}, "R")),       tensor(distribution(Mesh{2, 2}, Shape{4}, "S0,R")),
        tensor(distribution(Mesh{4}, Shape{4}, "S0")),      tensor(distribution(Mesh{2, 2}, Shape{1}, "S0,R")),
        tensor(distribution(Mesh{4}, Shape{0}, "R")),       tensor(distribution(Mesh{1, 2}, Shape{4}, "R,R")),
        tensor(distribution(Mesh{2, 2}, Shape{4}, "R,S0")), tensor(distribution(Mesh{1}, Shape{4}, "R"))};
    auto const groups = detail::replica_groups(tensors, 0);
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].ranks == Ranks{0, 1});
    CHECK(groups[0].tensors == std::vector<std::size_t>{0, 1, 3, 5});
    CHECK(groups[1].ranks == Ranks{0, 2});
    auto const others = detail::replica_groups(tensors, 2);  // its shard of tensor 3 is empty
    REQUIRE(others.size() == 2);
    CHECK(others[0].ranks == Ranks{2, 3});
    CHECK(others[0].tensors == std::vector<std::size_t>{1});
}

}  // namespace
