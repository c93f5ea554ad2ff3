// SPDX-License-Identifier: Apache-2.0
// Question: are the library's goals met on this machine? One line per goal: goal NAME VALUE TARGET ok|short.
//
// Every value is the median of 11 repetitions, the first one more being thrown away; where there is a floor it is run
// in turn with what it is the floor of, and the value is the ratio of a pair. Lines above the goals give the details.
// Arguments: names of goals to measure, as the lines print them (default: all).
#include "support/goal_lines.hpp"
#include "support/include_cost.hpp"
#include "support/load_case.hpp"
#include "support/overlap.hpp"
#include "support/plan_cases.hpp"
#include "support/row_exchange.hpp"
#include "support/team.hpp"
#include "support/view_case.hpp"

#include <reshard/plan/simulate.hpp>

#include <atomic>   // atomic
#include <cstdio>   // printf
#include <cstdlib>  // malloc
#include <new>      // operator new
#include <string>

namespace {

std::atomic<long> allocations{0};

}  // namespace

// Counts what anybody allocates: a view must not. Not inline: g++ would take the parts for a mismatch.
#define RESHARD_NOINLINE __attribute__((noinline))
RESHARD_NOINLINE void* operator new(std::size_t bytes) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
RESHARD_NOINLINE void operator delete(void* memory) noexcept { std::free(memory); }
RESHARD_NOINLINE void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace {

using namespace reshard;
using namespace reshard::bench;

// ---- Threads -----------------------------------------------------------------------------------------------------

struct RowResult {
    Paired rows;     ///< row memcpy against run()
    Paired one;      ///< one memcpy per thread against run()
    Paired latency;  ///< run() against bare barriers
    bool right = true;
};

enum class Against { rows, barriers };

/// `calls` at a time, so that a sample is long enough for the clock.
[[nodiscard]] RowResult measure_rows(RowExchange& exchange, int calls, Against against) {
    RowResult result;
    TeamClock clock(exchange.ranks());
    std::atomic<bool> right{true};
    run_on_threads(exchange.ranks(), [&](ThreadCommunicator& comm) {
        int const rank = comm.rank();
        auto job = exchange.prepare(comm);
        auto const run = [&] { return clock(calls, [&] { job.run(); }); };
        RowResult own;
        if (against == Against::barriers) {
            own.latency = paired(run, [&] { return clock(calls, [&] { exchange.barriers_only(); }); });
        } else {
            own.rows = paired([&] { return clock(calls, [&] { exchange.by_memcpy(rank); }); }, run);
            own.one = paired([&] { return clock(calls, [&] { exchange.by_one_memcpy(rank); }); }, run);
        }
        exchange.spoil(rank);
        job.run();
        if (!exchange.is_right(rank)) right = false;
        if (rank == 0) result = own;
    });
    result.right = right;
    return result;
}

/// Enough of them for about 2 ms of copying.
[[nodiscard]] int calls_for(Index bytes) {
    return static_cast<int>(detail::larger<Index>(1, (16 << 20) / detail::larger<Index>(bytes, 1 << 15)));
}

[[nodiscard]] double print_rows(Index bytes, RowResult const& result) {
    double const rate = static_cast<double>(bytes) / result.rows.second / 1e9;
    std::printf("  %10lld bytes: run() %10.1f us %6.1f GB/s, %.2f x row memcpy, %.2f x one memcpy per thread%s\n",
                static_cast<long long>(bytes), 1e6 * result.rows.second, rate, result.rows.ratio, result.one.ratio,
                result.right ? "" : "  WRONG RESULT");
    return result.right ? result.rows.ratio : 0;
}

void threads_vs_memcpy(Goals& goals) {
    std::printf("float64 matrices, (4):(S0) -> (4):(S1), four threads:\n");
    double least = 1e9;
    for (Index n : {4096, 8192}) {
        RowExchange exchange(n, n, 4);
        least = detail::smaller(least,
                                print_rows(exchange.bytes(), measure_rows(exchange, n == 4096 ? 4 : 1, Against::rows)));
    }
    goals.at_least("threads_vs_memcpy", least, 1.4);
}

void threads_small_vs_memcpy(Goals& goals) {
    std::printf("whole calls, (4):(S0) -> (4):(S1), four threads:\n");
    double least = 1e9;
    for (Index bytes = 1 << 10; bytes <= 8 << 20; bytes *= 2) {
        RowExchange exchange = RowExchange::of_bytes(bytes, 4);
        double const ratio = print_rows(bytes, measure_rows(exchange, calls_for(bytes), Against::rows));
        if (bytes == 2 << 20 || bytes == 8 << 20) least = detail::smaller(least, ratio);
    }
    goals.at_least("threads_small_vs_memcpy", least, 0.9);
}

void threads_latency(Goals& goals) {
    std::printf("an exchange of 8 KiB against two bare barriers:\n");
    double most = 0;
    for (int threads : {2, 4}) {
        RowExchange exchange = RowExchange::of_bytes(8 << 10, threads);
        RowResult const result = measure_rows(exchange, 1000, Against::barriers);
        std::printf("  %d threads: run() %.2f us, two barriers %.2f us, ratio %.2f%s\n", threads,
                    1e6 * result.latency.first, 1e6 * result.latency.second, result.latency.ratio,
                    result.right ? "" : "  WRONG RESULT");
        most = detail::larger(most, result.right ? result.latency.ratio : 1e9);
    }
    goals.at_most("threads_latency", most, 1.5);
}

// ---- Views and plans: one thread, processor time -----------------------------------------------------------------

/// Seconds of one call. A neighbour on the same core can only slow a batch down: the fastest of many counts.
template <class Task>
[[nodiscard]] double seconds_of(int batches, int calls, Task&& task) {
    return repeated([&] {
        double best = 1e9;
        for (int batch = 0; batch < batches; ++batch) {
            double const start = thread_seconds();
            for (int i = 0; i < calls; ++i) task();
            best = detail::smaller(best, (thread_seconds() - start) / calls);
        }
        return best;
    });
}

template <class Case>
[[nodiscard]] double print_view(char const* name, Case&& view) {
    double const call = seconds_of(50, 20000, [&] { view.view(); });
    double const floor = seconds_of(50, 20000, [&] { view.floor(); });
    long const before = allocations;
    view.view();
    long const allocated = allocations - before;
    bool const free = allocated == 0 && view.is_window();
    std::printf("  %-28s %5.1f ns, of which %.1f ns are a copy of the view; %ld allocations\n", name, 1e9 * call,
                1e9 * floor, allocated);
    return free ? 1e9 * call : 1e9;
}

void view_ns(Goals& goals) {
    std::printf("view(), every input opaque:\n");
    goals.at_most("view_ns_one_axis", print_view("one axis", view_of_one_axis()), 15);
    goals.at_most("view_ns_two_axes", print_view("two axes", view_of_two_axes()), 25);
    static_cast<void>(print_view("two axes, second cut", view_of_second_cut()));
    static_cast<void>(print_view("one axis, known at run time", untyped(view_of_one_axis())));
    static_cast<void>(print_view("two axes, known at run time", untyped(view_of_two_axes())));
}

struct PlanTime {
    double seconds = 0;
    Index peers = 0;
};

/// One rank's part of a plan. With few peers it takes microseconds, with a million half a second: it is repeated less,
/// the more there are, and from `many_peers` on the first time counts, which is long enough for the clock.
[[nodiscard]] PlanTime time_plan(Plan<> const& plan, Index rank) {
    constexpr Index many_peers = 10000;
    double const start = thread_seconds();
    auto const first = plan_one_rank(plan, rank);
    PlanTime time{thread_seconds() - start, peers_of(first)};
    if (time.peers >= many_peers) return time;
    time.seconds = seconds_of(10, static_cast<int>(detail::larger<Index>(20 - time.peers / 16, 1)), [&] {
        auto result = plan_one_rank(plan, rank);
        benchmark::DoNotOptimize(&result);
        benchmark::ClobberMemory();
    });
    return time;
}

/// The largest ratio of time to budget over the ranks.
[[nodiscard]] double print_plan(PlanCase const& plan_case) {
    double worst = 0;
    PlanTime at;
    for (Index rank : planning_ranks) {
        PlanTime const time = time_plan(plan_case.plan, rank);
        double const ratio = time.seconds / plan_budget_seconds(time.peers);
        if (ratio <= worst) continue;
        worst = ratio;
        at = time;
    }
    std::printf("  %-46s %8.1f us, %7lld peers, %.2f of its budget\n", plan_case.name.c_str(), 1e6 * at.seconds,
                static_cast<long long>(at.peers), worst);
    return worst;
}

void plan_us_1m(Goals& goals) {
    std::printf("planning one of 1024 x 1024 ranks, the slowest of %zu:\n", planning_ranks.size());
    double worst = 0;
    for (PlanCase const& plan_case : goal_plans()) worst = detail::larger(worst, print_plan(plan_case));
    std::printf(" beside the goal:\n");
    for (PlanCase const& plan_case : other_plans()) static_cast<void>(print_plan(plan_case));
    goals.at_most("plan_us_1m", worst, 1);
}

/// What prepare() costs one rank without the others: steps, messages, checks, and their binding to memory.
void prepare_us(Goals& goals) {
    SelfCommunicator self;
    auto const plan_of_one =
        plan(distribution<Shard<0>>(Mesh{1}, Shape{64, 64}), distribution<Shard<1>>(Mesh{1}, Shape{64, 64}));
    Tensor<float> const source(Shape{64, 64});
    Tensor<float> destination(Shape{64, 64});
    double const call = seconds_of(50, 2000, [&] {
        auto prepared = prepare(plan_of_one, self, source, destination);
        benchmark::DoNotOptimize(&prepared);
    });
    goals.at_most("prepare_us", 1e6 * call, 3.0);
}

void plan_bytes(Goals& goals) { goals.at_most("plan_bytes", static_cast<double>(sizeof(Plan<>)), 512); }

void simulate_ms_1m(Goals& goals) {
    std::printf("worlds of 1024 x 1024 ranks in nodes of 8:\n");
    Topology const topology({{"node", 8, 3e-6, 450e9, 400e9}, {"cluster", 0, 10e-6, 50e9, 0}});
    double slowest = 0;
    for (PlanCase const& world : simulated_plans()) {
        bool exact = false;
        Index classes = 0;
        double const seconds = seconds_of(1, 1, [&] {
            Simulation const result = simulate(world.plan, topology, DType::bf16);
            exact = result.exact;
            classes = result.evaluated;
        });
        std::printf("  %-46s %7.1f ms, %lld classes%s\n", world.name.c_str(), 1e3 * seconds,
                    static_cast<long long>(classes), exact ? "" : "  A SAMPLE");
        slowest = detail::larger(slowest, exact ? 1e3 * seconds : 1e9);
    }
    goals.at_most("simulate_ms_1m", slowest, 1000);
}

// ---- Loading -----------------------------------------------------------------------------------------------------

void view_vs_redundant_scatter(Goals& goals) {
    auto const list = demo::model_list(demo::qwen2_5_0_5b());
    std::printf("Qwen2.5-0.5B from files in the page cache, (n):(S0), the least of both:\n");
    MadeCheckpoint const files(list);
    double least = 1e9;
    for (int ranks : {2, 4}) {
        TeamClock clock(ranks);
        Paired result;
        std::atomic<bool> right{true};
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            Loader<ThreadCommunicator> loader(comm, files.path(), list);
            auto const redundant = [&] { loader.redundant_scatter(); };
            auto const every = [&] { loader(EveryRankReads{}); };
            if (!loader.is_right(redundant) || !loader.is_right(every)) right = false;
            Paired const own = paired([&] { return clock(redundant); }, [&] { return clock(every); });
            if (comm.rank() == 0) result = own;
        });
        std::printf("  %d threads: redundant scatter %.0f ms, every rank reads %.0f ms, ratio %.2f%s\n", ranks,
                    1e3 * result.first, 1e3 * result.second, result.ratio, right ? "" : "  WRONG RESULT");
        least = detail::smaller(least, right ? result.ratio : 0);
    }
    goals.at_least("view_vs_redundant_scatter", least, 1.2);
}

