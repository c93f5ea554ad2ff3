// SPDX-License-Identifier: Apache-2.0
// Question: are the goals met that are about ranks as processes? One line per goal: goal NAME VALUE TARGET ok|short.
//
// Started by mpirun with 4 ranks on one machine (scripts/bench does). Every value is the median of 11 pairs, run in
// turn, the first pair more being thrown away; where a goal has several cases it is their geometric mean, or the least
// where the line above says so. Arguments: names of goals to measure (default: all).
#include "../examples/support/ranks.hpp"
#include "support/goal_lines.hpp"
#include "support/load_case.hpp"
#include "support/local_matrix.hpp"
#include "support/mpi_clock.hpp"
#include "support/mpi_collectives.hpp"
#include "support/mpi_rows.hpp"
#include "support/overlap.hpp"
#if RESHARD_HAS_SCALAPACK
#include "support/scalapack.hpp"
#endif

#include <reshard/exec/batch.hpp>
#include <reshard/exec/collectives.hpp>

#include <unistd.h>  // usleep

#include <algorithm>  // equal, fill_n
#include <cmath>      // exp, log
#include <optional>   // optional
#include <string>
#include <vector>

namespace {

using namespace reshard;
using namespace reshard::bench;

constexpr int ranks_wanted = 4;
constexpr int sizes[] = {4096, 8192};

/// What every goal needs: the communicator, the clock, and a voice that only rank 0 has.
struct Bench {
    MpiCommunicator& comm;
    MpiClock clock{MPI_COMM_WORLD};
    Goals goals{};

    [[nodiscard]] bool speaks() const noexcept { return comm.rank() == 0; }
};

class GeometricMean {
public:
    void add(double value) {
        logs_ += std::log(value);
        ++count_;
    }
    [[nodiscard]] double value() const { return std::exp(logs_ / count_); }

private:
    double logs_ = 0;
    int count_ = 0;
};

/// One line; the ratio of the pair, or zero where a result was wrong.
double print_pair(Bench const& bench, char const* name, double bytes, Paired const& pair, bool right) {
    if (bench.speaks()) {
        std::printf("  %-34s %5.2f GB/s, reshard %5.2f GB/s, ratio %.2f%s\n", name, bytes / pair.first / 1e9,
                    bytes / pair.second / 1e9, pair.ratio, right ? "" : "  WRONG RESULT");
        std::fflush(stdout);
    }
    return right ? pair.ratio : 0;
}

/// A transition of an n x n matrix in this rank's memory, prepared.
struct Move {
    Move(Bench& bench, DynamicDistribution const& from, DynamicDistribution const& to, double* source_memory = nullptr,
         double* destination_memory = nullptr)
        : source(from, bench.comm.rank(), source_memory),
          destination(to, bench.comm.rank(), destination_memory),
          job(prepare(plan(from, to), bench.comm, source.view(), destination.view())),
          bytes(static_cast<double>(from.shape().size()) * sizeof(double)) {
        source.fill();
    }

    /// Runs `reference` and this in turn. Checks once what either leaves behind: `written` is where the reference
    /// writes to.
    template <class Reference>
    double against(Bench& bench, char const* name, LocalMatrix& written, Reference&& reference) {
        auto const run = [&] { job.run(); };
        bool const right = is_right(written, reference) && is_right(destination, run);
        Paired const pair = paired([&] { return bench.clock(reference); }, [&] { return bench.clock(run); });
        return print_pair(bench, name, bytes, pair, right);
    }
    /// The same for a reference from the same source into the same destination.
    template <class Reference>
    double against(Bench& bench, char const* name, Reference&& reference) {
        return against(bench, name, destination, [&] { reference(source.data(), destination.data()); });
    }

    template <class Task>
    [[nodiscard]] static bool is_right(LocalMatrix& written, Task&& task) {
        written.spoil();
        MPI_Barrier(MPI_COMM_WORLD);
        task();
        return on_all_ranks(written.is_right(), MPI_COMM_WORLD);
    }

