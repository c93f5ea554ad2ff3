// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/simulate.hpp: worlds by classes against every rank planned and added up here.
#include <reshard/plan/simulate.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace {
using namespace reshard;

/// Every rank planned, every message walked over; no class and no sum of the library is used.
Simulation by_every_rank(Plan<> const& plan, Topology const& topology, DType dtype) {
    std::set<Index> ranks;
    for (Index rank : oracle::ranks(plan.from())) ranks.insert(rank);
    for (Index rank : oracle::ranks(plan.to())) ranks.insert(rank);
    Simulation world;
    world.ranks = static_cast<Index>(ranks.size());
    Index const size = bytes(dtype);
    int phases = 0;
    for (Index rank : ranks) phases = detail::larger(phases, plan.cost(rank).phases);
    std::map<Index, double> seconds;
    std::map<Index, Index> sent;
    std::map<Index, Index> received;
    for (int phase = 0; phase < phases; ++phase) {
        PhaseSum sum;
        for (int i = 0; i < topology.size(); ++i) sum.tiers.push_back({});
        std::vector<std::map<Index, Index>> out(static_cast<std::size_t>(topology.size()));
        std::vector<std::map<Index, Index>> in(out.size());
        for (Index rank : ranks) {
            planning::Exchange const exchange = plan.exchange(rank, phase);
            std::vector<Index> count_out(out.size(), 0), count_in(out.size(), 0), bytes_out(out.size(), 0),
                bytes_in(out.size(), 0);
            auto const meet = [&](Index peer) {
                int tier = 0;
                while (topology.tier(tier).ranks != 0 &&
                       rank / topology.tier(tier).ranks != peer / topology.tier(tier).ranks) {
                    ++tier;
                }
                return static_cast<std::size_t>(tier);
            };
            for (planning::Message const& message : exchange.sends) {
                std::size_t const tier = meet(message.peer);
                ++count_out[tier];
                bytes_out[tier] += size * message.elements();
                for (std::size_t i = 0; i < tier; ++i) {
                    out[i][rank / topology.tier(static_cast<int>(i)).ranks] += size * message.elements();
                    in[i][message.peer / topology.tier(static_cast<int>(i)).ranks] += size * message.elements();
                }
            }
            for (planning::Message const& message : exchange.receives) {
                std::size_t const tier = meet(message.peer);
                ++count_in[tier];
                bytes_in[tier] += size * message.elements();
            }
            double slowest = 0;
            for (std::size_t i = 0; i != out.size(); ++i) {
                TierSum& tier = sum.tiers[static_cast<int>(i)];
                tier.messages += count_in[i];
                tier.bytes += bytes_in[i];
                tier.most_messages = std::max({tier.most_messages, count_in[i], count_out[i]});
                tier.most_sent = std::max(tier.most_sent, bytes_out[i]);
                tier.most_received = std::max(tier.most_received, bytes_in[i]);
                sent[rank] += bytes_out[i];
                received[rank] += bytes_in[i];
                Tier const& link = topology.tier(static_cast<int>(i));
                for (auto const& [messages, amount] :
                     {std::pair{count_out[i], bytes_out[i]}, std::pair{count_in[i], bytes_in[i]}}) {
                    slowest = std::max(slowest, link.latency * static_cast<double>(messages) +
                                                    static_cast<double>(amount) / link.bandwidth);
                }
            }
            seconds[rank] += slowest;
            sum.seconds = std::max(sum.seconds, slowest);
        }
        for (std::size_t i = 0; i != out.size(); ++i) {
            TierSum& tier = sum.tiers[static_cast<int>(i)];
            for (auto const& [unit, amount] : out[i]) tier.most_out = std::max(tier.most_out, amount);
            for (auto const& [unit, amount] : in[i]) tier.most_in = std::max(tier.most_in, amount);
            double const uplink = topology.tier(static_cast<int>(i)).uplink;
            Index const most = std::max(tier.most_out, tier.most_in);
            if (uplink > 0) sum.seconds = std::max(sum.seconds, static_cast<double>(most) / uplink);
        }
        world.seconds += sum.seconds;
        world.phases.push_back(sum);
    }
    double longest = -1;
    for (Index rank : ranks) {
        if (seconds[rank] > longest) {
            longest = seconds[rank];
            world.busiest = rank;
        }
        world.most_sent = std::max(world.most_sent, sent[rank]);
        world.most_received = std::max(world.most_received, received[rank]);
        Index memory = 0;
        bool const held = plan.from().contains(rank);
        if (held) memory += plan.from().local_shape(rank).size();
        if (plan.to().contains(rank) && plan.kind() != TransitionKind::view)
            memory += plan.to().local_shape(rank).size();
        memory += plan.cost(rank).workspace;
        world.most_memory = std::max(world.most_memory, size * memory);
        Bound const bound = receive_bound(plan.from(), plan.to(), rank, plan.is_across());
        if (!bound.known) world.bound_known = false;
        world.bound = std::max(world.bound, bound.known ? size * bound.elements : 0);
    }
    return world;
}

Topology random_topology(test::Random& random, Index ranks) {
    std::vector<Tier> tiers;
    Index unit = random.chance(30) ? 1 : random.between(1, 8);
    int const count = static_cast<int>(random.between(1, 4));
    for (int i = 0; i + 1 < count; ++i) {
        tiers.push_back({"tier", unit, 1e-6 * static_cast<double>(random.between(0, 5)),
                         1e9 * static_cast<double>(random.between(1, 9)),
                         random.chance(50) ? 1e9 * static_cast<double>(random.between(1, 9)) : 0});
        unit *= random.between(2, 4);
    }
    Index const last = random.chance(50) ? 0 : unit * (ranks / unit + 2);
    tiers.push_back({"all", last, 1e-5, 1e9, 0});
    return Topology(tiers);
}

