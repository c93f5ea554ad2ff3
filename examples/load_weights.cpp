// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint onto any mesh and placements, with every strategy, and says what each one cost. All must leave the
// same bits, and those of the file. Without data, and for as many ranks as you like, it says what a load would cost.
//
//     reshard_load_weights                                   makes a checkpoint, loads it on 2 ranks that are threads
//     reshard_load_weights folder --to "(2,2):(R,S0)"        yours, on 4 ranks
//     mpirun -n 4 reshard_load_weights folder                the same on four processes
//     reshard_load_weights --dry-run --ranks 64              what it would be for Qwen1.5-MoE-A2.7B on 64
//     reshard_load_weights --dry-run --model all             what the redundant scatter sends of five models
//     reshard_load_weights --compare-reads                   opens and balance of ways to deal 2000 shards to readers
#include "support/made_checkpoint.hpp"
#include "support/model_lists.hpp"
#include "support/model_part.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"
#include "support/read_cases.hpp"
#include "support/read_ways.hpp"
#include "support/redundant_scatter.hpp"
#include "support/target.hpp"

#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/plan/topology.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {
using namespace reshard;

struct Arguments {
    std::string path;
    std::string to;
    std::string strategy = "all";
    std::string model = "Qwen1.5-MoE-A2.7B";
    int ranks = 0;
    int layers = 4;
    Index scale = 1;
    int repeat = 3;
    Index window = default_window_bytes;
    bool apart = false;
    bool keep = false;
    bool dry_run = false;
    bool compare_reads = false;
};

// ---- The strategies ----------------------------------------------------------------------------------------------

/// A flag chooses among types: calls visit(strategy) with each that is wanted.
template <class Visit>
void for_each_strategy(Arguments const& arguments, Visit&& visit) {
    auto const offer = [&](char const* name, auto const& strategy) {
        if (arguments.strategy == "all" || arguments.strategy == name) visit(strategy);
    };
    struct Redundant {};
    offer("redundant-scatter", Redundant{});
    offer("every-rank", EveryRankReads{});
    offer("boxes", EachRankReadsItsBoxes{});
    offer("scatter", OneRankReads<Scatter>{0, arguments.window});
    offer("broadcast", OneRankReads<Broadcast>{0, arguments.window});
    offer("cooperative", CooperativeRead{arguments.window});
}
std::vector<std::string> const strategy_names{"all",     "redundant-scatter", "every-rank", "boxes",
                                              "scatter", "broadcast",         "cooperative"};

/// What all have in common: a load over a communicator, and its forecast.
template <class Strategy>
LoadReport load_with(Strategy const& strategy, std::string const& path, std::span<LocalTensor const> tensors,
                     CommunicatorRef comm) {
    if constexpr (std::is_same_v<Strategy, EveryRankReads>) {
        return load(Checkpoint::open(path), tensors, comm.rank(), strategy);
    } else if constexpr (requires { Strategy::name; }) {
        return load(path, tensors, comm, strategy);
    } else {
        return demo::redundant_scatter(path, tensors, comm);
    }
}
template <class Strategy>
LoadForecast forecast_with(Strategy const& strategy, Catalogue const& catalogue, std::span<PlacedTensor const> targets,
                           int ranks) {
    if constexpr (requires { Strategy::name; }) {
        return forecast_load(catalogue, targets, ranks, strategy);
    } else {
        return demo::forecast_redundant_scatter(catalogue, targets, ranks);
    }
}

// ---- Where tensors go --------------------------------------------------------------------------------------------

/// Every tensor of a catalogue. Elements smaller than a byte are loaded as bytes.
std::vector<PlacedTensor> targets_of(Catalogue const& catalogue, demo::Target const& to) {
    std::vector<PlacedTensor> targets;
    for (StoredTensor const& tensor : catalogue.tensors()) {
        bool const bytes = !is_byte_sized(tensor.dtype);
        Index const count = stored_bytes_of(tensor.dtype, Box(tensor.shape));
        DynamicShape const shape = bytes ? DynamicShape(Shape{count}) : tensor.shape;
        targets.push_back({tensor.name, to.of(shape), bytes ? DType::u8 : tensor.dtype});
    }
    return targets;
}

// ---- The table ---------------------------------------------------------------------------------------------------

std::string size_text(Index count) {
    char text[32];
    if (count == 0) return "0";
    auto const value = static_cast<double>(count);
    if (count < 1'000'000) {
        std::snprintf(text, sizeof(text), "%.1f kB", value / 1e3);
    } else if (count < 1'000'000'000) {
        std::snprintf(text, sizeof(text), "%.1f MB", value / 1e6);
    } else {
        std::snprintf(text, sizeof(text), "%.2f GB", value / 1e9);
    }
    return text;
}

