// SPDX-License-Identifier: Apache-2.0
// Question: what does it cost one of a million ranks to find out what it sends and receives?
// Floor: the steps of the plan alone, which do not depend on the rank. Axis: the rank.
#include "support/plan_cases.hpp"

#include <reshard/plan/box_table.hpp>

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

/// A matrix as rows x columns boxes, dealt to 1,000 ranks in turn.
std::vector<HeldBox> grid(DynamicShape const& shape, Index rows, Index columns) {
    std::vector<HeldBox> boxes;
    auto const cut = [](Index extent, Index parts, Index i) {
        return Interval{i * extent / parts, (i + 1) * extent / parts};
    };
    for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j)
            boxes.push_back(
                {std::ssize(boxes) % 1000, Box{cut(shape.extent(0), rows, i), cut(shape.extent(1), columns, j)}});
    return boxes;
}
void boxes_table(benchmark::State& state) {
    DynamicShape const shape(Shape{100'000, 100'000});
    auto const boxes = grid(shape, state.range(0), state.range(1));
    for (auto _ : state) {
        BoxTable const table(shape, boxes);
        benchmark::DoNotOptimize(table.last_rank());
    }
}
void one_rank(benchmark::State& state, BoxTable const& from, BoxTable const& to, Index rank) {
    planning::BoxExchange mine;
    for (auto _ : state) mine = exchange(from, to, rank);
    state.counters["messages"] = static_cast<double>(mine.sends.size() + mine.receives.size());
}
void boxes_one_rank(benchmark::State& state) {
    DynamicShape const shape(Shape{100'000, 100'000});
    one_rank(state, {shape, grid(shape, state.range(0), state.range(1))},
             {shape, grid(shape, state.range(1), state.range(0))}, 7);
}
/// Lists of any length, dealt to 5 ranks in turn, each of which goes to the next one.
void boxes_ragged(benchmark::State& state) {
    std::vector<HeldBox> boxes;
    Index rows = 0;
    for (Index i = 0; i < state.range(0); ++i) {
        Index const length = i * 2654435761 % 4294967296 % 21;
        if (length > 0) boxes.push_back({i % 5, Box{{rows, rows + length}}});
        rows += length;
    }
    BoxTable const from(Shape{rows}, boxes);
    for (HeldBox& one : boxes) one.rank = (one.rank + 1) % 5;
    one_rank(state, from, {Shape{rows}, boxes}, 2);
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
    for (auto* const one : {benchmark::RegisterBenchmark("plan/boxes:table", boxes_table),
                            benchmark::RegisterBenchmark("plan/boxes:one_rank", boxes_one_rank)}) {
        one->ArgNames({"rows", "columns"})->Unit(benchmark::kMillisecond)->Args({1000, 1})->Args({1000, 100});
    }
    benchmark::RegisterBenchmark("plan/boxes:ragged", boxes_ragged)->Unit(benchmark::kMillisecond)->Arg(100'000);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
