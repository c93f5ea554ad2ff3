// SPDX-License-Identifier: Apache-2.0
// Question: from which payload, and from which length of a contiguous run, do streaming stores win?
// Floor: the same copy with ordinary stores. One thread copies a window of rows, each run of half its row.
// Answers: streaming_payload_bytes and streaming_row_bytes in memory/.
#include <benchmark/benchmark.h>
#include <reshard/memory/copy.hpp>

#include <vector>

namespace {

using namespace reshard;

/// Axes: bytes moved, bytes of a contiguous run.
void copy_rows(benchmark::State& state, CopyHint hint) {
    Index const payload = state.range(0);
    Index const run = state.range(1);
    Index const rows = payload / run;
    std::vector<std::byte> source(static_cast<std::size_t>(2 * payload));
    std::vector<std::byte> destination(static_cast<std::size_t>(payload));
    transport::StridedBox from;
    from.dims.push_back({rows, 2 * run});
    from.dims.push_back({run, 1});
    transport::StridedBox to = from;
    to.dims[0].stride = run;
    for (auto _ : state) {
        transport::copy(source.data(), from, destination.data(), to, hint);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * payload);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"bytes", "run"})->Unit(benchmark::kMicrosecond);
    for (std::int64_t bytes : {2 << 20, 8 << 20, 16 << 20, 32 << 20, 128 << 20}) benchmark->Args({bytes, 8 << 10});
    for (std::int64_t run : {128, 256, 512, 1 << 10, 4 << 10}) benchmark->Args({128 << 20, run});
}

BENCHMARK_CAPTURE(copy_rows, floor : ordinary, CopyHint::cached)->Apply(sizes);
BENCHMARK_CAPTURE(copy_rows, streaming, CopyHint::streaming)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