    LocalMatrix source;
    LocalMatrix destination;
    PreparedPlan job;
    double bytes;
};

[[nodiscard]] DynamicDistribution rows_of(int n) { return distribution<Shard<0>>(Mesh{ranks_wanted}, Shape{n, n}); }
[[nodiscard]] DynamicDistribution columns_of(int n) { return distribution<Shard<1>>(Mesh{ranks_wanted}, Shape{n, n}); }

void head(Bench const& bench, char const* what, int n) {
    if (bench.speaks()) std::printf("%s, float64 %d x %d:\n", what, n, n);
}
constexpr char const* rows_to_columns = "(4):(S0) -> (4):(S1)";

// ---- Rows to columns ---------------------------------------------------------------------------------------------

void mpi_vs_pack(Bench& bench) {
    GeometricMean mean;
    for (int n : sizes) {
        head(bench, rows_to_columns, n);
        Move move(bench, rows_of(n), columns_of(n));
        PackedExchange packed(RowsToColumns(n, MPI_COMM_WORLD));
        mean.add(move.against(bench, "pack + MPI_Alltoallv + unpack", packed));
        // Beside the goal: the best case of packing.
        move.against(bench, "pack + MPI_Alltoallv, no unpack",
                     [&](double const* source, double* destination) { packed.in_place(source, destination); });
    }
    bench.goals.at_least("mpi_vs_pack", mean.value(), 1.8);
}

double beside_alltoallw(Bench& bench, char const* name) {
    GeometricMean mean;
    for (int n : sizes) {
        head(bench, rows_to_columns, n);
        Move move(bench, rows_of(n), columns_of(n));
        TypedExchange const typed(RowsToColumns(n, MPI_COMM_WORLD));
        mean.add(move.against(bench, name, typed));
    }
    return mean.value();
}
void mpi_vs_alltoallw(Bench& bench) {
    bench.goals.at_least("mpi_vs_alltoallw", beside_alltoallw(bench, "MPI_Alltoallw, subarray types"), 1.0);
}
/// Without memory that ranks share: what ranks of different nodes do. The node is cut to one rank.
void mpi_messages_vs_alltoallw(Bench& bench) {
    MpiOptions options;
    options.path = MpiPath::messages;
    options.ranks_per_node = 1;
    MpiCommunicator far(MPI_COMM_WORLD, options);
    Bench apart{far};
    double const ratio = beside_alltoallw(apart, "MPI_Alltoallw, both by messages");
    bench.goals.at_least("mpi_messages_vs_alltoallw", ratio, 1.0);
}

/// What is prepared once and run often: 8 KiB on each rank, on one node.
void mpi_replay(Bench& bench) {
    constexpr int n = 64;
    constexpr int calls = 200;
    Move move(bench, rows_of(n), columns_of(n));
    TypedExchange const typed(RowsToColumns(n, MPI_COMM_WORLD));
    auto const reference = [&] { typed(move.source.data(), move.destination.data()); };
    auto const run = [&] { move.job.run(); };
    bool const right = Move::is_right(move.destination, reference) && Move::is_right(move.destination, run);
    Paired const pair = paired([&] { return bench.clock(calls, run); }, [&] { return bench.clock(calls, reference); });
    if (bench.speaks()) {
        std::printf("  %s, 8 KiB a rank, replayed: %.1f us, MPI_Alltoallw %.1f us%s\n", rows_to_columns,
                    1e6 * pair.first, 1e6 * pair.second, right ? "" : "  WRONG RESULT");
    }
    bench.goals.at_most("mpi_replay", right ? pair.ratio : 1e9, 1.2);
}

void mpi_vs_scalapack([[maybe_unused]] Bench& bench) {
#if RESHARD_HAS_SCALAPACK
    GeometricMean mean;
    for (int n : sizes) {
        head(bench, rows_to_columns, n);
        Move move(bench, rows_of(n), columns_of(n));
        int const block = n / ranks_wanted;
        Scalapack const pdgemr2d(n, {ranks_wanted, 1, block, n}, {1, ranks_wanted, n, block});
        mean.add(move.against(bench, "pdgemr2d", pdgemr2d));
    }
    bench.goals.at_least("mpi_vs_scalapack", mean.value(), 3);
#else
    if (bench.speaks()) bench.goals.skipped("mpi_vs_scalapack", "built without ScaLAPACK");
#endif
}

void mpi_shared_vs_memcpy(Bench& bench) {
    GeometricMean mean;
    for (int n : sizes) {
        head(bench, rows_to_columns, n);
        Index const elements = Index{n} * n / ranks_wanted;
        auto source = bench.comm.allocate<double>(elements);
        auto destination = bench.comm.allocate<double>(elements);
        Move move(bench, rows_of(n), columns_of(n), source.data(), destination.data());
        SharedExchange const shared(RowsToColumns(n, MPI_COMM_WORLD));
        LocalMatrix from(rows_of(n), bench.comm.rank(), shared.source());
        LocalMatrix to(columns_of(n), bench.comm.rank(), shared.destination());
        from.fill();
        mean.add(move.against(bench, "memcpy per row, shared window", to, shared));
    }
    bench.goals.at_least("mpi_shared_vs_memcpy", mean.value(), 1.3);
}

// ---- Block-cyclic ------------------------------------------------------------------------------------------------

void block_cyclic_vs_scalapack([[maybe_unused]] Bench& bench) {
#if RESHARD_HAS_SCALAPACK
    constexpr int n = 4096;
    head(bench, "(2,2):(S0:cycA,S1:cycA) -> (2,2):(S0:cycB,S1:cycB)", n);
    GeometricMean mean;
    struct Case {
        char const* name;
        int from;
        int to;
    };
    for (Case const& one :
         {Case{"pdgemr2d, blocks of 64 -> 256", 64, 256}, Case{"pdgemr2d, blocks of 8 -> 32", 8, 32}}) {
        auto const side = [&](int block) {
            return distribution(Mesh{2, 2}, Shape{n, n}, errors::concat("S0:cyc", block, ",S1:cyc", block));
        };
        Move move(bench, side(one.from), side(one.to));
        Scalapack const pdgemr2d(n, {2, 2, one.from, one.from}, {2, 2, one.to, one.to});
        mean.add(move.against(bench, one.name, pdgemr2d));
    }
    bench.goals.at_least("block_cyclic_vs_scalapack", mean.value(), 1.7);
#else
    if (bench.speaks()) bench.goals.skipped("block_cyclic_vs_scalapack", "built without ScaLAPACK");
#endif
}

// ---- Batches -----------------------------------------------------------------------------------------------------

/// Square tensors from rows to columns: each prepared and run by itself, against all of them as one batch.
double print_batch(Bench& bench, int tensors, int n, int calls) {
    using Job = PreparedPlan;
    std::vector<LocalMatrix> sources;
    std::vector<LocalMatrix> destinations;
    Plan<> const move = plan(rows_of(n), columns_of(n));
    for (int i = 0; i < tensors; ++i) {
        sources.emplace_back(rows_of(n), bench.comm.rank());
        destinations.emplace_back(columns_of(n), bench.comm.rank());
        sources.back().fill();
    }
    Batch batch;
    std::vector<Job> jobs;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        ConstDynamicView const source(sources[i].view());
        DynamicView const destination(destinations[i].view());
        batch.add(move, source, destination);
        jobs.push_back(prepare(move, bench.comm, source, destination));
    }
    auto job = prepare(batch, bench.comm, BatchOptions{});
    auto const one_by_one = [&] {
        for (Job& each : jobs) each.run();
    };
    auto const together = [&] { job.run(); };
    auto const is_right = [&](auto&& task) {
        for (LocalMatrix& destination : destinations) destination.spoil();
        MPI_Barrier(MPI_COMM_WORLD);
        task();
        bool right = true;
        for (LocalMatrix& destination : destinations) right = right && destination.is_right();
        return on_all_ranks(right, MPI_COMM_WORLD);
    };
    bool const right = is_right(one_by_one) && is_right(together);
    Paired const pair =
        paired([&] { return bench.clock(calls, one_by_one); }, [&] { return bench.clock(calls, together); });
    if (bench.speaks()) {
        std::printf("  %4d tensors of %5lld KiB: one by one %9.1f us, as a batch %9.1f us, ratio %.2f%s\n", tensors,
                    static_cast<long long>(Index{n} * n * 8 / 1024), 1e6 * pair.first, 1e6 * pair.second, pair.ratio,
                    right ? "" : "  WRONG RESULT");
        std::fflush(stdout);
    }
    return right ? pair.ratio : 0;
}