void print_heading(char const* last) {
    std::printf("  %-26s %8s %10s %9s %10s %12s %11s %8s %6s %10s %10s\n", "", "scatters", "broadcasts", "exchanges",
                "agreements", "on the wire", "read", "reads", "opens", "extra", last);
}
void print_row(std::string_view name, Collectives const& collectives, Index wire, Index read, Index reads, Index opens,
               Index extra, std::string const& time) {
    std::printf("  %-26s %8lld %10lld %9lld %10lld %12s %11s %8lld %6lld %10s %10s\n", std::string(name).c_str(),
                static_cast<long long>(collectives.scatters), static_cast<long long>(collectives.broadcasts),
                static_cast<long long>(collectives.exchanges), static_cast<long long>(collectives.agreements),
                size_text(wire).c_str(), size_text(read).c_str(), static_cast<long long>(reads),
                static_cast<long long>(opens), size_text(extra).c_str(), time.c_str());
}

/// All ranks together; `extra` and `seconds` of the rank that has most.
struct Sum {
    Index wire = 0;
    Index read = 0;
    Index reads = 0;
    Index opens = 0;
    Index extra = 0;
    double seconds = 0;
};
Sum sum_of(CommunicatorRef comm, LoadReport const& mine) {
    Sum sum;
    Sum const own{mine.traffic.bytes_sent, mine.bytes_read,  mine.reads,
                  mine.files_opened,       mine.extra_bytes, mine.seconds};
    for (Sum const& one : demo::gather_records(comm, std::vector<Sum>{own})) {
        sum.wire += one.wire;
        sum.read += one.read;
        sum.reads += one.reads;
        sum.opens += one.opens;
        sum.extra = detail::larger(sum.extra, one.extra);
        sum.seconds = detail::larger(sum.seconds, one.seconds);
    }
    return sum;
}

// ---- Loading -----------------------------------------------------------------------------------------------------

/// Bytes of files up to which every local tensor is compared with its file, too.
constexpr Index small_checkpoint = Index{2} << 30;

void run(Arguments const& arguments, CommunicatorRef comm) {
    bool const speaks = comm.rank() == 0;
    demo::Target const to(arguments.to, comm.size());
    to.check_ranks(comm.size());
    demo::TemporaryFolder made;
    std::string const path =
        demo::given_or_made(comm, arguments.path, made, arguments.keep, arguments.layers, arguments.scale);
    Checkpoint const checkpoint = demo::open_whole(path);
    demo::ModelPart part(targets_of(Catalogue(checkpoint), to), comm.rank());
    if (speaks) {
        std::printf("%s: %zu tensors, %s, onto %s of %s; median of %d\n", path.c_str(),
                    checkpoint.manifest().tensors.size(), size_text(checkpoint.total_bytes()).c_str(),
                    to.text().c_str(), demo::ranks_text(comm).c_str(), arguments.repeat);
        print_heading("time");
    }

    std::vector<std::uint64_t> hashes;  // of every rank, as the first strategy leaves its tensors
    bool const small = checkpoint.total_bytes() <= small_checkpoint;
    for_each_strategy(arguments, [&](auto const& strategy) {
        Sum sum;
        LoadReport report;
        std::vector<double> times;
        for (int turn = 0; turn < arguments.repeat; ++turn) {
            part.forget();
            barrier(comm);
            report = load_with(strategy, path, part.tensors(), comm);
            sum = sum_of(comm, report);
            times.push_back(sum.seconds);
        }
        std::sort(times.begin(), times.end());
        if (speaks) {
            char time[32];
            std::snprintf(time, sizeof(time), "%.1f ms", times[times.size() / 2] * 1e3);
            print_row(report.strategy, report.collectives, sum.wire, sum.read, sum.reads, sum.opens, sum.extra, time);
            std::fflush(stdout);
        }
        auto const now = demo::gather_records(comm, std::vector<std::uint64_t>{part.hash()});
        if (hashes.empty()) hashes = now;
        for (std::size_t rank = 0; rank < now.size(); ++rank) {
            if (now[rank] == hashes[rank]) continue;
            errors::raise(ErrorCode::user, report.strategy, " leaves other bits on rank ", rank, " than the first one");
        }
        if (small) part.compare(checkpoint);
    });
    barrier(comm);  // nobody's files go before all have read them
    if (speaks) {
        std::printf("\n%s%s\n",
                    arguments.strategy == "all" ? "All strategies leave the same bits on every rank" : "Done",
                    small ? ", and those of the file." : ".");
    }
}

// ---- Forecasts ---------------------------------------------------------------------------------------------------

/// What is scattered although every rank has it, model by model.
void print_models(demo::Target const& to, int ranks) {
    auto const gigabytes = [](Index count) { return static_cast<double>(count) / 1e9; };
    std::printf("%s on %d ranks\n", to.text().c_str(), ranks);
    std::printf("%-20s %7s   %-37s %s\n", "", "", "redundant scatter", "every rank reads");
    std::printf("%-20s %7s   %8s %12s %12s    %8s %10s\n", "model", "tensors", "scatters", "GB passed", "GB on wire",
                "scatters", "GB on wire");
    for (demo::ModelConfig const& config : demo::models()) {
        Catalogue const catalogue = Catalogue::of(demo::model_list(config));
        auto const targets = targets_of(catalogue, to);
        LoadForecast const bug = demo::forecast_redundant_scatter(catalogue, targets, ranks);
        LoadForecast const every = forecast_load(catalogue, targets, ranks, EveryRankReads{});
        std::printf("%-20s %7lld   %8lld %12.3f %12.3f    %8lld %10lld\n", config.name.c_str(),
                    static_cast<long long>(bug.tensors), static_cast<long long>(bug.collectives.scatters),
                    gigabytes(bug.bytes_passed), gigabytes(bug.bytes_on_wire),
                    static_cast<long long>(every.collectives.scatters), static_cast<long long>(every.bytes_on_wire));
    }
}

