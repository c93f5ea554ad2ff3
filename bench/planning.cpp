// SPDX-License-Identifier: Apache-2.0
// Question: what does it cost one of a million ranks to find out what it sends and receives?
// Floor: the steps of the plan alone, which do not depend on the rank. Axis: the rank.
#include "support/plan_cases.hpp"

#include <benchmark/benchmark.h>

namespace {

using namespace reshard;
using namespace reshard::bench;

void steps(benchmark::State& state, PlanCase const& plan_case) {
    for (auto _ : state) {
        auto result = plan_case.plan.steps();
        benchmark::DoNotOptimize(&result);
        benchmark::ClobberMemory();
    }
}
void one_rank(benchmark::State& state, PlanCase const& plan_case) {
    Index const rank = state.range(0);
    Index const peers = peers_of(plan_one_rank(plan_case.plan, rank));
    for (auto _ : state) {
        auto result = plan_one_rank(plan_case.plan, rank);
        benchmark::DoNotOptimize(&result);
        benchmark::ClobberMemory();
    }
    state.counters["peers"] = static_cast<double>(peers);
    state.counters["budget_us"] = 1e6 * plan_budget_seconds(peers);
}

}  // namespace

int main(int argc, char** argv) {
    for (auto const& cases : {goal_plans(), other_plans()}) {
        for (PlanCase const& plan_case : cases) {
            benchmark::RegisterBenchmark(("plan/floor:steps/" + plan_case.name).c_str(),
                                         [plan_case](benchmark::State& state) { steps(state, plan_case); });
            auto* const benchmark =
                benchmark::RegisterBenchmark(("plan/one_rank/" + plan_case.name).c_str(),
                                             [plan_case](benchmark::State& state) { one_rank(state, plan_case); });
            benchmark->ArgName("rank")->Unit(benchmark::kMicrosecond);
            for (Index rank : planning_ranks) benchmark->Arg(rank);
        }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