void batch_small(Bench& bench) {
    if (bench.speaks()) std::printf("%s, float64, many at once:\n", rows_to_columns);
    bench.goals.at_least("batch_small", print_batch(bench, 256, 32, 4), 3);
}

void batch_large(Bench& bench) {
    if (bench.speaks()) std::printf("%s, float64, the least of both:\n", rows_to_columns);
    double const middle = print_batch(bench, 8, 256, 8);
    bench.goals.at_least("batch_large", detail::smaller(middle, print_batch(bench, 8, 1024, 1)), 0.95);
}

// ---- Loading -----------------------------------------------------------------------------------------------------

/// Rank 0 makes and removes the files; all know where they are.
class SharedCheckpoint {
public:
    SharedCheckpoint(Bench& bench, std::vector<TensorSpec> const& list) {
        if (bench.speaks()) made_.emplace(list);
        path_ = demo::share_text(bench.comm, made_ ? made_->path() : std::string());
    }
    SharedCheckpoint(SharedCheckpoint const&) = delete;
    SharedCheckpoint& operator=(SharedCheckpoint const&) = delete;
    ~SharedCheckpoint() { MPI_Barrier(MPI_COMM_WORLD); }
    [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
    std::optional<MadeCheckpoint> made_;
    std::string path_;
};

/// A barrier for ranks that have nothing to do: they sleep, so that the others have their cores.
void wait_asleep() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done != 0) return;
        usleep(10'000);
    }
}