void forecast(Arguments const& arguments) {
    int const ranks = arguments.ranks != 0   ? arguments.ranks
                      : arguments.to.empty() ? 2
                                             : demo::Target(arguments.to, 1).ranks();
    demo::Target const to(arguments.to, ranks);
    if (arguments.path.empty() && arguments.model == "all") return print_models(to, ranks);
    Catalogue const catalogue = arguments.path.empty()
                                    ? Catalogue::of(demo::model_list(demo::model_called(arguments.model)))
                                    : Catalogue(Checkpoint::open(arguments.path));
    auto const targets = targets_of(catalogue, to);
    std::string const& what = arguments.path.empty() ? arguments.model : arguments.path;
    bool first = true;
    for_each_strategy(arguments, [&](auto const& strategy) {
        LoadForecast const all = forecast_with(strategy, catalogue, targets, ranks);
        if (first) {
            std::printf("%s: %lld tensors, %s, onto %s of %d ranks: a forecast\n", what.c_str(),
                        static_cast<long long>(all.tensors), size_text(all.bytes_in_files).c_str(), to.text().c_str(),
                        ranks);
            print_heading("by model");
            first = false;
        }
        print_row(all.strategy, all.collectives, all.bytes_on_wire + all.bytes_of_lists, all.bytes_read, all.reads,
                  all.files_opened, all.extra_bytes, detail::seconds_text(all.seconds));
    });
}

/// Who could read what, each byte once: files that are opened, and the busiest rank's bytes by the mean.
void print_reads() {
    std::printf("%-30s", "2000 shards");
    bool first = true;
    for (demo::ReadCase const& one : demo::read_cases()) {
        auto const ways = demo::compare_reads(one.catalogue, one.ranks);
        for (demo::ReadShares const& way : ways) {
            if (first) std::printf(" %26s", std::string(way.name).c_str());
        }
        std::printf("\n%-30s", one.text.c_str());
        first = false;
        for (demo::ReadShares const& way : ways) {
            std::printf(" %14lld opens, %.2f", static_cast<long long>(way.opens), way.imbalance());
        }
    }
    std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app(
        "Loads a checkpoint onto any mesh and placements, and says what each strategy cost or would cost.");
    app.add("path", arguments.path, "a .safetensors file, or a folder; without it a checkpoint is made");
    app.add("--to", arguments.to,
            "mesh and placements, such as \"(2,2):(R,S0)\"; a tensor without the dimension gets R "
            "(default: S0 over all ranks)");
    app.add("--strategy", arguments.strategy, "which one").one_of(strategy_names).show_default();
    app.add("--ranks", arguments.ranks,
            "number of threads (default: as many as --to needs, else 2; under mpirun the launcher decides)")
        .within(1, 1 << 20);
    app.add("--window", arguments.window, "bytes that a reader holds at once; 0: a window per tensor")
        .within(0, Index{1} << 40)
        .show_default();
    app.add("--layers", arguments.layers, "layers of the checkpoint that is made (the model has 24)")
        .within(1, 24)
        .show_default();
    app.add("--scale", arguments.scale, "divides its widths").positive();
    app.add("--repeat", arguments.repeat, "loads per strategy, of which the median is shown")
        .within(1, 1000)
        .show_default();
    app.add("--apart", arguments.apart, "under mpirun: as if every process had a node of its own");
    app.add("--keep", arguments.keep, "keep the checkpoint that is made");
    app.add("--dry-run", arguments.dry_run, "load nothing: say what each strategy would do");
    app.add("--compare-reads", arguments.compare_reads,
            "load nothing: say how many files are opened, for ways to deal 2000 shards to readers");
    app.add("--model", arguments.model, "what a dry run without a path loads: a model's name, or all").show_default();
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    try {
        if (arguments.compare_reads) {
            if (demo::is_first_process()) print_reads();
            return 0;
        }
        if (arguments.dry_run) {
            if (demo::is_first_process()) forecast(arguments);  // no ranks: one answer is enough
            return 0;
        }
        int const otherwise = arguments.to.empty() ? 2 : demo::Target(arguments.to, 1).ranks();
        demo::RankOptions options;
        options.apart = arguments.apart;
        return demo::run_ranks("reshard_load_weights", arguments.ranks, otherwise, options,
                               [&](CommunicatorRef comm) { run(arguments, comm); });
    } catch (Error const& error) {
        std::fprintf(stderr, "reshard_load_weights: %s\n", error.what());
        return 1;
    }
}
