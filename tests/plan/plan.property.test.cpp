// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/plan/plan.hpp: laws of plans as values, for random transitions. What plans move is tried in
// planner.property.test.cpp; what they mean, and law.adjoint, where they are carried out: tests/exec.
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include <reshard/plan/relay.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <map>

namespace {
using namespace reshard;

test::Limits sums() {
    test::Limits limits;
    limits.ops = {Reduce::sum};
    limits.max_elements = 2000;
    return limits;
}

}  // namespace

TEST_SUITE("plan/plan") {
    TEST_CASE("law.identity: from a distribution to itself there is a view of everything") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Random random(seed);
            auto const d = random.distribution();
            INFO(test::reproduction(seed, d));
            Plan<> const p = plan(d, d);
            REQUIRE(p.kind() == TransitionKind::view);
            float element = 0;
            for (Index rank : oracle::ranks(d)) {
                TensorView<float> const all(&element, d.local_shape(rank));
                REQUIRE(p.view(all, rank).data() == all.data());
                REQUIRE(p.view(all, rank).shape() == all.shape());
                REQUIRE(p.cost(rank) == Cost{});
            }
        }
    }

    TEST_CASE("a view names the elements that the rank needs, in the order of its local tensor") {
        int views = 0;
        for (std::uint64_t seed : test::seeds(3000)) {
            test::Limits limits;
            limits.max_elements = 300;
            limits.max_axes = 3;
            limits.ops = {Reduce::max};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            Plan<> const p = plan(from, to);
            if (p.kind() != TransitionKind::view) continue;
            ++views;
            INFO(test::reproduction(seed, from, to));
            for (Index rank : oracle::ranks(from)) {
                oracle::Elements const held = oracle::elements(from, rank);
                TensorView<Index const> const full(held.data(), from.local_shape(rank));
                auto const window = p.view(full, rank);
                oracle::Elements seen;
                for (Index k = 0; k < window.size(); ++k) {
                    Index rest = k;
                    Index position = 0;
                    for (int dim = window.rank() - 1; dim >= 0; --dim) {
                        position += rest % window.extent(dim) * window.stride(dim);
                        rest /= window.extent(dim);
                    }
                    seen.push_back(window.data()[position]);
                }
                bool const same = seen == oracle::elements(to, rank);
                REQUIRE(same);
            }
        }
        CHECK(views > test::of_seeds(30));
    }

    TEST_CASE("equal plans hash alike, different plans differ") {
        std::map<std::uint64_t, Plan<>> seen;
        for (std::uint64_t seed : test::seeds(2000)) {
            test::Random random(seed, sums());
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape(static_cast<int>(random.between(1, 2)));
            Plan<> const p = plan(random.distribution(mesh, shape), random.distribution(mesh, shape));
            auto const [place, is_new] = seen.emplace(p.hash(), p);
            INFO(test::reproduction(seed, p.from(), p.to()));
            REQUIRE(place->second == p);  // a hash seen before belongs to an equal plan
            Plan<> const printed = plan(parse(to_string(p.from()), shape), parse(to_string(p.to()), shape));
            REQUIRE(printed == p);
            REQUIRE(printed.hash() == p.hash());
        }
    }

    TEST_CASE("the adjoint of the adjoint is the plan itself, and swaps the two sides") {
        for (std::uint64_t seed : test::seeds(1000)) {
            test::Random random(seed, sums());
            DynamicShape const shape = random.shape();
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            for (Plan<> const& p : {plan(from, to), plan_across(from, away)}) {
                REQUIRE(p.adjoint().adjoint() == p);
                REQUIRE(p.relayed(3).adjoint() == p.adjoint().relayed(3));  // it travels as the plan does
                REQUIRE(p.one_shot_fold().adjoint() == p.adjoint().one_shot_fold());
                REQUIRE(p.adjoint().is_across() == p.is_across());
                for (Index rank : oracle::ranks(p.from())) {
                    REQUIRE(p.adjoint().to().local_shape(rank) == p.from().local_shape(rank));
                }
                for (Index rank : oracle::ranks(p.to())) {
                    REQUIRE(p.adjoint().from().local_shape(rank) == p.to().local_shape(rank));
                }
            }
        }
    }

    TEST_CASE("what leaves one rank arrives at another, in all") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Random random(seed, sums());
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(random.mesh(), shape);
            auto const to = random.distribution(random.mesh(), shape);
            INFO(test::reproduction(seed, from, to));
            Plan<> const p = plan_across(from, to);
            Cost all;
            for (Index rank = 0; rank < std::max(oracle::rank_limit(from), oracle::rank_limit(to)); ++rank) {
                Cost const cost = p.cost(rank);
                all.sent += cost.sent;
                all.received += cost.received;
                all.messages_sent += cost.messages_sent;
                all.messages_received += cost.messages_received;
                if (!from.contains(rank) && !to.contains(rank)) REQUIRE(cost.sent + cost.received == 0);
            }
            REQUIRE(all.sent == all.received);
            REQUIRE(all.messages_sent == all.messages_received);
        }
    }
}