/// Calls body(communicator, its MPI_Comm) on the first ranks; the others sleep meanwhile.
template <class Body>
void among_the_first(Bench& bench, int ranks, Body&& body) {
    int const part = bench.comm.rank() < ranks ? 0 : MPI_UNDEFINED;
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, part, bench.comm.rank(), &world);
    if (world != MPI_COMM_NULL) {
        {
            MpiCommunicator comm(world);
            body(comm, world);
        }
        MPI_Comm_free(&world);
    }
    wait_asleep();
}

void view_vs_redundant_scatter(Bench& bench) {
    auto const list = demo::model_list(demo::qwen2_5_0_5b());
    if (bench.speaks()) std::printf("Qwen2.5-0.5B from files in the page cache, (n):(S0), the least of both:\n");
    SharedCheckpoint const files(bench, list);
    double least = 1e9;
    for (int ranks : {2, ranks_wanted}) {
        among_the_first(bench, ranks, [&](MpiCommunicator& comm, MPI_Comm world) {
            MpiClock clock(world);
            Loader<MpiCommunicator> loader(comm, files.path(), list);
            auto const redundant = [&] { loader.redundant_scatter(); };
            auto const every = [&] { loader(EveryRankReads{}); };
            bool const right = on_all_ranks(loader.is_right(redundant) && loader.is_right(every), world);
            Paired const result = paired([&] { return clock(redundant); }, [&] { return clock(every); });
            if (bench.speaks()) {
                std::printf("  %d ranks: redundant scatter %.0f ms, every rank reads %.0f ms, ratio %.2f%s\n", ranks,
                            1e3 * result.first, 1e3 * result.second, result.ratio, right ? "" : "  WRONG RESULT");
                std::fflush(stdout);
            }
            least = detail::smaller(least, right ? result.ratio : 0);
        });
    }
    bench.goals.at_least("view_vs_redundant_scatter_mpi", least, 1.2);
}

