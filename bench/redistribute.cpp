// SPDX-License-Identifier: Apache-2.0
// Question: how fast do threads turn rows into columns, (n):(S0) -> (n):(S1) of float64, from 1 KiB to 512 MiB?
// Floors: two barriers, and a memcpy per row between two barriers. The ratio to the floor is the result.
#include "support/row_exchange.hpp"
#include "support/team.hpp"

namespace {

using namespace reshard;
using namespace reshard::bench;

/// Axes: bytes of the whole tensor, threads.
template <class Setup>
void measure(benchmark::State& state, Setup const& setup) {
    int const threads = static_cast<int>(state.range(1));
    RowExchange exchange = RowExchange::of_bytes(state.range(0), threads);
    TeamLoop loop(state, threads);
    run_on_threads(threads, [&](ThreadCommunicator& comm) {
        auto task = setup(exchange, comm);
        loop.run(comm.rank(), task);
    });
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}

void barriers(benchmark::State& state) {
    measure(state, [](RowExchange& exchange, ThreadCommunicator&) { return [&] { exchange.barriers_only(); }; });
}
void rows_by_memcpy(benchmark::State& state) {
    measure(state, [](RowExchange& exchange, ThreadCommunicator& comm) {
        return [&exchange, rank = comm.rank()] { exchange.by_memcpy(rank); };
    });
}
void one_memcpy(benchmark::State& state) {
    measure(state, [](RowExchange& exchange, ThreadCommunicator& comm) {
        return [&exchange, rank = comm.rank()] { exchange.by_one_memcpy(rank); };
    });
}
void run_prepared(benchmark::State& state) {
    measure(state, [](RowExchange& exchange, ThreadCommunicator& comm) {
        return [job = exchange.prepare(comm)]() mutable { job.run(); };
    });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"bytes", "threads"})->UseManualTime()->Unit(benchmark::kMicrosecond);
    for (int threads : {2, 4}) {
        for (std::int64_t bytes :
             {1 << 10, 8 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20})
            benchmark->Args({bytes, threads});
    }
}

BENCHMARK(barriers)->Name("redistribute/floor:barriers")->Apply(sizes);
BENCHMARK(rows_by_memcpy)->Name("redistribute/floor:row_memcpy")->Apply(sizes);
BENCHMARK(one_memcpy)->Name("redistribute/one_memcpy")->Apply(sizes);
BENCHMARK(run_prepared)->Name("redistribute/run")->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
