// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/plan.ipp, its planners: laws of the messages, for random transitions.

#include <reshard/algebra/bound.hpp>
#include <reshard/algebra/total_bound.hpp>
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include "support/messages.hpp"
#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// All ranks of both meshes.
std::vector<Index> everybody(Plan<> const& plan) {
    std::vector<Index> ranks = oracle::ranks(plan.from());
    for (Index rank : oracle::ranks(plan.to()))
        if (!plan.from().contains(rank)) ranks.push_back(rank);
    return ranks;
}

bool moves_sets(Plan<> const& plan) {
    for (auto const* side : {&plan.from(), &plan.to()})
        for (auto const& placement : side->signature().placements)
            if (placement.is_partial()) return false;
    return true;
}

/// Every message has its partner, in the same place of the same order; nothing is empty, nothing goes to oneself.
void check_partners(Plan<> const& plan, int phase) {
    std::map<std::pair<Index, Index>, std::vector<Message>> sent;
    std::map<std::pair<Index, Index>, std::vector<Message>> received;
    auto const without_peer = [](Message message) {
        message.peer = 0;
        return message;
    };
    for (Index rank : everybody(plan)) {
        Exchange const exchange = plan.exchange(rank, phase);
        for (auto const& message : exchange.sends) {
            REQUIRE(message.elements() > 0);
            REQUIRE(message.peer != rank);
            Index extents = 1;
            for (int dim = 0; dim < message.box.size(); ++dim) extents *= message.extent(dim);
            REQUIRE(extents == message.elements());
            for (auto const& repeat : message.repeats) REQUIRE(repeat.count > 1);
            sent[{rank, message.peer}].push_back(without_peer(message));
        }
        for (auto const& message : exchange.receives) {
            received[{message.peer, rank}].push_back(without_peer(message));
        }
    }
    bool const partners = sent == received;
    REQUIRE(partners);
}

/// What arrives, plus what is at home, is what is needed, each element once.
void check_coverage(Plan<> const& plan) {
    for (Index rank : oracle::ranks(plan.to())) {
        Exchange const exchange = plan.exchange(rank);
        std::map<Index, int> hits;
        for (auto const* list : {&exchange.receives, &exchange.kept}) {
            for (auto const& message : *list) {
                for (Index position : test::positions(message, plan.to().shape())) ++hits[position];
            }
        }
        std::map<Index, int> wanted;
        for (Index position : oracle::elements(plan.to(), rank)) ++wanted[position];
        bool const exact = hits == wanted;
        CAPTURE(rank);
        REQUIRE(exact);
    }
}

/// The busiest sender against the min-max optimum: copies of a piece can only divide what others need of it.
void check_balance(Plan<> const& plan) {
    std::map<std::vector<Index>, std::pair<Index, Index>> groups;  // piece -> (copies, elements others need)
    for (Index rank : oracle::ranks(plan.from())) {
        auto const piece = oracle::elements(plan.from(), rank);
        if (!piece.empty()) ++groups[piece].first;
    }
    for (Index rank : oracle::ranks(plan.to())) {
        std::vector<Index> const own =
            plan.from().contains(rank) ? oracle::elements(plan.from(), rank) : std::vector<Index>{};
        auto const wanted = oracle::elements(plan.to(), rank);
        std::vector<bool> wants(static_cast<std::size_t>(plan.to().shape().size()), false);
        for (Index i : wanted) wants[static_cast<std::size_t>(i)] = true;
        for (auto& [piece, group] : groups) {
            if (piece == own) continue;
            for (Index i : piece) group.second += wants[static_cast<std::size_t>(i)] ? 1 : 0;
        }
    }
    Index optimum = 0;
    for (auto const& [piece, group] : groups) optimum = std::max(optimum, ceil_div(group.second, group.first));
    Index most = 0;
    for (Index rank : everybody(plan)) most = std::max(most, plan.cost(rank).sent);
    CAPTURE(most);
    CAPTURE(optimum);
    REQUIRE(most <= 2 * optimum);
}

