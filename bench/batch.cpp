// SPDX-License-Identifier: Apache-2.0
// Question: from which size on do tensors gain nothing from sharing exchanges? Rows to columns of float64,
// (n):(S0) -> (n):(S1), as many tensors as make 32 MiB (256 at most): one prepared plan each, run in turn, against one
// batch. The ratio one_by_one / batch is the result; the goals are 3 at 8 KiB and 0.95 from 512 KiB up.
#include "support/team.hpp"

#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>

#include <vector>

namespace {

using namespace reshard;
using namespace reshard::bench;

/// Tensors of one size, side by side: what every rank holds of them, and where it wants them.
class Model {
public:
    Model(Index bytes, int ranks) : ranks_(ranks) {
        Index const count = detail::smaller<Index>(256, (Index{32} << 20) / bytes);
        Index rows = 1;
        while (rows * rows * 4 * Index{sizeof(double)} <= bytes) rows *= 2;
        DynamicShape const shape = Shape{rows, bytes / (rows * Index{sizeof(double)})};
        plan_ = plan(distribution(DynamicMesh(Mesh{ranks}), shape, "S0"),
                     distribution(DynamicMesh(Mesh{ranks}), shape, "S1"));
        for (Index i = 0; i < count * ranks; ++i) {
            int const rank = static_cast<int>(i % ranks);
            sources_.emplace_back(plan_.from().local_shape(rank));
            destinations_.emplace_back(plan_.to().local_shape(rank));
            for (Index k = 0; k < sources_.back().size(); ++k) {
                sources_.back().data()[k] = static_cast<double>(i + k);
                destinations_.back().data()[k] = -1;
            }
        }
    }

    [[nodiscard]] Index tensors() const noexcept { return static_cast<Index>(sources_.size()) / ranks_; }

    [[nodiscard]] std::vector<PreparedPlan> prepare_each(ThreadCommunicator& comm) {
        std::vector<PreparedPlan> jobs;
        for (Index i = 0; i < tensors(); ++i) {
            jobs.push_back(prepare(plan_, comm, source(i, comm.rank()), destination(i, comm.rank())));
        }
        return jobs;
    }
    [[nodiscard]] PreparedPlan prepare_batch(ThreadCommunicator& comm, Index bucket_bytes) {
        Batch batch;
        for (Index i = 0; i < tensors(); ++i) {
            batch.add(plan_, source(i, comm.rank()), destination(i, comm.rank()));
        }
        BatchOptions options;
        options.bucket_bytes = bucket_bytes;
        return prepare(batch, comm, options);
    }

private:
    [[nodiscard]] std::size_t place(Index tensor, int rank) const {
        return static_cast<std::size_t>(tensor * ranks_ + rank);
    }
    [[nodiscard]] TensorView<double> source(Index tensor, int rank) { return sources_[place(tensor, rank)].view(); }
    [[nodiscard]] TensorView<double> destination(Index tensor, int rank) {
        return destinations_[place(tensor, rank)].view();
    }

    int ranks_;
    Plan<> plan_ = plan(DynamicDistribution(), DynamicDistribution());
    std::vector<Tensor<double>> sources_;
    std::vector<Tensor<double>> destinations_;
};

/// Axes: bytes of a tensor, ranks, round budget in bytes (-1: the default).
void one_by_one_vs_batch(benchmark::State& state) {
    int const ranks = static_cast<int>(state.range(1));
    Index const budget = state.range(2) < 0 ? BatchOptions{}.bucket_bytes : state.range(2);
    Model model(state.range(0), ranks);
    TeamClock clock(ranks);
    Paired result;
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        auto jobs = model.prepare_each(comm);
        auto batch = model.prepare_batch(comm, budget);
        auto const each = [&] {
            for (auto& job : jobs) job.run();
        };
        auto const together = [&] { batch.run(); };
        double const once = clock(each);
        int const calls = once > 20e-3 ? 1 : static_cast<int>(20e-3 / once) + 1;
        Paired const mine = paired([&] { return clock(calls, each); }, [&] { return clock(calls, together); });
        if (comm.rank() == 0) result = mine;
    });
    for (auto _ : state) state.SetIterationTime(result.second);
    auto const count = static_cast<double>(model.tensors());
    state.counters["tensors"] = count;
    state.counters["us_each_alone"] = result.first / count * 1e6;
    state.counters["us_each_batch"] = result.second / count * 1e6;
    state.counters["ratio"] = result.ratio;
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"bytes", "ranks", "round"})->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
    for (int ranks : {2, 4})
        for (std::int64_t bytes : {2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20})
            benchmark->Args({bytes, ranks, -1});
}
/// The same with other budgets: where the default comes from.
void budgets(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"bytes", "ranks", "round"})->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
    for (std::int64_t budget : {64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20})
        for (std::int64_t bytes : {8 << 10, 128 << 10, 512 << 10, 2 << 20}) benchmark->Args({bytes, 4, budget});
}

BENCHMARK(one_by_one_vs_batch)->Name("batch/sizes")->Apply(sizes);
BENCHMARK(one_by_one_vs_batch)->Name("batch/budgets")->Apply(budgets);

}  // namespace

BENCHMARK_MAIN();