// ---- Compile time ------------------------------------------------------------------------------------------------

void include_ratio(Goals& goals) {
    IncludeCost const cost(RESHARD_INCLUDE_DIR);
    if (cost.umbrella_seconds() < 0 || cost.standard_seconds() < 0) {
        goals.skipped("include_ratio", "g++ is missing");
        return;
    }
    Paired const result = paired([&] { return cost.umbrella_seconds(); }, [&] { return cost.standard_seconds(); });
    std::printf("g++ -std=c++20 -c, processor time: umbrella %.0f ms, its %zu standard headers alone %.0f ms:",
                1e3 * result.first, cost.standard_headers().size(), 1e3 * result.second);
    for (std::string const& header : cost.standard_headers()) std::printf(" %s", header.c_str());
    std::printf("\n");
    goals.at_most("include_ratio", result.ratio, 1.5);
}

/// What moves while ranks sleep, as those do whose device computes, or compute themselves.
void overlap_threads(Goals& goals) {
    bench::Overlap found;
    TeamClock clock(overlapping_ranks);
    run_on_threads(overlapping_ranks, [&](ThreadCommunicator& comm) {
        bench::Overlap const mine = overlap_of(comm, clock);
        if (comm.rank() == 0) found = mine;
    });
    print_overlap(goals, found, "overlap_threads", "overlap_threads_busy");
}

struct Goal {
    char const* name;
    void (*measure)(Goals&);
};
constexpr Goal all_goals[] = {
    {"threads_vs_memcpy", threads_vs_memcpy},
    {"threads_small_vs_memcpy", threads_small_vs_memcpy},
    {"threads_latency", threads_latency},
    {"view_ns", view_ns},
    {"plan_us_1m", plan_us_1m},
    {"prepare_us", prepare_us},
    {"plan_bytes", plan_bytes},
    {"simulate_ms_1m", simulate_ms_1m},
    {"view_vs_redundant_scatter", view_vs_redundant_scatter},
    {"include_ratio", include_ratio},
    {"overlap_threads", overlap_threads},
};

}  // namespace

int main(int argc, char** argv) { return measure_goals(all_goals, argc, argv); }
