// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/relay.hpp: laws of relayed plans, for random
// transitions and clusters. What they mean is tried where plans are carried out: tests/exec.
#include <reshard/plan/relay.hpp>

#include <doctest/doctest.h>

#include "support/cluster.hpp"
#include "support/messages.hpp"
#include "support/oracle.hpp"
#include "support/random.hpp"

#include <map>
#include <set>
#include <vector>

namespace {
using namespace reshard;
using Bits = std::vector<bool>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

std::vector<Index> everybody(Plan<> const& plan) {
    std::set<Index> ranks;
    for (Index rank : oracle::ranks(plan.from())) ranks.insert(rank);
    for (Index rank : oracle::ranks(plan.to())) ranks.insert(rank);
    return {ranks.begin(), ranks.end()};
}

planning::Message anonymous(planning::Message message) {
    message.peer = 0;
    return message;
}

Bits elements(DynamicDistribution const& side, Index rank) {
    Bits bits(at(side.shape().size()), false);
    if (side.contains(rank))
        for (Index i : oracle::elements(side, rank)) bits[at(i)] = true;
    return bits;
}

/// Plays the exchanges of a plan without Partial, element by element, and counts what enters each node.
struct Play {
    std::map<Index, Bits> held;                     ///< the source
    std::map<Index, Bits> arrived;                  ///< the destination
    std::map<Index, std::map<Index, int>> entered;  ///< node -> element -> times
    Index received = 0;

    Play(Plan<> const& plan, Index ranks_per_node) {
        DynamicShape const& shape = plan.from().shape();
        for (Index rank : everybody(plan)) {
            held[rank] = elements(plan.from(), rank);
            arrived[rank] = Bits(at(shape.size()), false);
        }
        int const phases = plan.steps().phases();
        REQUIRE(phases <= 3);
        for (int phase = 0; phase < phases; ++phase) {
            auto const before = arrived;
            std::map<std::pair<Index, Index>, std::vector<planning::Message>> sent;
            std::map<std::pair<Index, Index>, std::vector<planning::Message>> expected;
            for (Index rank : everybody(plan)) {
                CAPTURE(rank);
                planning::Exchange const exchange = plan.exchange(rank, phase);
                Bits const& memory = phase == 0 ? held[rank] : before.at(rank);
                for (planning::Message const& message : exchange.sends) {
                    REQUIRE(message.elements() > 0);
                    REQUIRE(message.peer != rank);
                    sent[{rank, message.peer}].push_back(anonymous(message));
                    for (Index i : test::positions(message, shape)) REQUIRE(memory[at(i)]);  // it has what it sends
                }
                for (planning::Message const& message : exchange.receives) {
                    expected[{message.peer, rank}].push_back(anonymous(message));
                    received += message.elements();
                    for (Index i : test::positions(message, shape)) {
                        REQUIRE(!held[rank][at(i)]);
                        REQUIRE(!arrived[rank][at(i)]);  // nothing arrives twice
                        arrived[rank][at(i)] = true;
                        if (message.peer / ranks_per_node != rank / ranks_per_node) {
                            ++entered[rank / ranks_per_node][i];
                        }
                    }
                }
                for (planning::Message const& message : exchange.kept) {
                    for (Index i : test::positions(message, shape)) {
                        REQUIRE(memory[at(i)]);
                        REQUIRE(!arrived[rank][at(i)]);
                        arrived[rank][at(i)] = true;
                    }
                }
            }
            bool const partners = sent == expected;
            REQUIRE(partners);
        }
        for (Index rank : everybody(plan)) {
            CAPTURE(rank);
            bool const complete = arrived[rank] == elements(plan.to(), rank);
            REQUIRE(complete);
            REQUIRE(plan.cost(rank).received == (plan.is_local() ? 0 : oracle::missing(plan.from(), plan.to(), rank)));
        }
    }
};

/// Elements that some rank of the node needs and none of its ranks holds.
Bits foreign(Plan<> const& plan, Index node, Index ranks_per_node) {
    Bits needed(at(plan.to().shape().size()), false);
    Bits held = needed;
    for (Index rank : everybody(plan)) {
        if (rank / ranks_per_node != node) continue;
        Bits const wants = elements(plan.to(), rank);
        Bits const has = elements(plan.from(), rank);
        for (std::size_t i = 0; i < needed.size(); ++i) {
            if (wants[i]) needed[i] = true;
            if (has[i]) held[i] = true;
        }
    }
    for (std::size_t i = 0; i < needed.size(); ++i)
        if (held[i]) needed[i] = false;
    return needed;
}

void check_once(Plan<> const& plan, Index ranks_per_node, bool exact) {
    Play play(plan, ranks_per_node);
    std::set<Index> nodes;
    for (Index rank : everybody(plan)) nodes.insert(rank / ranks_per_node);
    for (Index node : nodes) {
        CAPTURE(node);
        Bits const wanted = foreign(plan, node, ranks_per_node);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            int const times = play.entered[node][static_cast<Index>(i)];
            CAPTURE(i);
            REQUIRE(times <= 1);
            if (exact) REQUIRE((times == 1) == wanted[i]);
            if (wanted[i]) REQUIRE(times == 1);
        }
    }
}