/// One rank reads, and passes on window by window, or tensor by tensor: by the same code, and in the leanest way there
/// is (an exchange without an agreement; the tensors are in rank 0's page cache, so that reads are copies).
void moe_batched_vs_single(Bench& bench, char const* name, Index divisor, double target) {
    auto const list = divided(demo::model_list(demo::qwen1_5_moe_a2_7b()), divisor);
    SharedCheckpoint const files(bench, list);
    Loader<MpiCommunicator> loader(bench.comm, files.path(), list);
    auto const batched = [&] { loader(OneRankReads<Scatter>{}); };
    auto const single = [&] { loader(OneRankReads<Scatter>{0, 0}); };
    auto const lean = [&] { loader.redundant_scatter(); };
    bool const right =
        on_all_ranks(loader.is_right(batched) && loader.is_right(single) && loader.is_right(lean), MPI_COMM_WORLD);
    Paired const result = paired([&] { return bench.clock(single); }, [&] { return bench.clock(batched); });
    Paired const other = paired([&] { return bench.clock(lean); }, [&] { return bench.clock(batched); });
    if (bench.speaks()) {
        std::printf("Qwen1.5-MoE-A2.7B, extents / %lld: %zu tensors, %.1f MB, one rank reads, (4):(S0):\n",
                    static_cast<long long>(divisor), list.size(), static_cast<double>(demo::total_bytes(list)) / 1e6);
        std::printf("  a scatter per tensor %.1f ms, windows %.1f ms, ratio %.2f%s\n", 1e3 * result.first,
                    1e3 * result.second, result.ratio, right ? "" : "  WRONG RESULT");
        std::printf("  redundant scatter %.1f ms, windows %.1f ms, ratio %.2f\n", 1e3 * other.first, 1e3 * other.second,
                    other.ratio);
        std::fflush(stdout);
    }
    bench.goals.at_least(name, right ? result.ratio : 0, target);
}
void moe_batched_vs_single_64(Bench& bench) { moe_batched_vs_single(bench, "moe_batched_vs_single_64", 64, 5); }
void moe_batched_vs_single_32(Bench& bench) { moe_batched_vs_single(bench, "moe_batched_vs_single_32", 32, 3); }

// ---- What MPI has a call for --------------------------------------------------------------------------------------

void beside_collective(Bench& bench, char const* goal, char const* worst, CollectiveCase const& one) {
    BesideMpi const found = beside_mpi(bench.comm, MPI_COMM_WORLD, one);
    bench.goals.at_least(goal, found.mean, 1.8);
    bench.goals.at_least(worst, found.worst, 1.0);
}
void allreduce_vs_mpi(Bench& bench) {
    beside_collective(bench, "allreduce_vs_mpi", "allreduce_vs_mpi_worst", allreduce);
}
void reduce_scatter_vs_mpi(Bench& bench) {
    beside_collective(bench, "reduce_scatter_vs_mpi", "reduce_scatter_vs_mpi_worst", bench::reduce_scatter);
}
void allgather_vs_mpi(Bench& bench) {
    beside_collective(bench, "allgather_vs_mpi", "allgather_vs_mpi_worst", allgather);
}

