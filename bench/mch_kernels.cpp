// SPDX-License-Identifier: Apache-2.0
// Question: what do the host kernels of managed-collision state cost beside copying and sorting?
// Floors: one memcpy of the live columns by as many threads; the argsort of std::stable_sort plus gathers.
// 16.8M entries of four columns of 8 bytes, 95 % of them live, 80 bytes counted an entry: two columns read to count,
// four read and written to move.
//
// Arguments: --goals for the goal lines (all, or those named behind it), Google Benchmark's options otherwise.
#include "support/mch_rows.hpp"

#include "support/goal_lines.hpp"
#include "support/paired.hpp"

#include <benchmark/benchmark.h>

#include <cstdio>   // printf
#include <cstring>  // strcmp

namespace {

using namespace reshard;
using namespace reshard::bench;

constexpr Index all_entries = 16'800'000;
constexpr int threads = 2;

// ---- Goals -------------------------------------------------------------------------------------------------------

/// Counted bytes a second of the partition, by those that the threads copy.
[[nodiscard]] double partition_vs_copy(Index world) {
    MchRows rows(all_entries, threads);
    Paired const result =
        paired([&] { return timed([&] { rows.copy(); }); }, [&] { return timed([&] { rows.partition(world); }); });
    double const copied = static_cast<double>(rows.copied_bytes()) / result.first / 1e9;
    double const moved = static_cast<double>(80 * all_entries) / result.second / 1e9;
    // A pair's ratio is of seconds: bytes make it one of rates.
    double const ratio =
        result.ratio * static_cast<double>(80 * all_entries) / static_cast<double>(rows.copied_bytes());
    bool const right = rows.is_partitioned(world);
    std::printf("  W = %4lld: partition %6.1f ms, %5.1f GB/s counted; copy %5.1f GB/s; %.2f of copy%s\n",
                static_cast<long long>(world), 1e3 * result.second, moved, copied, ratio,
                right ? "" : "  WRONG RESULT");
    return right ? ratio : 0;
}

void partition_w2(Goals& goals) { goals.at_least("partition_w2", partition_vs_copy(2), 0.60); }
void partition_w64(Goals& goals) { goals.at_least("partition_w64", partition_vs_copy(64), 0.33); }

void partition_worlds(Goals& /*goals*/) {
    for (Index world : {1, 4, 8, 16, 24, 32, 128, 256, 1024}) static_cast<void>(partition_vs_copy(world));
}

void partition_vs_sort(Goals& goals) {
    MchRows rows(all_entries, threads);
    Paired const result = paired([&] { return timed([&] { rows.sort_and_gather(8); }); },
                                 [&] { return timed([&] { rows.partition(8); }); });
    bool const right = rows.is_partitioned(8);
    std::printf("  W =    8: partition %6.1f ms; stable_sort and gathers %6.1f ms; %.1f x%s\n", 1e3 * result.second,
                1e3 * result.first, result.ratio, right ? "" : "  WRONG RESULT");
    goals.at_least("partition_vs_sort", right ? result.ratio : 0, 8);
}

struct Goal {
    char const* name;
    void (*measure)(Goals&);
};
constexpr Goal all_goals[] = {
    {"partition_w2", partition_w2},
    {"partition_w64", partition_w64},
    {"partition_vs_sort", partition_vs_sort},
    {"partition_worlds", partition_worlds},  // a table beside the goals
};

// ---- Single kernels ----------------------------------------------------------------------------------------------

void partition_kernel(benchmark::State& state) {
    MchRows rows(state.range(0), static_cast<int>(state.range(2)));
    for (auto _ : state) rows.partition(state.range(1));
    state.SetBytesProcessed(state.iterations() * 80 * state.range(0));
}
BENCHMARK(partition_kernel)
    ->ArgNames({"entries", "world", "threads"})
    ->ArgsProduct({{1 << 14, 1 << 18, 1 << 22}, {2, 8, 64, 1024}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::strcmp(argv[1], "--goals") == 0) return measure_goals(all_goals, argc - 1, argv + 1);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