test::Limits moving() {
    test::Limits limits;
    limits.max_elements = 400;
    limits.max_extent = 20;
    limits.partial = false;
    return limits;
}

}  // namespace

TEST_SUITE("plan/relayed") {
    TEST_CASE("on one mesh every byte that a node lacks enters it once, and no other") {
        int relays = 0;
        int near = 0;
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Random random(seed, moving());
            test::Cluster const cluster(random);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(cluster.mesh, shape);
            auto const to = random.distribution(cluster.mesh, shape);
            INFO(test::reproduction(seed, from, to), ", nodes of ", cluster.ranks_per_node);
            Plan<> const p = plan(from, to).relayed(cluster.ranks_per_node);
            if (p.is_local()) continue;
            check_once(p, cluster.ranks_per_node, true);
            relays += p.steps().relays.share >= 0 ? 1 : 0;
            near += p.steps().inside != 0 ? 1 : 0;
        }
        CHECK(relays > test::of_seeds(100));
        CHECK(near > test::of_seeds(300));
    }

    TEST_CASE("the same with many axes, each inside nodes, between them, or both") {
        for (std::uint64_t seed : test::seeds(800)) {
            test::Limits limits = moving();
            limits.max_dims = 2;
            test::Random random(seed, limits);
            bool const straddles = random.chance(50);
            DynamicMesh const mesh = straddles ? DynamicMesh(Mesh{2, 4, 4}) : DynamicMesh(Mesh{2, 2, 2, 2, 2});
            Index const ranks_per_node = straddles ? 8 : random.pick(std::vector<Index>{2, 4, 8});
            DynamicShape const shape = random.shape(static_cast<int>(random.between(1, 2)));
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            INFO(test::reproduction(seed, from, to), ", nodes of ", ranks_per_node);
            Plan<> const p = plan(from, to).relayed(ranks_per_node);
            if (!p.is_local()) check_once(p, ranks_per_node, true);
        }
    }

    TEST_CASE("between meshes no byte enters a node twice") {
        int relays = 0;
        for (std::uint64_t seed : test::seeds(1500)) {
            test::Random random(seed, moving());
            test::Cluster const cluster(random);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(random.mesh(), shape);
            auto const to = random.distribution(cluster.mesh, shape);
            INFO(test::reproduction(seed, from, to), ", nodes of ", cluster.ranks_per_node);
            Plan<> const p = plan_across(from, to).relayed(cluster.ranks_per_node);
            check_once(p, cluster.ranks_per_node, false);
            relays += p.steps().relays.share >= 0 ? 1 : 0;
        }
        CHECK(relays > test::of_seeds(100));
    }

    TEST_CASE("between meshes, with all ranks as one node, every byte leaves the source once") {
        int relays = 0;
        for (std::uint64_t seed : test::seeds(1000)) {
            test::Limits limits = moving();
            limits.plain_ranks = true;
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            DynamicMesh const sources = random.mesh();
            auto const from = random.distribution(sources, shape);
            auto const to =
                random.distribution(DynamicMesh(random.mesh().extents(), first_rank(sources.size())), shape);
            INFO(test::reproduction(seed, from, to));
            Plan<> const p = plan_across(from, to).relayed(all_ranks);
            Play const play(p, all_ranks);
            Index leaves = 0;
            for (Index rank : oracle::ranks(from)) leaves += p.cost(rank).sent;
            REQUIRE(leaves == shape.size());
            relays += p.steps().relays.share >= 0 ? 1 : 0;
        }
        CHECK(relays > test::of_seeds(100));
    }

    TEST_CASE("nodes that do not divide the mesh: no worse than the direct plan in what a rank receives") {
        for (std::uint64_t seed : test::seeds(1500)) {
            test::Random random(seed, moving());
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            Index const ranks_per_node = random.between(2, 9);
            INFO(test::reproduction(seed, from, to), " and to ", to_string(away), ", nodes of ", ranks_per_node);
            Plan<> const within = plan(from, to).relayed(ranks_per_node);
            if (!within.is_local()) Play const play(within, ranks_per_node);
            Play const play(plan_across(from, away).relayed(ranks_per_node), ranks_per_node);
        }
    }

    TEST_CASE("one rank per node is the direct plan; nothing to share in a node moves what the direct plan moves") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Random random(seed, moving());
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            INFO(test::reproduction(seed, from, to));
            Plan<> const direct = plan(from, to);
            REQUIRE(direct.relayed(1) == direct);
            REQUIRE(direct.relayed(0).hash() == direct.hash());
            REQUIRE(direct.relayed(4).relayed(1) == direct);
            if (direct.is_local()) continue;
            bool copies = false;
            for (int a = 0; a < mesh.axes(); ++a) copies = copies || to.placement(a).is_replicate();
            if (!copies) REQUIRE(direct.relayed(4).cost(mesh.rank_at(0)).phases == 1);
        }
    }
}
