// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/plan_cases.hpp
/// \brief  Transitions among about a million ranks, and what one rank does to plan its part of them.
#pragma once

#include <reshard/reshard.hpp>

#include <algorithm>  // sort, unique
#include <array>      // array
#include <span>       // span
#include <string>     // string
#include <vector>     // vector

namespace reshard::bench {

struct PlanCase {
    std::string name;
    Plan<> plan;
};

/// What prepare() computes: this rank's sends and receives, in all phases.
[[nodiscard]] inline std::vector<planning::Exchange> plan_one_rank(Plan<> const& plan, Index rank) {
    planning::Steps const steps = plan.steps();
    std::vector<planning::Exchange> exchanges;
    for (planning::Step const& step : steps.list) {
        if (step.kind == planning::StepKind::exchange) exchanges.push_back(exchange_of(steps, step, rank));
    }
    return exchanges;
}

/// How many ranks a rank with these exchanges sends to or receives from.
[[nodiscard]] inline Index peers_of(std::span<planning::Exchange const> exchanges) {
    std::vector<Index> peers;
    for (planning::Exchange const& exchange : exchanges) {
        for (planning::Message const& message : exchange.sends) peers.push_back(message.peer);
        for (planning::Message const& message : exchange.receives) peers.push_back(message.peer);
    }
    std::sort(peers.begin(), peers.end());
    return std::unique(peers.begin(), peers.end()) - peers.begin();
}

/// 20 us, and 250 ns for each peer above 8.
[[nodiscard]] inline double plan_budget_seconds(Index peers) {
    return 20e-6 + 250e-9 * static_cast<double>(detail::larger<Index>(peers - 8, 0));
}

/// The cases of the goal: one peer, one peer that is far away, several peers with uneven boxes, another mesh.
[[nodiscard]] inline std::vector<PlanCase> goal_plans() {
    Mesh const mesh{1024, 1024};
    Shape const even{1 << 20, 1 << 20};
    Shape const prime{1000000007, 1000003};
    return {
        {"(S0,S1)->(S1,S0)",
         plan(distribution<Shard<0>, Shard<1>>(mesh, even), distribution<Shard<1>, Shard<0>>(mesh, even))},
        {"(S0,S0)@0,1->(S0,S0)@1,0", plan(distribution<Shard<0>, Shard<0>>(mesh, prime),
                                          distribution<Shard<0>, Shard<0>>(mesh, prime, AxisOrder<1, 0>{}))},
        {"(S0,S1)->(S0:bal,S1:bal)", plan(distribution<Shard<0>, Shard<1>>(mesh, prime),
                                          distribution<Shard<0, Balanced>, Shard<1, Balanced>>(mesh, prime))},
        {"(1024,1024):(S0,S1)->(1000,1000):(S0,S1)",
         plan_across(distribution<Shard<0>, Shard<1>>(mesh, prime),
                     distribution<Shard<0>, Shard<1>>(Mesh{1000, 1000}, prime))},
    };
}

/// Beside the goal: many peers, copies that share the work, folds.
[[nodiscard]] inline std::vector<PlanCase> other_plans() {
    Mesh const mesh{1024, 1024};
    Shape const shape{1 << 20, 1 << 20};
    Mesh const elsewhere = Mesh{1000, 1000}.on(first_rank(1 << 20));
    return {
        {"(S0,S1)->(S0,R)",
         plan(distribution<Shard<0>, Shard<1>>(mesh, shape), distribution<Shard<0>, Replicate>(mesh, shape))},
        {"(R,S0)->(S0,R)",
         plan(distribution<Replicate, Shard<0>>(mesh, shape), distribution<Shard<0>, Replicate>(mesh, shape))},
        {"(P+,S0)->(S0,S0)",
         plan(distribution<Partial<>, Shard<0>>(mesh, shape), distribution<Shard<0>, Shard<0>>(mesh, shape))},
        {"(R,S0)->(S0,S0)",
         plan(distribution<Replicate, Shard<0>>(mesh, shape), distribution<Shard<0>, Shard<0>>(mesh, shape))},
        {"(S1,R)->(S0,S0)",
         plan(distribution<Shard<1>, Replicate>(mesh, shape), distribution<Shard<0>, Shard<0>>(mesh, shape))},
        {"(P+,R)->(R,R)",
         plan(distribution<Partial<>, Replicate>(mesh, shape), distribution<Replicate, Replicate>(mesh, shape))},
        {"(P+,R)->(S0,S0)",
         plan(distribution<Partial<>, Replicate>(mesh, shape), distribution<Shard<0>, Shard<0>>(mesh, shape))},
        {"(S0,R)->(1000,1000):(S0,S1) elsewhere", plan_across(distribution<Shard<0>, Replicate>(mesh, shape),
                                                              distribution<Shard<0>, Shard<1>>(elsewhere, shape))},
    };
}

/// Whole worlds: tiles that change places, cuts in another order, a gather, and a sum that is copied.
[[nodiscard]] inline std::vector<PlanCase> simulated_plans() {
    Mesh const mesh{1024, 1024};
    Shape const even{1 << 20, 1 << 20};
    Shape const prime{1000000007, 1000003};
    return {
        {"(S0,S1)->(S1,S0)",
         plan(distribution<Shard<0>, Shard<1>>(mesh, even), distribution<Shard<1>, Shard<0>>(mesh, even))},
        {"(S0,S1)->(S1,S0) uneven",
         plan(distribution<Shard<0>, Shard<1>>(mesh, prime), distribution<Shard<1>, Shard<0>>(mesh, prime))},
        {"(S0,S0)@0,1->(S0,S0)@1,0", plan(distribution<Shard<0>, Shard<0>>(mesh, even),
                                          distribution<Shard<0>, Shard<0>>(mesh, even, AxisOrder<1, 0>{}))},
        {"(S0,S1)->(S0,R)",
         plan(distribution<Shard<0>, Shard<1>>(mesh, even), distribution<Shard<0>, Replicate>(mesh, even))},
        {"(P+,S0)->(R,S0)",
         plan(distribution<Partial<>, Shard<0>>(mesh, even), distribution<Replicate, Shard<0>>(mesh, even))},
    };
}

/// First, last and three in between: cost depends on where a rank lies.
inline constexpr std::array<Index, 5> planning_ranks{0, 1, 345678, 524801, 999999};

}  // namespace reshard::bench