void compare(Plan<> const& plan, Topology const& topology, Index& classified) {
    INFO(to_string(topology));
    Simulation const expected = by_every_rank(plan, topology, DType::bf16);
    SimulateOptions one_by_one;
    one_by_one.classes = false;
    SimulateOptions cut_short;  // somewhere while lists are made
    cut_short.lists = plan.from().shape().size() % 67;
    for (SimulateOptions const& options : {SimulateOptions{}, one_by_one, cut_short}) {
        bool const is_cut_short = options.lists == cut_short.lists;
        if (is_cut_short && plan.from().shape().size() % 4 != 0) continue;
        Simulation found = simulate(plan, topology, DType::bf16, options);
        REQUIRE(found.exact);
        REQUIRE(found.ranks == expected.ranks);
        REQUIRE(found.evaluated <= found.ranks);
        if (found.evaluated < found.ranks && !is_cut_short) ++classified;
        REQUIRE(found.phases.size() == expected.phases.size());
        for (std::size_t phase = 0; phase != expected.phases.size(); ++phase) {
            for (int i = 0; i < topology.size(); ++i) {
                TierSum const& a = found.phases[phase].tiers[i];
                TierSum const& b = expected.phases[phase].tiers[i];
                CAPTURE(phase);
                CAPTURE(i);
                REQUIRE(a.messages == b.messages);
                REQUIRE(a.bytes == b.bytes);
                REQUIRE(a.most_messages == b.most_messages);
                REQUIRE(a.most_sent == b.most_sent);
                REQUIRE(a.most_received == b.most_received);
                REQUIRE(a.most_out == b.most_out);
                REQUIRE(a.most_in == b.most_in);
            }
            REQUIRE(found.phases[phase].seconds == doctest::Approx(expected.phases[phase].seconds));
        }
        REQUIRE(found.seconds == doctest::Approx(expected.seconds));
        REQUIRE(found.busiest == expected.busiest);
        REQUIRE(found.most_sent == expected.most_sent);
        REQUIRE(found.most_received == expected.most_received);
        REQUIRE(found.most_memory == expected.most_memory);
        REQUIRE(found.bound_known == expected.bound_known);
        if (found.bound_known) REQUIRE(found.bound == expected.bound);
    }
}

}  // namespace

TEST_SUITE("plan/simulate") {
    TEST_CASE("worlds of any placements are what all ranks add up to") {
        Index classified = 0;
        for (std::uint64_t seed : test::seeds(1500)) {
            test::Limits limits;
            limits.max_ranks = 36;
            limits.ops = {Reduce::sum, Reduce::max};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            INFO(test::reproduction(seed, from, to));
            Plan<> const move = plan(from, to);
            bool const one_shot = random.chance(25);
            compare(one_shot ? move.one_shot_fold() : move, random_topology(random, mesh.last_rank() + 1), classified);
        }
        CHECK(classified > test::of_seeds(200));
    }

    TEST_CASE("worlds of relayed plans are what all ranks add up to") {
        Index classified = 0;
        for (std::uint64_t seed : test::seeds(300)) {
            test::Limits limits;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            Index const node = random.between(2, 6);
            INFO(test::reproduction(seed, from, to));
            CAPTURE(node);
            compare(plan(from, to).relayed(node), random_topology(random, mesh.last_rank() + 1), classified);
            compare(plan_across(from, to).relayed(node), random_topology(random, mesh.last_rank() + 1), classified);
        }
        CHECK(classified == 0);
    }

    TEST_CASE("worlds of two meshes are what all ranks add up to") {
        Index classified = 0;
        for (std::uint64_t seed : test::seeds(500)) {
            test::Limits limits;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(random.mesh(), shape);
            auto const to = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            Index const last = detail::larger(from.mesh().last_rank(), to.mesh().last_rank());
            compare(plan_across(from, to), random_topology(random, last + 1), classified);
        }
    }

    TEST_CASE("meshes of up to 200 ranks whose units are boxes: classes are few, sums are the same") {
        Index classified = 0;
        Index collective = 0;
        for (std::uint64_t seed : test::seeds(150)) {
            test::Limits limits;
            limits.max_elements = 40'000;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.pick(std::vector<DynamicMesh>{
                DynamicMesh(Indices{16, 12}), DynamicMesh(Indices{8, 16}), DynamicMesh(Indices{4, 4, 8}),
                DynamicMesh(Indices{2, 64}), DynamicMesh(Indices{192}), DynamicMesh(Indices{3, 8, 8}, first_rank(64))});
            Indices extents;
            for (int dim = 0; dim < 2; ++dim) {
                extents.push_back(random.chance(50) ? 12 * random.between(1, 16) : random.between(1, 200));
            }
            auto const from = random.distribution(mesh, DynamicShape(extents));
            auto const to = random.distribution(mesh, DynamicShape(extents));
            INFO(test::reproduction(seed, from, to));
            Topology const topology({{"pair", 2, 1e-6, 4e9, 0},
                                     {"node", random.chance(50) ? 4 : 8, 2e-6, 2e9, 3e9},
                                     {"rack", 64, 4e-6, 1.5e9, 9e9},
                                     {"cluster", 0, 8e-6, 1e9, 0}});
            Plan<> const move = plan(from, to);
            compare(move, topology, classified);
            if (!move.is_local()) ++collective;
        }
        CHECK(2 * classified > collective);
    }
}