/// No plan does better than what is claimed that nobody can do better.
void check_bounds_are_bounds(Plan<> const& plan) {
    Index received = 0;
    Index sent = 0;
    Index total = 0;
    Index busiest_bound = 0;
    for (Index rank : everybody(plan)) {
        Cost const cost = plan.cost(rank);
        received = std::max(received, cost.received);
        sent = std::max(sent, cost.sent);
        total += cost.received;
        Bound const bound = receive_bound(plan.from(), plan.to(), rank, plan.is_across());
        CAPTURE(rank);
        if (bound.known && bound.busiest) busiest_bound = std::max(busiest_bound, bound.elements);
        if (bound.known && !bound.busiest) REQUIRE(cost.received >= bound.elements);
    }
    REQUIRE(received >= busiest_bound);
    TotalBound const bound = total_bound(plan.from(), plan.to(), plan.is_across());
    if (!bound.known) return;
    REQUIRE(received >= bound.received);
    REQUIRE(sent >= bound.sent);
    REQUIRE(total >= bound.total);
}

void check_laws(Plan<> const& plan, bool with_balance) {
    if (plan.is_local()) {
        for (Index rank : everybody(plan)) REQUIRE(plan.cost(rank) == Cost{});
        return;
    }
    for (int phase = 0; phase < plan.steps().phases(); ++phase) check_partners(plan, phase);
    check_bounds_are_bounds(plan);
    if (!moves_sets(plan)) return;
    check_coverage(plan);
    for (Index rank : everybody(plan)) {  // law.bound
        REQUIRE(plan.cost(rank).received == oracle::missing(plan.from(), plan.to(), rank));
    }
    if (with_balance) check_balance(plan);
}

test::Limits small() {
    test::Limits limits;
    limits.max_elements = 600;
    limits.max_extent = 20;
    return limits;
}

}  // namespace

TEST_SUITE("plan/planner") {
    TEST_CASE("random transitions on one mesh: partners, coverage, bound and balance") {
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Limits limits = small();
            limits.partial = seed % 3 == 0;
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            if (fills_average(from.signature(), to.signature())) continue;
            INFO(test::reproduction(seed, from, to));
            check_laws(plan(from, to), true);
        }
    }

    TEST_CASE("random transitions between meshes: partners, coverage, bound and balance") {
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Limits limits = small();
            limits.partial = seed % 3 == 0;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(random.mesh(), shape);
            auto const to = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            check_laws(plan_across(from, to), true);
        }
    }

    TEST_CASE("random block-cyclic transitions on one mesh and between meshes") {
        for (std::uint64_t seed : test::seeds(3000)) {
            test::Limits limits = small();
            limits.max_extent = seed % 5 == 0 ? 200 : 30;
            limits.max_dims = seed % 7 == 0 ? 5 : 2;
            limits.partial = seed % 3 == 0;
            limits.mostly_cyclic = true;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            {
                INFO(test::reproduction(seed, from, to));
                check_laws(plan(from, to), true);
            }
            INFO(test::reproduction(seed, from, away));
            check_laws(plan_across(from, away), true);
        }
    }

    TEST_CASE("all pairs of placements on small meshes stay within twice the optimum") {
        std::vector<std::string> const placements{"R", "S0", "S1", "S0:bal"};
        std::size_t count = 0;
        for (auto const& extents : {std::pair<Index, Index>{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {4, 4}}) {
            DynamicMesh const mesh = Mesh{extents.first, extents.second};
            for (DynamicShape const& shape :
                 {DynamicShape(Shape{8, 16}), DynamicShape(Shape{5, 7}), DynamicShape(Shape{13, 3})}) {
                std::vector<DynamicDistribution> all;
                for (auto const& a : placements)
                    for (auto const& b : placements) {
                        all.push_back(distribution(mesh, shape, a + "," + b));
                        if (a[0] == 'S' && b[0] == 'S' && a[1] == b[1]) {
                            all.push_back(distribution(mesh, shape, a + "," + b + "@1,0"));
                        }
                    }
                for (auto const& from : all)
                    for (auto const& to : all) {
                        if (count++ % test::step() != 0) continue;
                        INFO(test::reproduction(0, from, to));
                        check_laws(plan(from, to), true);
                    }
            }
        }
    }

    TEST_CASE("(8,8):(R,S0)->(S0,R) and back share the copies") {
        DynamicMesh const mesh = Mesh{8, 8};
        DynamicShape const shape = Shape{64, 8};
        auto const a = distribution(mesh, shape, "R,S0");
        auto const b = distribution(mesh, shape, "S0,R");
        check_laws(plan(a, b), true);
        check_laws(plan(b, a), true);
        for (Index rank = 0; rank < 64; ++rank) CHECK(plan(a, b).cost(rank).sent <= 64);
    }
}