/// What a step of training exchanges: gradients, summed and cut, in buckets of a layer's size; then the weights, whole
/// again. Beside it a call per bucket, as one writes it by hand.
void gradient_step(Bench& bench) {
    constexpr int layers = 24;
    constexpr int width = 384;
    constexpr int elements = 12 * width * width;  // attention and a feed-forward net four times as wide
    Mesh const mesh{ranks_wanted};
    Index const part = elements / ranks_wanted;
    Tensor<float> gradients(DynamicShape(Shape{layers, elements}));
    Tensor<float> shards(DynamicShape(Shape{layers, part}));
    Tensor<float> weights(DynamicShape(Shape{layers, elements}));
    Tensor<float> theirs(DynamicShape(Shape{layers, elements}));
    for (Index i = 0; i < gradients.size(); ++i) {
        gradients.data()[i] = static_cast<float>((i + bench.comm.rank()) % 1000);  // sums are exact in any order
    }
    std::vector<PreparedPlan> jobs;
    for (int layer = 0; layer < layers; ++layer) {
        TensorView<float> const gradient(gradients.data() + Index{layer} * elements, Shape{elements});
        TensorView<float> const shard(shards.data() + layer * part, Shape{part});
        TensorView<float> const weight(weights.data() + Index{layer} * elements, Shape{elements});
        jobs.push_back(prepare_reduce_scatter(gradient, shard, bench.comm, mesh, 0));
        jobs.push_back(prepare_all_gather(shard, weight, bench.comm, mesh, 0));
    }
    auto const ours = [&] {
        for (int layer = layers - 1; layer >= 0; --layer) jobs[static_cast<std::size_t>(2 * layer)].run();
        for (int layer = 0; layer < layers; ++layer) jobs[static_cast<std::size_t>(2 * layer + 1)].run();
    };
    auto const by_hand = [&] {
        for (int layer = layers - 1; layer >= 0; --layer) {
            MPI_Reduce_scatter_block(gradients.data() + Index{layer} * elements, shards.data() + layer * part,
                                     static_cast<int>(part), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        for (int layer = 0; layer < layers; ++layer) {
            MPI_Allgather(shards.data() + layer * part, static_cast<int>(part), MPI_FLOAT,
                          theirs.data() + Index{layer} * elements, static_cast<int>(part), MPI_FLOAT, MPI_COMM_WORLD);
        }
    };
    by_hand();
    std::fill_n(shards.data(), shards.size(), 0.0F);
    ours();
    bool const right =
        on_all_ranks(std::equal(weights.data(), weights.data() + weights.size(), theirs.data()), MPI_COMM_WORLD);
    Paired const pair = paired([&] { return bench.clock(by_hand); }, [&] { return bench.clock(ours); });
    print_pair(bench, "a step: MPI_Reduce_scatter, _Allgather", 2.0 * static_cast<double>(gradients.size()) * 4, pair,
               right);
    bench.goals.at_least("gradient_step", right ? pair.ratio : 0, 1.3);
}

// ---- Two ranks, a core each -----------------------------------------------------------------------------------------

void allreduce_latency_2(Bench& bench) {
    double ratio = 0;
    among_the_first(bench, 2, [&](MpiCommunicator& comm, MPI_Comm world) {
        ratio = beside_mpi(comm, world, allreduce, {1 << 10, 20'000});
    });
    bench.goals.at_least("allreduce_latency_2", ratio, 0.9);
}

/// What moves while ranks sleep, as those do whose device computes, or compute themselves.
void overlap_mpi(Bench& bench) {
    Overlap found;
    among_the_first(bench, overlapping_ranks, [&](MpiCommunicator& comm, MPI_Comm world) {
        MpiClock clock(world);
        found = overlap_of(comm, clock);
    });
    if (bench.speaks()) print_overlap(bench.goals, found, "overlap_mpi", "overlap_busy");
}

struct Goal {
    char const* name;
    void (*measure)(Bench&);
};
constexpr Goal all_goals[] = {
    {"mpi_vs_pack", mpi_vs_pack},
    {"mpi_vs_alltoallw", mpi_vs_alltoallw},
    {"mpi_messages_vs_alltoallw", mpi_messages_vs_alltoallw},
    {"mpi_replay", mpi_replay},
    {"mpi_vs_scalapack", mpi_vs_scalapack},
    {"mpi_shared_vs_memcpy", mpi_shared_vs_memcpy},
    {"block_cyclic_vs_scalapack", block_cyclic_vs_scalapack},
    {"batch_small", batch_small},
    {"batch_large", batch_large},
    {"view_vs_redundant_scatter_mpi", view_vs_redundant_scatter},
    {"moe_batched_vs_single_64", moe_batched_vs_single_64},
    {"moe_batched_vs_single_32", moe_batched_vs_single_32},
    {"allreduce_vs_mpi", allreduce_vs_mpi},
    {"reduce_scatter_vs_mpi", reduce_scatter_vs_mpi},
    {"allgather_vs_mpi", allgather_vs_mpi},
    {"gradient_step", gradient_step},
    {"allreduce_latency_2", allreduce_latency_2},
    {"overlap_mpi", overlap_mpi},
};

}  // namespace

int main(int argc, char** argv) {
    if (!are_known(all_goals, argc, argv)) return 2;
    return run_on_mpi([&](MpiCommunicator& comm) {
        if (comm.size() != ranks_wanted) {
            errors::raise(ErrorCode::mesh,
                          errors::concat("reshard_mpi_goals: started with ", comm.size(),
                                         " ranks. Fix: the goals are about 4 ranks on one machine: mpirun -n 4."));
        }
        Bench bench{comm};
        for (Goal const& goal : all_goals) {
            if (is_wanted(goal.name, argc, argv)) goal.measure(bench);
        }
        if (bench.speaks()) bench.goals.print();
    });
}
