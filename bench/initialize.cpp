// SPDX-License-Identifier: Apache-2.0
// Question: what does it cost that a value depends on its place in the tensor and on nothing else?
// Floor: std::mt19937 with the distributions of the standard library, which no second rank can reproduce in parts.
#include <benchmark/benchmark.h>
#include <reshard/init/initialize.hpp>

#include "support/paired.hpp"

#include <random>
#include <vector>

namespace {

using namespace reshard;

constexpr Index elements = 1 << 20;

template <class T, class I>
void fill(std::vector<T>& values, I const& initializer) {
    TensorView<T> const view(values.data(), Shape{1024, elements / 1024});
    initialize("weight", distribution(Mesh{1}, view.shape(), "R"), view, 0, 1, initializer);
}

template <class Distribution>
void fill_serially(std::vector<float>& values, Distribution distribution) {
    std::mt19937 engine(1);
    for (float& value : values) value = distribution(engine);
}

template <class T, class I>
void placement_independent(benchmark::State& state) {
    std::vector<T> values(elements);
    for (auto _ : state) {
        fill(values, I{});
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * elements);
    state.SetBytesProcessed(state.iterations() * elements * static_cast<Index>(sizeof(T)));
}

template <class Distribution>
void floor_mt19937(benchmark::State& state) {
    std::vector<float> values(elements);
    for (auto _ : state) {
        fill_serially(values, Distribution());
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * elements);
    state.SetBytesProcessed(state.iterations() * elements * 4);
}

/// How many times faster than mt19937, measured in turn: survives a machine that others use too.
template <class I, class Distribution>
void ratio(benchmark::State& state) {
    std::vector<float> values(elements);
    bench::Paired pair;
    for (auto _ : state) {
        pair = bench::paired([&] { return bench::thread_seconds_of([&] { fill_serially(values, Distribution()); }); },
                             [&] { return bench::thread_seconds_of([&] { fill(values, I{}); }); });
    }
    state.counters["times_faster"] = pair.ratio;
}

BENCHMARK_TEMPLATE(floor_mt19937, std::uniform_real_distribution<float>)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, float, Uniform)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, BFloat16, Uniform)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, double, Uniform)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(floor_mt19937, std::normal_distribution<float>)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, float, Normal)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, BFloat16, Normal)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, double, Normal)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(placement_independent, float, TruncatedNormal)->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(ratio, Uniform, std::uniform_real_distribution<float>)->Iterations(1);
BENCHMARK_TEMPLATE(ratio, Normal, std::normal_distribution<float>)->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
