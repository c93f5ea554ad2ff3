// SPDX-License-Identifier: Apache-2.0
// Question: how long does each strategy take to load a model's rows, beside the redundant scatter, when files are in
// the page cache? Qwen2.5-0.5B with 4 of its 24 layers (391.6 MB, of which the embedding is 272.3), (n):(S0), threads.
// The goal view_vs_redundant_scatter is about the whole model.
#include "support/load_case.hpp"
#include "support/team.hpp"

#include <reshard/comm/threads.hpp>

namespace {

using namespace reshard;
using namespace reshard::bench;

/// Axis: ranks.
template <class Task>
void measure(benchmark::State& state, Task const& task) {
    static auto const list = demo::model_list(demo::qwen2_5_0_5b(4));
    static MadeCheckpoint const files(list);
    int const ranks = static_cast<int>(state.range(0));
    TeamLoop loop(state, ranks);
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        Loader<ThreadCommunicator> loader(comm, files.path(), list);
        loop.run(comm.rank(), [&] { task(loader); });
    });
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * demo::total_bytes(list));
}

void redundant(benchmark::State& state) {
    measure(state, [](auto& loader) { loader.redundant_scatter(); });
}
template <class Strategy>
void strategy(benchmark::State& state) {
    measure(state, [](auto& loader) { loader(Strategy{}); });
}
/// What grouping is worth: a window, and so a collective, per tensor.
void scatter_single(benchmark::State& state) {
    measure(state, [](auto& loader) { loader(OneRankReads<Scatter>{0, 0}); });
}
void cooperative_always(benchmark::State& state) {
    CooperativeRead together;
    together.cooperation = Cooperation::always;
    measure(state, [&](auto& loader) { loader(together); });
}

void ranks(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgName("ranks")->Arg(2)->Arg(4)->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(redundant)->Name("load/redundant_scatter")->Apply(ranks);
BENCHMARK(strategy<EveryRankReads>)->Name("load/every_rank_reads")->Apply(ranks);
BENCHMARK(strategy<EachRankReadsItsBoxes>)->Name("load/each_rank_reads_its_boxes")->Apply(ranks);
BENCHMARK(strategy<OneRankReads<Scatter>>)->Name("load/one_rank_reads_scatter")->Apply(ranks);
BENCHMARK(scatter_single)->Name("load/one_rank_reads_scatter_single")->Apply(ranks);
BENCHMARK(strategy<OneRankReads<Broadcast>>)->Name("load/one_rank_reads_broadcast")->Apply(ranks);
BENCHMARK(strategy<CooperativeRead>)->Name("load/cooperative_read")->Apply(ranks);
BENCHMARK(cooperative_always)->Name("load/cooperative_read_always")->Apply(ranks);

}  // namespace

BENCHMARK_MAIN();
